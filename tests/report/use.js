// use.js - uses a report as a reader does; what went wrong first is left in data-used of the root.
// SPDX-License-Identifier: Apache-2.0
"use strict";
(function () {
    const root = document.documentElement, canvas = document.getElementById("chart"), tip = document.getElementById("tip");
    const box = canvas.getBoundingClientRect(), wrong = [];
    const view = () => [Number(canvas.dataset.from), Number(canvas.dataset.to)];
    const must = (ok, what) => { if (!ok) wrong.push(what); };
    const key = (k) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: k, bubbles: true, cancelable: true }));
    const at = (x, y) => ({ clientX: box.left + x, clientY: box.top + y, bubbles: true, cancelable: true, pointerId: 1 });
    const move = (x, y) => canvas.dispatchEvent(new PointerEvent("pointermove", at(x, y)));
    root.dataset.used = "it stopped";

    const home = view();
    must(home[1] > home[0], "no window at first");
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -200, ...at(400, 50) }));
    must(view()[0] > home[0] && view()[1] < home[1], "the wheel doesn't zoom in");
    const near = view();
    key("ArrowRight");
    must(view()[0] > near[0] && Math.abs(view()[1] - view()[0] - near[1] + near[0]) < 3, "the arrow doesn't move");
    key("f");
    must(view()[0] <= 0 && view()[1] > home[1], "f doesn't show the whole step");
    key("0");
    must(view().join() === home.join(), "0 doesn't go back");
    document.querySelector("[data-view=in]").click();
    must(view()[0] > home[0], "the button doesn't zoom in");
    key("0");
    canvas.setPointerCapture = () => {}; // a made up pointer can't be captured
    canvas.dispatchEvent(new PointerEvent("pointerdown", at(600, 50)));
    move(400, 50);
    canvas.dispatchEvent(new PointerEvent("pointerup", at(400, 50)));
    must(view()[0] > home[0], "a drag doesn't move");
    key("0");

    const words = () => tip.hidden ? "" : tip.innerText;
    move(300, 52);
    must(/placed by \w+/.test(words()) && / for /.test(words()), "no words for a kernel: " + words());
    const memory = box.height * .5;
    move(300, memory);
    must(/in use at|whole/.test(words()), "no words for memory: " + words());
    move(300, box.height - 8);
    must(/whole/.test(words()), "no words for a unit: " + words());
    key(".");
    must(words() !== "", "no words for the next kernel");
    key("Escape");
    must(words() === "", "Escape doesn't hide them");

    const ink = () => getComputedStyle(document.body).backgroundColor, was = ink();
    document.getElementById("theme").click();
    must(ink() !== was, "light and dark are the same");
    document.getElementById("theme").click();
    must(ink() === was, "there is no way back from dark");

    const which = document.querySelectorAll("#which button");
    if (which.length) {
        const said = document.getElementById("chart-words").textContent;
        which[1].click();
        must(document.getElementById("chart-words").textContent !== said, "the other timeline is the same");
    }
    document.getElementById("rows").open = true;
    document.getElementById("rows").dispatchEvent(new Event("toggle"));
    must(document.querySelectorAll("#rows tbody tr").length > 3, "no table");
    root.dataset.used = wrong.length ? wrong.join("; ") : "fine";
})();
