"use strict";

// A click on the title of a column sorts the rows: numbers from the largest, then from the smallest, then as they were.
function sortable(table) {
  const body = table.tBodies[0];
  const titles = [...table.tHead.rows[0].cells];
  const original = [...body.rows];
  const cell = (row, column) => row.cells[column];
  const number = (row, column) => ("value" in cell(row, column).dataset ? Number(cell(row, column).dataset.value) : NaN);

  function compare(a, b, column, sign) {
    const [x, y] = [number(a, column), number(b, column)];
    if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);  // what is undefined stands last either way
    return sign * (x < y ? -1 : x > y ? 1 : 0);
  }

  function compareTexts(a, b, column, sign) {
    const [x, y] = [cell(a, column).textContent, cell(b, column).textContent];
    return sign * x.localeCompare(y, "en", { numeric: true });
  }

  titles.forEach((title, column) => {
    title.querySelector("button").addEventListener("click", () => {
      const numeric = original.some((row) => "value" in cell(row, column).dataset);
      const turns = numeric ? ["descending", "ascending", null] : ["ascending", "descending", null];
      const next = turns[(turns.indexOf(title.getAttribute("aria-sort")) + 1) % 3];
      titles.forEach((other) => other.removeAttribute("aria-sort"));
      if (next) title.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      const by = numeric ? compare : compareTexts;
      body.append(...(next ? [...original].sort((a, b) => by(a, b, column, sign)) : original));
    });
  });
}

// A link to a block marks it wherever it stands: in tables and in figures.
function mark() {
  const target = document.getElementById(location.hash.slice(1));
  const key = target ? target.dataset.block : undefined;
  for (const place of document.querySelectorAll("[data-block]")) {
    place.classList.toggle("marked", key !== undefined && place.dataset.block === key);
  }
}

document.querySelectorAll("table.sortable").forEach(sortable);
addEventListener("hashchange", mark);
mark();
