// curve.js - time against memory: a line a policy, or a point each, and where this plan is.
// SPDX-License-Identifier: Apache-2.0
function drawCurve(d, box) {
    const points = d.points.length ? d.points : d.peaks.filter((p) => p.seconds > 0);
    if (points.length < 2) {
        const p = document.createElement("p"), code = document.createElement("code");
        p.className = "note";
        code.textContent = "zerox compare MODEL --sweep budget=A,B,... --report FILE.html";
        p.append("One plan alone is no curve. ", code, " draws the time of every policy against its budget.");
        box.replaceChildren(p);
        return;
    }
    const here = { bytes: d.points.length && d.budget !== null ? Math.min(d.budget, Math.max(...points.map((p) => p.bytes))) : d.peak, seconds: d.seconds };
    const all = points.concat(here), w = 900, h = 300, left = 74, right = 150, top = 16, bottom = 44;
    const least = Math.min(...all.map((p) => p.seconds), d.bound > 0 ? d.bound : Infinity), most = Math.max(...all.map((p) => p.seconds));
    const low = least < most * .5 ? 0 : least - (most - least) * .15 - least * .005, high = most + (most - low) * .08;
    const least_b = Math.min(...all.map((p) => p.bytes)), most_b = Math.max(...all.map((p) => p.bytes));
    const pad = (most_b - least_b) * .05 || most_b * .05, from = Math.max(0, least_b - pad), to = most_b + pad;
    const x = (bytes) => left + (bytes - from) / (to - from) * (w - left - right);
    const y = (seconds) => h - bottom - (seconds - low) / (high - low) * (h - top - bottom);
    const svg = make("svg", { viewBox: "0 0 " + w + " " + h, role: "img", "aria-label": "Step time against memory, " + points.length + " points; the table below has the policies." });
    const put = (name, attributes, words) => { const e = make(name, attributes); if (words !== undefined) e.textContent = words; svg.append(e); return e; };

    for (let k = 0; k <= 4; k++) {
        const s = low + (high - low) * k / 4, b = from + (to - from) * k / 4;
        put("line", { x1: left, x2: w - right, y1: y(s), y2: y(s), stroke: "var(--line)" });
        put("text", { x: left - 8, y: y(s) + 4, "text-anchor": "end" }, secondsText(s));
        put("text", { x: x(b), y: h - bottom + 18, "text-anchor": "middle" }, bytesText(b));
    }
    put("text", { x: (left + w - right) / 2, y: h - 6, "text-anchor": "middle" }, d.points.length ? "budget of a rank" : "peak memory of a rank");
    if (d.bound > low) {
        put("line", { x1: left, x2: w - right, y1: y(d.bound), y2: y(d.bound), stroke: "var(--soft)", "stroke-dasharray": "2 3" });
        put("text", { x: w - right + 8, y: y(d.bound) + 4 }, "bound");
    }
    const colours = ["--compute", "--gather", "--reduce", "--copy", "--update", "--backward", "--scratch"];
    const names = [...new Set(points.map((p) => p.policy))], ends = [];
    names.forEach((name, k) => {
        const its = points.filter((p) => p.policy === name).sort((a, b) => a.bytes - b.bytes), colour = "var(" + colours[k % colours.length] + ")";
        if (its.length > 1)
            put("polyline", { points: its.map((p) => x(p.bytes) + "," + y(p.seconds)).join(" "), fill: "none", stroke: colour, "stroke-width": 2 });
        for (const p of its) {
            const dot = put("circle", { cx: x(p.bytes), cy: y(p.seconds), r: its.length > 1 ? 2.5 : 4.5, fill: colour });
            dot.append(make("title", {}, name + ": " + secondsText(p.seconds) + " at " + bytesText(p.bytes)));
        }
        const end = its[its.length - 1];
        ends.push({ name, x: its.length > 1 ? w - right + 8 : x(end.bytes) + 9, y: y(end.seconds) + 4 });
    });
    // Names that would cover each other move down.
    ends.sort((a, b) => a.y - b.y || a.x - b.x);
    const placed = [];
    for (const e of ends) {
        while (placed.some((p) => Math.abs(p.y - e.y) < 13 && Math.abs(p.x - e.x) < 7 * Math.max(p.name.length, e.name.length))) e.y += 2;
        placed.push(e);
        put("text", { x: e.x, y: e.y, class: "name" }, e.name);
    }
    put("circle", { cx: x(here.bytes), cy: y(here.seconds), r: 8, fill: "none", stroke: "var(--here)", "stroke-width": 2 });
    const edge = x(here.bytes) < left + 45 ? "start" : x(here.bytes) > w - right - 45 ? "end" : "middle";
    put("text", { x: x(here.bytes), y: Math.max(12, y(here.seconds) - 14), "text-anchor": edge, style: "fill:var(--here);font-weight:600" }, "you are here");
    box.replaceChildren(svg);
    if (d.points.length) box.append(pointTable(points));
}
function make(name, attributes, words) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) e.setAttribute(key, attributes[key]);
    if (words !== undefined) e.textContent = words;
    return e;
}
function pointTable(points) {
    const details = document.createElement("details"), summary = document.createElement("summary"), table = document.createElement("table");
    summary.textContent = "The curve as a table";
    for (const p of points) {
        const row = table.insertRow(), th = document.createElement("th");
        th.textContent = p.policy;
        row.append(th);
        row.insertCell().textContent = bytesText(p.bytes);
        row.insertCell().textContent = secondsText(p.seconds);
    }
    details.append(summary, table);
    return details;
}
