// runs.js - the curves of runs over their steps, a picture for each figure, and what came of each run.
// SPDX-License-Identifier: Apache-2.0
(function () {
    const root = document.documentElement, runs = JSON.parse(document.getElementById("data").textContent);
    const colours = ["--compute", "--gather", "--reduce", "--copy", "--update"], dashes = ["none", "8 4", "2 3"];
    const look = (k) => ({ stroke: "var(" + colours[k % colours.length] + ")", "stroke-dasharray": dashes[Math.floor(k / colours.length) % dashes.length] });
    const last = (column) => { for (let i = column.length - 1; i >= 0; i--) if (column[i] !== null) return column[i]; return null; };
    const least = (column) => column.reduce((a, x) => x !== null && (a === null || x < a) ? x : a, null);
    const median = (column) => { const s = column.filter((x) => x !== null).sort((a, b) => a - b); return s.length ? s[s.length >> 1] : null; };
    const text = (x) => x === null || x === undefined ? "\u2013" : x !== 0 && (Math.abs(x) < .01 || Math.abs(x) >= 1e5) ? x.toExponential(2) : String(Number(x.toPrecision(4)));

    function make(name, attributes, words) {
        const e = document.createElementNS("http://www.w3.org/2000/svg", name);
        for (const key in attributes) e.setAttribute(key, attributes[key]);
        if (words !== undefined) e.textContent = words;
        return e;
    }
    function round(span, most) { // a round distance between marks
        const raw = span / most, power = 10 ** Math.floor(Math.log10(raw));
        return power * (raw / power <= 1 ? 1 : raw / power <= 2 ? 2 : raw / power <= 5 ? 5 : 10);
    }
    function pieces(xs, ys) { // without what isn't there; what isn't finite is a gap
        const out = [[]];
        xs.forEach((x, i) => {
            if (ys[i] === null) { if (out[out.length - 1].length) out.push([]); } else out[out.length - 1].push([x, ys[i]]);
        });
        return out.filter((p) => p.length);
    }

    // lines: {run, step, value, dots}
    function draw(title, lines, log) {
        const w = 980, h = 260, left = 74, right = 16, top = 14, bottom = 36;
        const of = log ? Math.log10 : (x) => x, fits = (v) => v !== null && (!log || v > 0);
        lines = lines.map((l) => ({ ...l, value: l.value.map((v) => fits(v) ? v : null) })).filter((l) => l.value.some((v) => v !== null));
        if (!lines.length) return null;
        const section = document.createElement("section"), h2 = document.createElement("h2");
        h2.textContent = title;
        const steps = lines.flatMap((l) => [l.step[0], l.step[l.step.length - 1]]), values = lines.map((l) => l.value.filter((v) => v !== null).map(of));
        const from = Math.min(...steps), to = Math.max(...steps, from + 1);
        let low = Math.min(...values.map((v) => v.reduce((a, b) => Math.min(a, b)))), high = Math.max(...values.map((v) => v.reduce((a, b) => Math.max(a, b))));
        if (high - low < 1e-12 * Math.max(1, Math.abs(high))) { const pad = Math.abs(high) * .1 || 1; low -= pad; high += pad; }
        const pad = (high - low) * .05;
        low -= pad;
        high += pad;
        const x = (s) => left + (s - from) / (to - from) * (w - left - right), y = (v) => h - bottom - (of(v) - low) / (high - low) * (h - top - bottom);
        const svg = make("svg", { viewBox: "0 0 " + w + " " + h, role: "img", "aria-label": title + ", " + lines.length + " curves; the table above says what came of each run." });
        const every = round(high - low, 5), each = round(to - from, 8);
        for (let v = Math.ceil(low / every) * every; v <= high; v += every) {
            const at = h - bottom - (v - low) / (high - low) * (h - top - bottom);
            svg.append(make("line", { x1: left, x2: w - right, y1: at, y2: at, stroke: "var(--line)" }),
                make("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, text(log ? 10 ** v : Math.abs(v) < every * 1e-6 ? 0 : v)));
        }
        for (let s = Math.ceil(from / each) * each; s <= to; s += each)
            svg.append(make("text", { x: x(s), y: h - bottom + 18, "text-anchor": "middle" }, String(s)));
        svg.append(make("text", { x: (left + w - right) / 2, y: h - 2, "text-anchor": "middle" }, "step"));
        for (const l of lines)
            for (const p of pieces(l.step, l.value)) {
                const its = look(l.run), points = p.map(([s, v]) => x(s).toFixed(1) + "," + y(v).toFixed(1)).join(" ");
                svg.append(make("polyline", { points, fill: "none", "stroke-width": l.dots ? 1 : 1.5, ...its }));
                if (l.dots || p.length === 1) for (const [s, v] of p) svg.append(make("circle", { cx: x(s), cy: y(v), r: 3, fill: its.stroke }));
            }
        svg.append(make("line", { class: "cursor", y1: top, y2: h - bottom, stroke: "var(--soft)", visibility: "hidden" }));
        const words = document.createElement("p");
        words.className = "note";
        words.textContent = "\u00a0";
        svg.addEventListener("pointermove", (e) => {
            const box = svg.getBoundingClientRect(), s = from + ((e.clientX - box.left) / box.width * w - left) / (w - left - right) * (to - from);
            const cursor = svg.querySelector(".cursor");
            if (s < from || s > to) return;
            cursor.setAttribute("x1", x(s));
            cursor.setAttribute("x2", x(s));
            cursor.setAttribute("visibility", "visible");
            words.textContent = "step " + Math.round(s) + ": " + lines.map((l) => {
                let best = -1;
                l.step.forEach((at, i) => { if (l.value[i] !== null && (best < 0 || Math.abs(at - s) < Math.abs(l.step[best] - s))) best = i; });
                return runs[l.run].name + (l.word ? " " + l.word : "") + " " + text(l.value[best]);
            }).join(" \u00b7 ");
        });
        svg.addEventListener("pointerleave", () => { svg.querySelector(".cursor").setAttribute("visibility", "hidden"); words.textContent = "\u00a0"; });
        section.append(h2, svg, words);
        return section;
    }

    function table() {
        const t = document.createElement("table"), head = t.createTHead().insertRow();
        for (const words of ["run", "steps", "loss, first", "last", "least", "evaluation, last", "least", "rate, median"]) {
            const th = document.createElement("th");
            th.textContent = words;
            head.append(th);
        }
        const body = t.createTBody();
        runs.forEach((r, k) => {
            const row = body.insertRow(), th = document.createElement("th"), key = make("svg", { width: 30, height: 10, "aria-hidden": "true" });
            key.append(make("line", { x1: 0, x2: 26, y1: 5, y2: 5, "stroke-width": 2, ...look(k) }));
            th.append(key, r.name);
            row.append(th);
            const rate = median(r.rate);
            for (const words of [String(r.steps), text(r.loss[0]), text(last(r.loss)), text(least(r.loss)), text(last(r.eval_loss)), text(least(r.eval_loss)),
                rate === null ? "\u2013" : text(rate) + " " + r.unit]) row.insertCell().textContent = words;
        });
        return t;
    }

    let log = false;
    function curves() {
        const line = (key) => runs.map((r, run) => ({ run, step: r.step, value: r[key] }));
        const evaluated = runs.map((r, run) => ({ run, step: r.step.filter((s, i) => r.eval_loss[i] !== null), value: r.eval_loss.filter((v) => v !== null), dots: true, word: "evaluation" }));
        const clipped = runs.map((r) => ({ ...r, after: r.grad_norm.map((g, i) => g === null || r.clip_factor[i] === null ? null : g * r.clip_factor[i]) }));
        const some = clipped.some((r) => r.clip_factor.some((f) => f !== null && f < 1));
        const all = [draw("Loss", line("loss").concat(evaluated.filter((l) => l.value.length)), log),
            draw("Loss of evaluations", evaluated.filter((l) => l.value.length), log),
            draw("Gradient norm" + (some ? ", before clipping" : ""), line("grad_norm"), log),
            draw("Learning rate", line("lr"), false),
            draw("Rate, " + [...new Set(runs.map((r) => r.unit))].join(" or "), line("rate"), false)];
        document.getElementById("curves").replaceChildren(...all.filter((s) => s !== null));
    }

    const thinned = runs.filter((r) => r.every > 1).map((r) => "of " + r.name + " every " + r.every + " steps is shown");
    const scale = document.createElement("button");
    scale.type = "button";
    scale.id = "log";
    scale.textContent = "logarithmic loss";
    scale.setAttribute("aria-pressed", "false");
    scale.onclick = () => { log = !log; scale.setAttribute("aria-pressed", String(log)); curves(); };
    document.querySelector("#runs .scroll").append(table(), scale);
    document.getElementById("about").textContent = ["from what each run's log.jsonl says", ...thinned].join("; ");
    document.getElementById("theme").onclick = () => {
        const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
        root.dataset.theme = dark ? "light" : "dark";
    };
    curves();
    root.dataset.painted = Math.round(performance.now());
    root.dataset.items = runs.reduce((n, r) => n + r.step.length, 0);
})();
