(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const setTheme = (theme) => {
    root.dataset.theme = theme;
    const other = theme === "dark" ? "light" : "dark";
    button.textContent = other === "dark" ? "Dark" : "Light";
    button.setAttribute("aria-label", `Switch to the ${other} theme`);
  };
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const turn = () => setTheme(root.dataset.theme === "dark" ? "light" : "dark");
  button.hidden = false;
  button.addEventListener("click", turn);
  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "t" && !event.ctrlKey && !event.metaKey && !event.altKey) turn();
  });
  // Numbers by their value, texts by their letters; what is missing stays below either way.
  const sort = (table, column, descending) => {
    const body = table.tBodies[0];
    const keyed = [...body.rows].map((row, place) => {
      const cell = row.cells[column];
      const text = cell.textContent.trim();
      const value = "value" in cell.dataset ? Number(cell.dataset.value) : null;
      return { row, place, text, value, missing: value === null && (text === "" || text === "-") };
    });
    const names = new Intl.Collator("en", { numeric: true });
    keyed.sort((a, b) => {
      if (a.missing !== b.missing) return a.missing ? 1 : -1;
      const by = a.value !== null && b.value !== null ? a.value - b.value : names.compare(a.text, b.text);
      return (descending ? -by : by) || a.place - b.place;
    });
    body.append(...keyed.map((one) => one.row));
  };
  for (const head of document.querySelectorAll("th")) {
    head.querySelector("button").addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sort(head.closest("table"), head.cellIndex, descending);
    });
  }
})();
