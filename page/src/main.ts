// Start: read what the page carries; whatever goes wrong becomes a message, never a blank page.
import { App } from "./app";
import { fileText, readTraces, TraceError } from "./decode";
import { el, NoCanvas } from "./dom";
import { Run, total } from "./run";

const root = document.getElementById("app") as HTMLElement;

function applyTheme(): void {
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

/** Somebody opens a trace from a file: it is read here and goes nowhere. */
function opener(): HTMLElement {
  const input = el("input", { type: "file", accept: ".json,.gz", "aria-label": "Open a trace", multiple: "" });
  input.addEventListener("change", async () => {
    const files = [...(input.files ?? [])].slice(0, 2);
    if (!files.length) return;
    await attempt(async () => {
      const traces = [];
      for (const file of files) {
        traces.push(...readTraces(fileText(new Uint8Array(await file.arrayBuffer())), file.name));
      }
      start(traces.slice(0, 2).map((trace) => new Run(trace)));
    });
  });
  return el("p", {}, input);
}

function show(title: string, remedy: string, ...more: Node[]): void {
  root.replaceChildren(
    el("section", { class: "message", role: "alert" }, el("h1", {}, title), el("p", {}, remedy), ...more),
  );
}

function start(runs: Run[]): void {
  try {
    new App(runs, root);
  } catch (error) {
    if (!(error instanceof NoCanvas)) throw error;
    show(error.message, "Any recent browser can draw it; here are the totals.", totals(runs));
  }
}

function totals(runs: Run[]): HTMLElement {
  const table = el("table");
  for (const run of runs) {
    const { preprocessing, probes, commits, stages } = run.finalLedger;
    const values = { total: total(run.finalLedger), preprocessing, probes, commits, stages };
    for (const [name, value] of Object.entries(values)) {
      table.append(el("tr", {}, el("th", {}, name), el("td", {}, String(value))));
    }
  }
  return table;
}

async function attempt(act: () => void | Promise<void>): Promise<void> {
  try {
    await act();
  } catch (error) {
    const said = error instanceof TraceError
      ? error
      : new TraceError(`This trace could not be shown: ${String(error).slice(0, 200)}`);
    show(said.message, said.remedy, opener());
  }
}

applyTheme();
void attempt(() => {
  const carried = document.getElementById("trace-data")?.textContent ?? "";
  start(readTraces(carried, "").map((trace) => new Run(trace)));
});
