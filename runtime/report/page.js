// page.js - puts the page together once it is there.
// SPDX-License-Identifier: Apache-2.0
(function () {
    const root = document.documentElement, canvas = document.getElementById("chart");
    const d = readData(), c = makeChart(d, canvas), view = makeView(d, c, canvas);

    document.getElementById("theme").onclick = () => {
        const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
        root.dataset.theme = dark ? "light" : "dark";
        c.colours();
        view.redraw();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { c.colours(); view.redraw(); });

    // Which timeline, where there are two.
    const which = document.getElementById("which");
    if (d.times.length > 1) {
        which.hidden = false;
        d.times.forEach((t) => {
            const b = document.createElement("button");
            b.type = "button";
            b.textContent = t.word;
            b.setAttribute("aria-pressed", t === c.t);
            b.onclick = () => {
                which.querySelectorAll("button").forEach((o) => o.setAttribute("aria-pressed", o === b));
                c.t = t;
                c.mark = -1;
                words();
                view.views.micro();
            };
            which.append(b);
        });
    }

    function legend() {
        const rows = [["compute", "forward"], ["backward", "backward"], ["update", "feed, norm, update"], ["wait", "waiting"],
            ["gather", "gather; gathered units"], ["reduce", "reduce; gradients"], ["compute", "activations"],
            ["scratch", "scratch"], ["held", "held: shards, optimizer states"]];
        if (d.lanes[3].length + d.lanes[4].length) rows.push(["copy", "copies"]);
        rows.splice(6, 1); // activations have the colour of forward
        rows[0][1] = "forward; activations";
        const out = rows.map(([colour, words]) => {
            const s = document.createElement("span"), i = document.createElement("i");
            i.style.background = "var(--" + colour + ")";
            s.append(i, words);
            return s;
        });
        if (d.budget !== null && d.budget <= Math.max(d.peak, c.t.most) * 1.6) {
            const s = document.createElement("span"), i = document.createElement("i");
            i.className = "dash";
            s.append(i, "budget");
            out.push(s);
        }
        document.getElementById("legend").replaceChildren(...out);
    }
    function words() {
        const busy = (stream) => d.lanes[stream].reduce((sum, i) => sum + (d.word(i) === "wait" ? 0 : c.t.takes[i]), 0);
        let s = (c.t.word === "measured" ? "Measured on rank 0: " : "SIMULATED: ") + "a step of " + secondsText(c.t.step * d.tick) +
            "; micro-batch " + c.t.steady + " is shown at first. Compute is busy for " + secondsText(busy(0) * d.tick);
        const wire = busy(1) + busy(2);
        if (wire > 0) s += ", collectives for " + secondsText(wire * d.tick);
        s += ". Memory in use is at most " + bytesText(c.t.most) + " of " + bytesText(d.peak) + " reserved";
        if (d.budget === null) s += "; there is no budget.";
        else s += (d.budget > d.peak * 1.6 ? "; the budget of " + bytesText(d.budget) + " is above the picture." : "; the budget is " + bytesText(d.budget) + ".");
        if (d.gathers.unit.length === 0) s += " No unit is gathered: every rank holds whole parameters.";
        document.getElementById("chart-words").textContent = s;
        canvas.setAttribute("aria-label", "Timeline of compute and communication, memory in use and the units on the device");
    }
    legend();
    words();
    drawCurve(d, document.getElementById("curve"));
    view.views.micro();
    c.draw();
    root.dataset.painted = Math.round(performance.now());
    root.dataset.items = d.items.n;
})();
