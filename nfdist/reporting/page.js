"use strict";
(() => {
  const tip = document.getElementById("tip");

  function show(text, event) {
    tip.textContent = text;
    tip.hidden = false;
    const edge = 12, box = tip.getBoundingClientRect();
    const right = event.clientX + edge + box.width > window.innerWidth - 4;
    const left = right ? event.clientX - edge - box.width : event.clientX + edge;
    const above = event.clientY - edge - box.height;
    tip.style.left = `${Math.max(4, Math.min(left, window.innerWidth - box.width - 4))}px`;
    tip.style.top = `${above < 4 ? event.clientY + edge : above}px`;
  }

  function hide() {
    tip.hidden = true;
    for (const line of document.querySelectorAll(".cursor")) line.style.visibility = "hidden";
  }

  // The nearest place of a chart where a line has a point.
  function follow(chart, event) {
    chart.places = chart.places || JSON.parse(chart.dataset.hover);
    if (!chart.places.length) return;
    const box = chart.getBoundingClientRect();
    const x = (event.clientX - box.left) * chart.viewBox.baseVal.width / box.width;
    let best = chart.places[0];
    for (const place of chart.places) if (Math.abs(place[0] - x) < Math.abs(best[0] - x)) best = place;
    const line = chart.querySelector(".cursor");
    line.setAttribute("x1", best[0]);
    line.setAttribute("x2", best[0]);
    line.style.visibility = "visible";
    show(best[1], event);
  }

  function point(event) {
    const marked = event.target.closest("[data-tip]");
    const chart = event.target.closest("svg[data-hover]");
    hide();
    if (marked) show(marked.dataset.tip, event);
    else if (chart) follow(chart, event);
  }

  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  document.addEventListener("pointerleave", hide);
  document.addEventListener("scroll", hide, { passive: true });

  // A name in the legend of a map singles out its nodes; pressed again, it shows all.
  for (const button of document.querySelectorAll("[data-show]")) {
    button.addEventListener("click", () => {
      const chosen = button.getAttribute("aria-pressed") !== "true";
      const map = button.closest(".map");
      for (const other of map.querySelectorAll("[data-show]")) other.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", String(chosen));
      for (const dot of map.querySelectorAll("[data-group]"))
        dot.classList.toggle("faded", chosen && dot.dataset.group !== button.dataset.show);
    });
  }

  const number = (text) => Number(text.replace(/[,%×]/g, "").trim().split(/[ (]/)[0]);

  for (const head of document.querySelectorAll("th button")) {
    head.addEventListener("click", () => {
      const cell = head.closest("th"), body = head.closest("table").tBodies[0];
      const column = cell.cellIndex, down = cell.getAttribute("aria-sort") !== "descending";
      for (const other of cell.parentNode.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const text = (row) => row.cells[column].textContent;
      const rows = [...body.rows].sort((one, two) => {
        const a = number(text(one)), b = number(text(two));
        const order = Number.isNaN(a) || Number.isNaN(b)
          ? Number.isNaN(a) - Number.isNaN(b) || text(two).localeCompare(text(one)) : a - b;
        return down ? -order : order;
      });
      body.append(...rows);
    });
  }

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = button.parentNode.querySelector("code");
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {  // as in a page without that right: select it instead
        getSelection().selectAllChildren(text);
      }
    });
  }
})();
