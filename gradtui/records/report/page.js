"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("chart-data").textContent);
  const tip = document.createElement("dl");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const stepViews = [];
  let whole = null;

  function showTip(_handler, event, _item, value) {
    tip.hidden = value === null || value === undefined || value === "";
    if (tip.hidden) return;
    tip.replaceChildren();
    for (const [name, words] of Object.entries(value)) {
      const label = document.createElement("dt");
      const text = document.createElement("dd");
      label.textContent = name;
      text.textContent = words;
      tip.append(label, text);
    }
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(event.pageX + 14, window.scrollX + room))}px`;
    tip.style.top = `${event.pageY + 16}px`;
  }

  const first = document.getElementById("first-step");
  const last = document.getElementById("last-step");

  function showSteps(from, to) {
    const [begin, end] = whole;
    from = Math.max(begin, Math.min(Math.round(from), end - 1));
    to = Math.max(from + 1, Math.min(Math.round(to), end));
    first.value = from;
    last.value = to;
    document.getElementById("first-step-shown").textContent = from.toLocaleString("en");
    document.getElementById("last-step-shown").textContent = to.toLocaleString("en");
    for (const view of stepViews) view.signal("first", from).signal("last", to).runAsync();
  }

  function chooseSteps() {
    whole = [stepViews[0].signal("first"), stepViews[0].signal("last")];
    for (const input of [first, last]) [input.min, input.max] = whole;
    // The slider that is moved pushes the other one.
    first.addEventListener("input", () => showSteps(first.valueAsNumber, Math.max(first.valueAsNumber + 1, last.valueAsNumber)));
    last.addEventListener("input", () => showSteps(Math.min(first.valueAsNumber, last.valueAsNumber - 1), last.valueAsNumber));
    document.getElementById("all-steps").addEventListener("click", () => showSteps(...whole));
    document.getElementById("steps").hidden = false;
    showSteps(...whole);
  }

  function followDrag(view, place) {
    let begin = null;
    const mark = document.createElement("div");
    mark.className = "dragged";
    const at = (event) => event.clientX - place.getBoundingClientRect().left;
    const step = (x) => view.scale("x").invert(x - view.origin()[0]);
    place.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse" && event.button === 0) begin = at(event);
    });
    window.addEventListener("pointermove", (event) => {
      if (begin === null) return;
      const [left, right] = [begin, at(event)].sort((one, other) => one - other);
      mark.style.left = `${left}px`;
      mark.style.width = `${right - left}px`;
      place.append(mark);
    });
    window.addEventListener("pointerup", (event) => {
      if (begin === null) return;
      const [left, right] = [begin, at(event)].sort((one, other) => one - other);
      begin = null;
      mark.remove();
      if (right - left > 6) showSteps(step(left), step(right));
    });
    place.addEventListener("dblclick", () => showSteps(...whole));
  }

  // Paper has no folds.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const each of opened) each.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
  });

  const drawn = [];
  for (const place of document.querySelectorAll("[data-chart]")) {
    const chart = charts[place.dataset.chart];
    // With `ast` Vega interprets its expressions: the page's policy forbids to compile them.
    const options = { ast: true, renderer: "svg", actions: false, tooltip: showTip };
    const made = vegaEmbed(place, chart.spec, options).then(({ view }) => {
      if (!chart.steps) return;
      stepViews.push(view);
      followDrag(view, place);
    });
    drawn.push(made);
  }
  Promise.all(drawn).then(() => {
    if (stepViews.length) chooseSteps();
    document.documentElement.dataset.drawn = drawn.length;
  });
})();
