// view.js - moving about in the chart, what the pointer is on, and the same in words and as a table.
// SPDX-License-Identifier: Apache-2.0
function makeView(d, c, canvas) {
    const tip = document.getElementById("tip"), frame = document.getElementById("frame");
    let waiting = false;
    function redraw() {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(() => { waiting = false; c.draw(); });
    }
    function show(from, to) {
        const least = Math.max(8, c.t.step / 1e6), span = Math.min(Math.max(to - from, least), c.t.step * 1.04);
        from = Math.min(Math.max(from, -c.t.step * .02), c.t.step * 1.02 - span);
        c.from = from;
        c.to = from + span;
        canvas.dataset.from = Math.round(c.from);
        canvas.dataset.to = Math.round(c.to);
        redraw();
        if (document.getElementById("rows").open) fillRows();
    }
    function zoom(by, around) {
        show(around - (around - c.from) * by, around + (c.to - around) * by);
    }
    const views = {
        micro: () => show(c.t.window[0], c.t.window[1]),
        step: () => show(0, c.t.step),
        in: () => zoom(.6, (c.from + c.to) / 2),
        out: () => zoom(1 / .6, (c.from + c.to) / 2),
        left: () => show(c.from - (c.to - c.from) * .25, c.to - (c.to - c.from) * .25),
        right: () => show(c.from + (c.to - c.from) * .25, c.to + (c.to - c.from) * .25),
    };
    document.querySelectorAll("[data-view]").forEach((b) => { b.onclick = () => views[b.dataset.view](); });

    // ---- the pointer ---------------------------------------------------------------------------
    const place = (e) => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
    canvas.addEventListener("wheel", (e) => {
        const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey;
        if (!sideways && e.deltaY > 0 && c.to - c.from >= c.t.step) return; // all is in view: the page scrolls
        e.preventDefault();
        const scale = e.deltaMode === 1 ? 16 : 1;
        if (sideways) {
            const by = (e.deltaX || e.deltaY) * scale / c.width * (c.to - c.from);
            show(c.from + by, c.to + by);
        } else zoom(Math.exp(e.deltaY * scale * .002), c.ticksAt(place(e)[0]));
        hide();
    }, { passive: false });
    let drag = null;
    canvas.addEventListener("pointerdown", (e) => {
        drag = { x: place(e)[0], from: c.from, to: c.to };
        canvas.setPointerCapture(e.pointerId);
    });
    canvas.addEventListener("pointerup", () => { drag = null; });
    canvas.addEventListener("pointercancel", () => { drag = null; });
    canvas.addEventListener("pointermove", (e) => {
        const [x, y] = place(e);
        if (drag) {
            const by = (drag.x - x) / (c.width - c.left - c.right) * (drag.to - drag.from);
            show(drag.from + by, drag.to + by);
            hide();
            return;
        }
        c.cursor = x;
        c.mark = -1;
        const lines = linesAt(x, y);
        if (lines) say(lines, x, y);
        else hide();
        redraw();
    });
    canvas.addEventListener("pointerleave", () => { c.cursor = null; hide(); redraw(); });
    canvas.addEventListener("dblclick", () => views.micro());

    function linesAt(x, y) {
        if (x < c.left || x > c.width - c.right) return null;
        const hit = c.hit(x, y);
        if (hit.item !== undefined) {
            c.mark = hit.item;
            return linesOf(d, c.t, hit.item);
        }
        if (hit.unit !== undefined) return unitLines(hit);
        return y >= c.memory.y && y <= c.memory.y + c.memory.h ? memoryLines(c.ticksAt(x)) : null;
    }
    function unitLines(hit) {
        const b = d.unit_block[hit.unit], lines = [d.units[hit.unit], bytesText(d.unit_bytes[hit.unit]) + " whole" + (b < 0 ? "" : ", in " + d.blocks[b])];
        if (!hit.stay) return lines.concat("not on the device whole");
        const [issued, ready, gone] = hit.stay.map((x) => secondsText(x * d.tick)), item = d.gathers.item[hit.gather];
        lines.push("gathered from " + issued + ", whole at " + ready + ", given up at " + gone);
        const pass = d.passes[d.items.by[item]];
        return lines.concat(gatherLines(d, c.t, hit.gather), "placed by " + pass[0] + ": " + pass[1]);
    }
    function memoryLines(ticks) {
        const m = c.memoryAt(ticks), lines = [bytesText(m.all) + " in use at " + secondsText(ticks * d.tick)];
        lines.push("held across steps: " + bytesText(m.held));
        uses.forEach((use, k) => lines.push(use + ": " + bytesText(m.parts[k])));
        lines.push("reserved: " + bytesText(d.peak) + (d.budget === null ? ", no budget" : " of " + bytesText(d.budget)));
        return lines;
    }
    function say(lines, x, y) {
        tip.replaceChildren(...lines.map((line, k) => {
            const e = document.createElement(k ? "span" : "b");
            e.textContent = line;
            return e;
        }));
        tip.hidden = false;
        const w = tip.offsetWidth, h = tip.offsetHeight;
        tip.style.left = Math.max(0, x + 16 + w > c.width ? x - w - 16 : x + 16) + "px";
        tip.style.top = Math.max(-20, Math.min(y + 14, frame.clientHeight - h)) + "px";
    }
    function hide() { tip.hidden = true; }

    // ---- the keyboard --------------------------------------------------------------------------
    function walk(by) {
        const items = d.lanes[0], middle = (c.from + c.to) / 2;
        let k = items.indexOf(c.mark);
        if (k < 0) k = items.findIndex((i) => c.t.start[i] + c.t.takes[i] > middle) - by;
        do k += by; while (k >= 0 && k < items.length && c.t.takes[items[k]] === 0);
        if (k < 0 || k >= items.length) return;
        c.mark = items[k];
        const at = c.t.start[c.mark], half = (c.to - c.from) / 2;
        if (at < c.from || at > c.to) show(at - half, at + half);
        say(linesOf(d, c.t, c.mark), Math.max(c.left, c.x(at)), c.lanes[0].y + c.lanes[0].h);
        redraw();
    }
    const keys = {
        ArrowLeft: views.left, ArrowRight: views.right, "+": views.in, "=": views.in, ArrowUp: views.in,
        "-": views.out, ArrowDown: views.out, 0: views.micro, Home: views.micro, f: views.step,
        ",": () => walk(-1), ".": () => walk(1), Escape: () => { c.mark = -1; hide(); redraw(); },
    };
    canvas.addEventListener("keydown", (e) => {
        if (e.ctrlKey || e.metaKey || e.altKey || !keys[e.key]) return;
        e.preventDefault();
        keys[e.key]();
    });

    // ---- the same as a table -------------------------------------------------------------------
    function fillRows() {
        const box = document.querySelector("#rows .scroll"), most = 300, inView = [];
        for (let i = 0; i < d.items.n; i++)
            if (c.t.takes[i] > 0 && c.t.start[i] < c.to && c.t.start[i] + c.t.takes[i] > c.from) inView.push(i);
        inView.sort((a, b) => c.t.start[a] - c.t.start[b] || a - b);
        const table = document.createElement("table"), head = table.createTHead().insertRow();
        for (const word of ["begins", "takes", "stream", "what", "and"]) {
            const th = document.createElement("th");
            th.textContent = word;
            head.append(th);
        }
        const body = table.createTBody();
        for (const i of inView.slice(0, most)) {
            const row = body.insertRow(), lines = linesOf(d, c.t, i);
            const cells = [secondsText(c.t.start[i] * d.tick), secondsText(c.t.takes[i] * d.tick), d.streams[d.items.stream[i]],
                lines[0], lines.slice(1).filter((x) => !x.startsWith("at ")).join("; ")];
            cells.forEach((s, k) => { const cell = row.insertCell(); cell.textContent = s; if (k > 1) cell.className = "left"; });
        }
        const note = document.createElement("p");
        note.className = "note";
        note.textContent = inView.length > most ? "The first " + most + " of " + inView.length + ": zoom in for the others." : inView.length + " in view.";
        box.replaceChildren(table, note);
    }
    document.getElementById("rows").addEventListener("toggle", (e) => { if (e.target.open) fillRows(); });

    new ResizeObserver(redraw).observe(frame);
    return { show, views, redraw };
}
