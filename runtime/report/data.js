// data.js - reads the columns of numbers that the report carries, and says what an item is.
// SPDX-License-Identifier: Apache-2.0
// Differences of neighbours, zigzag, seven bits a byte, base64.
function column(text) {
    const bytes = atob(text), out = new Float64Array(count(bytes));
    let last = 0, at = 0;
    for (let i = 0; i < out.length; i++) {
        let x = 0, by = 1, b;
        do {
            b = bytes.charCodeAt(at++);
            x += (b & 127) * by;
            by *= 128;
        } while (b > 127);
        last += x % 2 ? -(x + 1) / 2 : x / 2;
        out[i] = last;
    }
    return out;
}
function count(bytes) {
    let n = 0;
    for (let i = 0; i < bytes.length; i++) n += bytes.charCodeAt(i) < 128;
    return n;
}
function columns(from, names) {
    const to = {};
    for (const name of names) to[name] = column(from[name]);
    return to;
}

const uses = ["gathered", "activations", "gradients", "scratch"];

function readData() {
    const d = JSON.parse(document.getElementById("data").textContent);
    d.node_op = column(d.node_op);
    d.node_phase = column(d.node_phase);
    d.unit_bytes = column(d.unit_bytes);
    d.unit_block = column(d.unit_block);
    const n = d.items.n;
    d.items = columns(d.items, ["id", "stream", "by", "what", "micro"]);
    d.items.n = n;
    const launches = columns(d.launches, ["n", "unit"]);
    d.launches = [];
    for (let i = 0, at = 0; i < launches.n.length; i++) {
        d.launches.push(launches.unit.subarray(at, at + launches.n[i]));
        at += launches.n[i];
    }
    d.gathers = columns(d.gathers, ["unit", "item", "first", "last", "ahead", "steps", "bytes"]);
    d.gatherAt = new Map(); // by item: its first gather
    d.gathers.item.forEach((item, i) => { if (!d.gatherAt.has(item)) d.gatherAt.set(item, i); });
    d.times.forEach((t) => {
        Object.assign(t, columns(t, ["start", "takes", "gone", "reuse"]));
        t.memory = columns(t.memory, ["at", ...uses]);
        t.most = t.held;
        for (let i = 0; i < t.memory.at.length; i++) {
            let all = t.held;
            for (const use of uses) all += t.memory[use][i] * d.grain;
            if (all > t.most) t.most = all;
        }
    });
    d.lanes = d.streams.map(() => []); // items by stream, in order
    for (let i = 0; i < n; i++) d.lanes[d.items.stream[i]].push(i);
    d.word = (i) => d.words[d.items.id[i]];
    return d;
}

// ---- numbers for people -------------------------------------------------------------------------

function digits(x) {
    return x >= 99.95 || x === 0 ? x.toFixed(0) : x >= 9.995 ? x.toFixed(1) : x.toFixed(2);
}
function secondsText(s) {
    const a = Math.abs(s);
    if (a >= 1 || a === 0) return digits(a) + " s";
    if (a >= 1e-3) return digits(a * 1e3) + " ms";
    return a >= 1e-6 ? digits(a * 1e6) + " \u00b5s" : digits(a * 1e9) + " ns";
}
function bytesText(b) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let k = 0;
    while (b >= 1000 && k < 5) {
        b /= 1024;
        k++;
    }
    return (k === 0 ? b.toFixed(0) : digits(b)) + " " + units[k];
}

// ---- what an item is ----------------------------------------------------------------------------

const launched = new Set(["gather", "reduce", "allreduce", "pack", "unpack"]);

function launchBytes(d, launch) {
    return d.launches[launch].reduce((sum, u) => sum + d.unit_bytes[u], 0);
}
function nameOf(d, i) {
    const word = d.word(i), what = d.items.what[i];
    if (word === "exec") return d.nodes[what];
    if (word === "wait") return what < 0 ? "waiting" : "waiting for " + nameOf(d, what);
    if (launched.has(word)) {
        const units = d.launches[what];
        return word + " " + d.units[units[0]] + (units.length > 1 ? " + " + (units.length - 1) : "");
    }
    return what >= 0 && (word === "update" || word === "bucket") ? word + " " + d.units[what] : word;
}
// What it is, why, bytes, reuse distance, who placed it: the first line is its name.
function linesOf(d, t, i) {
    const word = d.word(i), what = d.items.what[i], at = (x) => secondsText(x * d.tick);
    const lines = [nameOf(d, i)];
    const micro = d.items.micro[i] < 0 ? "" : ", micro-batch " + d.items.micro[i];
    if (word === "exec") lines.push(d.ops[d.node_op[what]] + (d.node_phase[what] ? ", backward" : ", forward") + micro);
    lines.push("at " + at(t.start[i]) + " for " + at(t.takes[i]));
    if (launched.has(word)) {
        const units = d.launches[what];
        lines.push(units.length + (units.length > 1 ? " units, " : " unit, ") + bytesText(launchBytes(d, what)) + " whole");
        if (units.length > 1) {
            const some = Array.from(units.slice(0, 6), (u) => d.units[u]);
            lines.push(some.join(", ") + (units.length > 6 ? " and " + (units.length - 6) + " more" : ""));
        }
    }
    if (d.gatherAt.has(i)) lines.push(...gatherLines(d, t, d.gatherAt.get(i)));
    const pass = d.passes[d.items.by[i]];
    lines.push("placed by " + pass[0] + ": " + pass[1]);
    return lines;
}
// Of a unit that a gather brings.
function gatherLines(d, t, g) {
    const x = d.gathers, lines = [], at = (ticks) => secondsText(ticks * d.tick);
    if (x.first[g] >= 0) {
        const slack = t.start[x.first[g]] - t.start[x.item[g]] - t.takes[x.item[g]];
        lines.push("first read by " + nameOf(d, x.first[g]) + ", " + x.ahead[g] + " steps after its issue, " +
            (slack >= 0 ? at(slack) + " after it is whole" : "which waits for it"));
    }
    if (x.steps[g] >= 0)
        lines.push("read again " + x.steps[g] + " steps after its last use: " + at(t.reuse[g]) + ", " +
            bytesText(x.bytes[g]) + " of other units between");
    else if (x.first[g] >= 0) lines.push("not read again in this step");
    return lines;
}
