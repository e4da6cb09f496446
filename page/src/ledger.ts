// The account of the run: evaluations so far by kind, against the line of one position at a time.
import type { Palette } from "./colours";
import { count, el, Surface } from "./dom";
import { total } from "./run";
import type { Ledger, Run } from "./run";

/** N this many times above what was spent does not fit on a readable chart. */
const FAR = 6;
const KINDS = ["preprocessing", "probes", "commits"] as const;
const WORDS = { preprocessing: "preprocessing", probes: "probes", commits: "commits", stages: "stages" };

export class LedgerView {
  readonly element: HTMLElement;
  private readonly surface: Surface;
  private readonly counters = new Map<string, HTMLElement>();
  private readonly against: HTMLElement;

  constructor(
    private readonly run: Run,
    /** Most evaluations that a chart must hold: the same for two runs side by side. */
    private readonly ceiling: number,
  ) {
    this.surface = new Surface("Evaluations spent so far, against one a position", "account");
    const sum = el("b", { "data-counter": "total" }, "0");
    this.counters.set("total", sum);
    this.against = el("span");
    const list = el("dl");
    for (const [name, word] of Object.entries(WORDS)) {
      const value = el("dd", { "data-counter": name }, "0");
      this.counters.set(name, value);
      const term = el("dt", { class: name === "stages" ? "bare" : name }, word);
      if (name !== "stages") term.style.setProperty("--swatch", `var(--${name})`);
      list.append(el("div", {}, term, value));
    }
    this.element = el(
      "section",
      { class: "panel ledger", "aria-label": "Ledger: evaluations spent" },
      el("p", { class: "total" }, sum, this.against),
      this.surface.canvas,
      list,
      this.beside(),
    );
  }

  /** What was spent elsewhere for this run's sake. */
  private beside(): HTMLElement | null {
    const spent = this.run.beside.map(([word, n]) => `${count(n)} for ${word}`);
    return spent.length ? el("p", { class: "beside" }, `Beside the run, once: ${spent.join(", ")}.`) : null;
  }

  draw(palette: Palette): void {
    const { run } = this;
    const ledger = run.steps[run.at].ledger;
    const values: Record<string, number> = { ...ledger, total: total(ledger) };
    for (const [name, element] of this.counters) {
      const words = count(values[name]);
      if (element.textContent !== words) element.textContent = words;
    }
    const free = run.length - run.numGiven;
    const evaluations = values.total === 1 ? "evaluation" : "evaluations";
    this.against.textContent = run.isDiscovery
      ? `${evaluations}, once; a sample one at a time takes ${count(free)}`
      : `${evaluations}; one at a time takes ${count(free)}`;
    this.chart(palette, free);
  }

  private chart(palette: Palette, free: number): void {
    const { surface, run } = this;
    surface.fit();
    surface.clear();
    const { context, width, height } = surface;
    const last = run.steps.length - 1;
    const [left, right, top, bottom] = [0, 0, 16, 4];
    // A run that stays far below N would be a flat line: its chart ends early, and says so.
    const spent = this.ceiling;
    const isFar = spent * FAR < free;
    const most = (isFar ? spent * 1.5 : Math.max(spent, free)) * 1.04;
    const x = (step: number): number => left + ((width - left - right) * step) / Math.max(1, last);
    const y = (value: number): number =>
      Math.max(top, height - bottom - ((height - top - bottom) * value) / most);
    // Past one step a pixel, the last step of each pixel speaks.
    const stride = Math.max(1, Math.floor(last / (2 * width)));
    const area = (until: number, alpha: number): void => {
      context.globalAlpha = alpha;
      let below = (_: Ledger): number => 0;
      for (const kind of KINDS) {
        const under = below;
        const over = (ledger: Ledger): number => under(ledger) + ledger[kind];
        const seen: number[] = [];
        for (let s = 0; s < until; s += stride) seen.push(s);
        seen.push(until);
        context.beginPath();
        context.moveTo(x(0), y(0));
        seen.forEach((s, k) => {
          const value = y(over(run.steps[s].ledger));
          if (k && stride === 1) context.lineTo(x(s - 1) + (x(s) - x(s - 1)) * 0.35, y(over(run.steps[seen[k - 1]].ledger)));
          context.lineTo(x(s), value);
        });
        for (let k = seen.length - 1; k >= 0; k--) {
          const s = seen[k];
          context.lineTo(x(s), y(under(run.steps[s].ledger)));
          if (k && stride === 1) context.lineTo(x(s - 1) + (x(s) - x(s - 1)) * 0.35, y(under(run.steps[seen[k - 1]].ledger)));
        }
        context.closePath();
        context.fillStyle = palette[kind];
        context.fill();
        below = over;
      }
      context.globalAlpha = 1;
    };
    area(last, 0.16);
    area(run.at, 0.92);
    context.strokeStyle = palette.line;
    context.lineWidth = 1;
    context.strokeRect(0, height - bottom, width, 0);
    context.setLineDash([5, 4]);
    context.strokeStyle = palette.soft;
    context.beginPath();
    context.moveTo(0, y(free));
    context.lineTo(width, y(free));
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = palette.soft;
    context.font = "11.5px ui-sans-serif, system-ui, sans-serif";
    context.textBaseline = "bottom";
    context.textAlign = "left";
    context.lineWidth = 3;
    context.strokeStyle = palette.paper;
    const words = `N = ${count(free)}${isFar ? `, not to scale: ${count(Math.round(free / most))} times as high` : ""}`;
    context.strokeText(words, 0, y(free) - 3);
    context.fillText(words, 0, y(free) - 3);
    context.strokeStyle = palette.now;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x(run.at), top - 6);
    context.lineTo(x(run.at), height - bottom);
    context.stroke();
  }
}
