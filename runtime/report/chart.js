// chart.js - lanes, memory and residency on one axis of time, drawn on a canvas.
// SPDX-License-Identifier: Apache-2.0
function makeChart(d, canvas) {
    const pen = canvas.getContext("2d");
    const c = { d, t: d.times[0], from: 0, to: 1, width: 0, height: 0, left: 76, right: 10, mark: -1, cursor: null };
    let ink = {};

    // ---- layout: from top to bottom ------------------------------------------------------------
    function layout() {
        const narrow = canvas.clientWidth < 700;
        c.left = narrow ? 58 : 76;
        c.width = canvas.clientWidth;
        let y = 0;
        const row = (height, gap) => { const at = { y, h: height }; y += height + gap; return at; };
        c.overview = row(9, 6);
        c.axis = row(18, 4);
        c.lanes = [];
        d.lanes.forEach((items, stream) => {
            if (items.length) c.lanes.push({ stream, ...row(stream === 0 ? 30 : 20, 4) });
        });
        y += 20;
        c.memory = row(narrow ? 150 : 190, 26);
        const each = Math.min(7, Math.floor(300 / c.rows.length)); // whole pixels where they suffice
        c.strip = row(each >= 1 && c.rows.length ? each * c.rows.length : c.rows.length ? 300 : 0, 2);
        c.height = y;
    }
    // Rows of the strip: units that are gathered, by block, in order of their first gather.
    function rows() {
        const seen = new Map();
        d.gathers.unit.forEach((u) => { if (!seen.has(u)) seen.set(u, seen.size); });
        const firstOf = new Map();
        for (const [u, k] of seen) {
            const b = d.unit_block[u];
            const key = b < 0 ? "u" + u : b;
            if (!firstOf.has(key)) firstOf.set(key, k);
        }
        const key = (u) => firstOf.get(d.unit_block[u] < 0 ? "u" + u : d.unit_block[u]);
        c.rows = [...seen.keys()].sort((a, b) => key(a) - key(b) || seen.get(a) - seen.get(b));
        c.rowOf = new Map(c.rows.map((u, k) => [u, k]));
    }
    c.x = (ticks) => c.left + (ticks - c.from) / (c.to - c.from) * (c.width - c.left - c.right);
    c.ticksAt = (x) => c.from + (x - c.left) / (c.width - c.left - c.right) * (c.to - c.from);

    // ---- colours ---------------------------------------------------------------------------------
    c.colours = function () {
        const style = getComputedStyle(document.documentElement);
        for (const name of ["bg", "ink", "soft", "line", "faint", "compute", "backward", "update", "wait", "wait-ink",
            "gather", "reduce", "copy", "held", "scratch", "budget"]) ink[name] = style.getPropertyValue("--" + name).trim();
        c.ink = ink;
    };
    function colourOf(i) {
        const word = d.word(i);
        if (word === "exec") return d.node_phase[d.items.what[i]] ? ink.backward : ink.compute;
        if (word === "wait") return ink.wait;
        if (word === "gather") return ink.gather;
        if (word === "reduce" || word === "allreduce") return ink.reduce;
        return word === "pack" || word === "unpack" || word === "bucket" ? ink.copy : ink.update;
    }
    c.useColour = { gathered: "gather", activations: "compute", gradients: "reduce", scratch: "scratch" };

    // ---- drawing ---------------------------------------------------------------------------------
    function text(s, x, y, align, colour) {
        pen.textAlign = align;
        pen.fillStyle = colour;
        pen.fillText(s, x, y);
    }
    function step(span, most) { // a round distance between marks
        const raw = span / most, power = 10 ** Math.floor(Math.log10(raw));
        return power * (raw / power <= 1 ? 1 : raw / power <= 2 ? 2 : raw / power <= 5 ? 5 : 10);
    }
    function drawAxis() {
        const from = c.from * d.tick, to = c.to * d.tick, every = step(to - from, (c.width - c.left) / 95);
        const bottom = c.strip.y + c.strip.h;
        const [by, unit] = every >= 1 ? [1, "s"] : every >= 1e-3 ? [1e3, "ms"] : every >= 1e-6 ? [1e6, "\u00b5s"] : [1e9, "ns"];
        const places = Math.max(0, -Math.floor(Math.log10(every * by) + 1e-9));
        for (let k = Math.ceil(from / every); k * every <= to; k++) {
            const x = Math.round(c.x(k * every / d.tick)) + .5;
            pen.fillStyle = ink.line;
            pen.fillRect(x, c.axis.y + 16, 1, bottom - c.axis.y - 16);
            text((k * every * by).toFixed(places) + " " + unit, x, c.axis.y + 11, "center", ink.soft);
        }
    }
    function drawOverview() {
        const { y, h } = c.overview, span = c.width - c.left - c.right, whole = c.t.step;
        pen.fillStyle = ink.faint;
        pen.fillRect(c.left, y, span, h);
        pen.fillStyle = ink.line;
        let micro = -1;
        for (const i of d.lanes[0]) {
            if (d.items.micro[i] <= micro || d.word(i) !== "exec") continue;
            micro = d.items.micro[i];
            if (micro > 0) pen.fillRect(c.left + c.t.start[i] / whole * span, y, 1, h);
        }
        const a = Math.max(0, c.from / whole), b = Math.min(1, c.to / whole);
        pen.fillStyle = ink.soft;
        pen.fillRect(c.left + a * span, y, Math.max(3, (b - a) * span), h);
        text("step", c.left - 8, y + h, "right", ink.soft);
    }
    // Items of a lane narrower than a pixel are drawn once a pixel and colour.
    function drawLane(lane) {
        text(d.streams[lane.stream], c.left - 8, lane.y + lane.h / 2 + 4, "right", ink.soft);
        pen.fillStyle = ink.faint;
        pen.fillRect(c.left, lane.y, c.width - c.left - c.right, lane.h);
        const items = d.lanes[lane.stream];
        let drawn = -1, colour = "";
        for (let k = firstIn(items, c.from); k < items.length; k++) {
            const i = items[k], start = c.t.start[i];
            if (start > c.to) break;
            const a = Math.max(c.left, c.x(start)), b = Math.min(c.width - c.right, c.x(start + c.t.takes[i]));
            if (b <= c.left || c.t.takes[i] === 0) continue;
            const its = colourOf(i);
            if (b <= drawn && its === colour) continue;
            colour = its;
            drawn = Math.max(b, Math.floor(a) + 1);
            const w = b - a;
            pen.fillStyle = its;
            pen.fillRect(a, lane.y, w > 3 ? w - .6 : Math.max(w, .7), lane.h);
            if (w > 46) label(i, a, w, lane);
        }
    }
    function label(i, a, w, lane) {
        const word = d.word(i);
        let name = word === "wait" ? "wait" : word === "exec" ? nameOf(d, i) : nameOf(d, i).replace(/^\w+ /, "");
        const most = Math.floor((w - 10) / 6.1);
        if (name.length > most) name = name.slice(0, Math.max(1, most - 1)) + "\u2026";
        if (most < 4) return;
        pen.save();
        pen.beginPath();
        pen.rect(a, lane.y, w - 4, lane.h);
        pen.clip();
        text(name, a + 5, lane.y + lane.h / 2 + 4, "left", word === "wait" ? ink["wait-ink"] : ink.bg);
        pen.restore();
    }
    // The first of items in order of time that may reach into view.
    function firstIn(items, ticks) {
        let a = 0, b = items.length;
        while (a < b) {
            const mid = (a + b) >> 1;
            if (c.t.start[items[mid]] + c.t.takes[items[mid]] < ticks) a = mid + 1;
            else b = mid;
        }
        return a;
    }
    function pointAt(ticks) { // of memory: the last one at or before
        const at = c.t.memory.at;
        let a = 0, b = at.length;
        while (a < b) {
            const mid = (a + b) >> 1;
            if (at[mid] <= ticks) a = mid + 1;
            else b = mid;
        }
        return a - 1;
    }
    c.memoryAt = function (ticks) {
        const k = pointAt(ticks), m = c.t.memory;
        const parts = uses.map((use) => k < 0 ? 0 : m[use][k] * d.grain);
        return { held: c.t.held, parts, all: parts.reduce((a, b) => a + b, c.t.held) };
    };
    function drawMemory() {
        const { y, h } = c.memory, m = c.t.memory, peak = Math.max(d.peak, c.t.most);
        const budgetFits = d.budget !== null && d.budget <= peak * 1.6;
        const top = (budgetFits ? Math.max(d.budget, peak) : peak) * 1.08;
        const up = (bytes) => y + h - bytes / top * h;
        const right = c.width - c.right;
        drawBytes(top, up);
        pen.save();
        pen.beginPath();
        pen.rect(c.left, y, right - c.left, h);
        pen.clip();
        pen.fillStyle = ink.held;
        pen.fillRect(c.left, up(c.t.held), right - c.left, y + h - up(c.t.held));
        // Each pixel shows the highest total that it holds.
        const stacks = [];
        let k = Math.max(0, pointAt(c.from));
        for (let x = c.left; x < right; x++) {
            const until = c.ticksAt(x + 1);
            let best = k, most = -1;
            for (let j = k; j < m.at.length && (j === k || m.at[j] < until); j++) {
                const all = m.gathered[j] + m.activations[j] + m.gradients[j] + m.scratch[j];
                if (all > most) { most = all; best = j; }
                k = j;
            }
            stacks.push(m.at.length && m.at[best] < until ? best : -1);
        }
        const below = new Float64Array(stacks.length).fill(c.t.held);
        for (const use of ["activations", "gradients", "scratch", "gathered"]) {
            pen.fillStyle = ink[c.useColour[use]];
            stacks.forEach((j, n) => {
                const bytes = j < 0 ? 0 : m[use][j] * d.grain;
                if (bytes > 0) pen.fillRect(c.left + n, up(below[n] + bytes), 1, up(below[n]) - up(below[n] + bytes));
                below[n] += bytes;
            });
        }
        pen.restore();
        line(up(d.peak), ink.soft, [2, 3], "reserved " + bytesText(d.peak), up(d.peak) - 4 < y + 8 || budgetFits && Math.abs(up(d.peak) - up(d.budget)) < 30);
        if (budgetFits) line(up(d.budget), ink.budget, [6, 4], "budget " + bytesText(d.budget));
        text("memory in use", c.left, y - 6, "left", ink.soft);
        c.budgetShown = budgetFits;
    }
    function drawBytes(top, up) {
        const power = 1024 ** Math.floor(Math.log(top) / Math.log(1024)), every = step(top / power, 4) * power;
        for (let b = 0; b <= top; b += every) {
            pen.fillStyle = ink.line;
            pen.fillRect(c.left, Math.round(up(b)) - .5, c.width - c.left - c.right, 1);
            text(bytesText(b), c.left - 8, up(b) + 4, "right", ink.soft);
        }
    }
    function line(y, colour, dash, words, below) {
        pen.strokeStyle = colour;
        pen.setLineDash(dash);
        pen.beginPath();
        pen.moveTo(c.left, Math.round(y) + .5);
        pen.lineTo(c.width - c.right, Math.round(y) + .5);
        pen.stroke();
        pen.setLineDash([]);
        const w = pen.measureText(words).width + 8, x = c.width - c.right;
        const at = below ? y + 13 : y - 4;
        pen.globalAlpha = .8;
        pen.fillStyle = ink.bg;
        pen.fillRect(x - w, at - 11, w, 14);
        pen.globalAlpha = 1;
        text(words, x - 4, at, "right", colour);
    }
    function drawStrip() {
        if (!c.rows.length) return;
        const { y, h } = c.strip, each = h / c.rows.length, x = d.gathers;
        text("units on the device", c.left, y - 6, "left", ink.soft);
        pen.fillStyle = ink.faint;
        pen.fillRect(c.left, y, c.width - c.left - c.right, h);
        pen.save();
        pen.beginPath();
        pen.rect(c.left, y, c.width - c.left - c.right, h);
        pen.clip();
        for (let g = 0; g < x.unit.length; g++) {
            const [a, ready, b] = stay(g);
            if (b < c.from || a > c.to) continue;
            const top = y + c.rowOf.get(x.unit[g]) * each, tall = Math.max(1, each > 3 ? each - .8 : each);
            pen.globalAlpha = .45;
            pen.fillStyle = ink.gather;
            pen.fillRect(c.x(a), top, Math.max(.7, c.x(ready) - c.x(a)), tall);
            pen.globalAlpha = 1;
            pen.fillRect(c.x(ready), top, Math.max(.7, c.x(b) - c.x(ready)), tall);
        }
        pen.restore();
        drawBlocks(each);
    }
    function drawBlocks(each) { // a hairline and a name where a block's units begin
        let was = -2, named = -20;
        c.rows.forEach((u, k) => {
            const b = d.unit_block[u], y = c.strip.y + k * each;
            if (b === was && b >= 0) return;
            was = b;
            if (b < 0) return;
            pen.fillStyle = ink.line;
            pen.fillRect(c.left - 6, y, 6, 1);
            if (y - named < 13) return;
            named = y;
            const name = d.blocks[b].split(".").slice(-2).join(".");
            text(name.length > 10 ? name.slice(-10) : name, c.left - 8, y + 10, "right", ink.soft);
        });
    }
    function stay(g) { // ticks: issued, whole, gone
        const item = d.gathers.item[g], ready = c.t.start[item] + c.t.takes[item];
        return [c.t.start[item], ready, c.t.gone[g] < 0 ? c.t.step : Math.max(ready, c.t.gone[g])];
    }
    function drawMark() { // the item chosen, and where the pointer is
        if (c.mark >= 0) {
            const lane = c.lanes.find((l) => l.stream === d.items.stream[c.mark]);
            const a = c.x(c.t.start[c.mark]), b = c.x(c.t.start[c.mark] + c.t.takes[c.mark]);
            pen.strokeStyle = ink.ink;
            pen.lineWidth = 1.5;
            pen.strokeRect(a, lane.y - 1, Math.max(2, b - a), lane.h + 2);
            pen.lineWidth = 1;
        }
        if (c.cursor === null || c.cursor < c.left) return;
        pen.globalAlpha = .5;
        pen.fillStyle = ink.ink;
        pen.fillRect(Math.round(c.cursor), c.axis.y + 14, 1, c.strip.y + c.strip.h - c.axis.y - 14);
        pen.globalAlpha = 1;
    }
    c.draw = function () {
        const ratio = devicePixelRatio || 1;
        layout();
        canvas.style.height = c.height + "px";
        if (canvas.width !== Math.round(c.width * ratio) || canvas.height !== Math.round(c.height * ratio)) {
            canvas.width = Math.round(c.width * ratio);
            canvas.height = Math.round(c.height * ratio);
        }
        pen.setTransform(ratio, 0, 0, ratio, 0, 0);
        pen.clearRect(0, 0, c.width, c.height);
        pen.font = "11px system-ui, \"DejaVu Sans\", sans-serif";
        drawOverview();
        drawAxis();
        c.lanes.forEach(drawLane);
        drawMemory();
        drawStrip();
        drawMark();
    };

    // ---- what lies at a place --------------------------------------------------------------------
    c.hit = function (x, y) {
        const ticks = c.ticksAt(x), near = 2 / (c.width - c.left) * (c.to - c.from);
        for (const lane of c.lanes) {
            if (y < lane.y - 2 || y > lane.y + lane.h + 2) continue;
            const items = d.lanes[lane.stream];
            for (let k = firstIn(items, ticks - near); k < items.length && c.t.start[items[k]] <= ticks + near; k++)
                if (c.t.takes[items[k]] > 0) return { item: items[k] };
        }
        if (y >= c.strip.y && y < c.strip.y + c.strip.h && c.rows.length) {
            const unit = c.rows[Math.min(c.rows.length - 1, Math.floor((y - c.strip.y) / c.strip.h * c.rows.length))];
            for (let g = 0; g < d.gathers.unit.length; g++) {
                const [a, , b] = stay(g);
                if (d.gathers.unit[g] === unit && a <= ticks && b >= ticks) return { unit, gather: g, stay: stay(g) };
            }
            return { unit };
        }
        return {};
    };
    rows();
    c.colours();
    return c;
}
