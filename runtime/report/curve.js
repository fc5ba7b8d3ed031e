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
    const all = points.concat(here), w = 980, h = 300, left = 74, right = 230, top = 30, bottom = 44;
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
    put("text", { x: left - 66, y: 12 }, "seconds of a step, " + d.kind);
    const ends = [];
    if (d.bound > low) {
        put("line", { x1: left, x2: w - right, y1: y(d.bound), y2: y(d.bound), stroke: "var(--soft)", "stroke-dasharray": "1 4" });
        ends.push({ name: "bound", x: w - right, y: y(d.bound), colour: "var(--soft)", dash: "1 4" });
    }
    // Five colours and three kinds of line: fifteen policies look different.
    const colours = ["--compute", "--gather", "--reduce", "--copy", "--update"], dashes = ["none", "8 4", "2 3"];
    const names = [...new Set(points.map((p) => p.policy))];
    names.forEach((name, k) => {
        const its = points.filter((p) => p.policy === name).sort((a, b) => a.bytes - b.bytes);
        const colour = "var(" + colours[k % colours.length] + ")", kind = Math.floor(k / colours.length) % dashes.length;
        if (its.length > 1)
            put("polyline", { points: its.map((p) => x(p.bytes) + "," + y(p.seconds)).join(" "), fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": dashes[kind] });
        for (const p of its) mark(x(p.bytes), y(p.seconds), its.length > 1 ? 3 : 4.5, kind, colour).append(make("title", {}, name + ": " + secondsText(p.seconds) + " at " + bytesText(p.bytes)));
        const end = its[its.length - 1];
        ends.push({ name, x: x(end.bytes), y: y(end.seconds), colour, kind, dash: dashes[kind] });
    });
    function mark(cx, cy, r, kind, colour) {
        if (kind === 2) return put("rect", { x: cx - r, y: cy - r, width: 2 * r, height: 2 * r, fill: colour });
        return put("circle", { cx, cy, r, fill: kind === 1 ? "var(--bg)" : colour, stroke: colour, "stroke-width": 1.5 });
    }
    // Names stand in a column of their own, a line apart, each led to from where its line ends.
    const apart = 15, names_x = w - right + 62;
    ends.sort((a, b) => a.y - b.y || (a.name < b.name ? -1 : 1));
    ends.forEach((e, k) => { e.at = Math.max(e.y, k > 0 ? ends[k - 1].at + apart : top - 12); });
    for (let k = ends.length - 1, most = h - 8; k >= 0; k--, most -= apart) ends[k].at = Math.min(ends[k].at, most);
    for (const e of ends) {
        put("polyline", { points: [[e.x + 5, e.y], [Math.max(e.x + 5, w - right + 6), e.y], [names_x - 32, e.at]].join(" "), fill: "none", stroke: e.colour, "stroke-width": .7, opacity: .6 });
        put("line", { x1: names_x - 30, x2: names_x - 6, y1: e.at, y2: e.at, stroke: e.colour, "stroke-width": 2, "stroke-dasharray": e.dash });
        if (e.kind !== undefined) mark(names_x - 18, e.at, 3, e.kind, e.colour);
        put("text", { x: names_x, y: e.at + 4, class: "name" }, e.name);
    }
    put("circle", { cx: x(here.bytes), cy: y(here.seconds), r: 8, fill: "none", stroke: "var(--here)", "stroke-width": 2 });
    const edge = x(here.bytes) < left + 45 ? "start" : x(here.bytes) > w - right - 45 ? "end" : "middle";
    put("text", { x: x(here.bytes), y: Math.max(24, y(here.seconds) - 14), "text-anchor": edge, style: "fill:var(--here);font-weight:600;stroke:var(--bg);stroke-width:4;paint-order:stroke" }, "you are here, " + d.kind);
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
