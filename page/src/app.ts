// The whole page for one run or two: caption, pictures, playback, search, theme, keys.
import { caption } from "./captions";
import { palettes } from "./colours";
import type { Theme } from "./colours";
import { count, el, plural } from "./dom";
import { text } from "./decode";
import { keyboardHelp } from "./legend";
import { Panel } from "./panel";
import { total } from "./run";
import type { Run } from "./run";
import { Timeline } from "./timeline";
import { Transport } from "./transport";

const STAGE_COLOURS: Record<string, string> = {
  start: "var(--soft)", preprocessing: "var(--preprocessing)", probes: "var(--probes)", structure: "var(--soft)",
  commits: "var(--commits)", end: "var(--soft)",
};

/** The browser's own name for the moment at which everything was drawn once. */
const FIRST_PICTURE = "first picture";

export class App {
  private theme: Theme;
  private isDue = false;
  private readonly panels: Panel[];
  private readonly transport: Transport;
  private readonly search: HTMLInputElement;
  private readonly themeButton = el("button", { type: "button" });
  private readonly stage = el("span", { class: "stage" });
  private readonly headline = el("h1");
  private readonly words = el("p");
  private readonly answer = el("p", { class: "hidden", role: "status" });
  private readonly calm = window.matchMedia("(prefers-reduced-motion: reduce)");

  constructor(
    private readonly runs: Run[],
    root: HTMLElement,
  ) {
    const preference = window.matchMedia("(prefers-color-scheme: dark)");
    this.theme = preference.matches ? "dark" : "light";
    preference.addEventListener("change", () => this.setTheme(preference.matches ? "dark" : "light"));
    const redraw = (): void => this.redraw();
    this.panels = [];
    const ceiling = Math.max(...runs.map((run) => total(run.finalLedger)));
    for (const run of runs) {
      this.panels.push(new Panel(run, redraw, runs.length > 1, this.panels[0] ?? null, ceiling));
    }
    this.transport = new Transport(new Timeline(runs), this.panels, redraw, () => this.calm.matches);
    this.search = el("input", {
      type: "search", placeholder: "Find a position", "aria-label": "Find a position by number or label",
    });
    this.search.addEventListener("input", () => this.find());
    this.themeButton.addEventListener("click", () => this.setTheme(this.theme === "dark" ? "light" : "dark"));
    root.replaceChildren(
      el(
        "header",
        {},
        el("p", { class: "name" }, "counterprobe"),
        runs.length === 1 ? this.panels[0].title : null,
        el("div", { class: "tools" }, this.search, this.answer, keyboardHelp(), this.themeButton),
      ),
      el("section", { class: "caption", "aria-live": "polite", "aria-label": "What this step does" }, this.stage, this.headline, this.words),
      el("div", { class: runs.length > 1 ? "runs two" : "runs" }, ...this.panels.map((panel) => panel.element)),
      this.transport.element,
    );
    const title = runs.map((run) => text(run.header.title) || text(run.header.sampler)).filter(Boolean);
    if (title.length) document.title = `${title.join(" and ")}: counterprobe`;
    window.addEventListener("resize", redraw);
    document.addEventListener("keydown", (event) => this.key(event));
    if (runs.length === 1) this.transport.go(runs[0].opening);
    this.setTheme(this.theme);
  }

  private setTheme(theme: Theme): void {
    this.theme = theme;
    document.documentElement.dataset.theme = theme;
    const other = theme === "dark" ? "light" : "dark";
    this.themeButton.textContent = other === "dark" ? "Dark" : "Light";
    this.themeButton.setAttribute("aria-label", `Switch to the ${other} theme`);
    this.redraw();
  }

  private find(): void {
    const query = this.search.value;
    const found = this.panels.map((panel) => {
      const position = panel.run.find(query);
      panel.select(position);
      return position;
    });
    const missing = query.trim() && found.every((position) => position < 0);
    this.search.setAttribute("aria-invalid", String(Boolean(missing)));
    this.answer.textContent = missing ? "No such position" : "";
  }

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || target.tagName === "SELECT") return;
    if (target === this.search) {
      if (event.key === "Escape") this.search.blur();
      return;
    }
    const { transport } = this;
    const lens = (by: number) => () => this.panels.forEach((panel) => panel.moveLens(by));
    const zoom = (factor: number) => () => this.panels.forEach((panel) => panel.zoomBy(factor));
    const acts: Record<string, () => void> = {
      ArrowRight: () => transport.go(transport.tick + 1),
      ArrowLeft: () => transport.go(transport.tick - 1),
      Home: () => transport.go(0),
      End: () => transport.go(Infinity),
      "]": lens(1),
      "[": lens(-1),
      "+": zoom(1.4),
      "=": zoom(1.4),
      "-": zoom(1 / 1.4),
      "0": () => this.panels.forEach((panel) => panel.reset()),
      "/": () => this.search.focus(),
      t: () => this.setTheme(this.theme === "dark" ? "light" : "dark"),
      Escape: () => this.panels.forEach((panel) => panel.select(-1)),
    };
    // Space presses a focused button by itself.
    if (target.tagName !== "BUTTON" && target.tagName !== "SUMMARY") acts[" "] = () => transport.toggle();
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** Draw once in the next frame, however much has changed until then. */
  private redraw(): void {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.draw();
    });
  }

  private draw(): void {
    const palette = palettes[this.theme];
    if (this.runs.length === 1) {
      const said = caption(this.runs[0]);
      this.say(said.stage, said.headline, said.words, STAGE_COLOURS[said.kind]);
    } else {
      this.say("Side by side", ...this.comparison(), STAGE_COLOURS.start);
    }
    for (const panel of this.panels) panel.draw(palette);
    this.transport.draw(palette);
    if (!performance.getEntriesByName(FIRST_PICTURE).length) performance.mark(FIRST_PICTURE);
  }

  private comparison(): [string, string] {
    const spent = Math.max(...this.runs.map((run) => total(run.steps[run.at].ledger)));
    const drawn = this.runs.map((run) => {
      const name = text(run.header.sampler) || run.name;
      if (run.isDiscovery) return `${name}: ${plural(run.numEdges, "edge")} known, nothing drawn`;
      const free = run.length - run.numGiven;
      const isDone = run.at === run.steps.length - 1;
      const together = isDone && run.truth ? `, ${count(run.ignored.length)} true ties drawn at once` : "";
      return `${name}: ${count(run.numCommitted)} of ${count(free)} drawn${together}`;
    });
    return [
      `After ${count(spent)} ${spent === 1 ? "evaluation" : "evaluations"}`,
      `${drawn.join(". ")}. Both runs are shown after the same number of evaluations.`,
    ];
  }

  private say(stage: string, headline: string, words: string, colour: string): void {
    const pairs: [HTMLElement, string][] = [[this.stage, stage], [this.headline, headline], [this.words, words]];
    for (const [element, said] of pairs) if (element.textContent !== said) element.textContent = said;
    this.stage.style.setProperty("--stage", colour);
  }
}
