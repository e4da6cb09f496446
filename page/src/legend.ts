// A small legend in plain words, drawn with the very colours of the picture.
import type { Palette } from "./colours";
import { el, Surface } from "./dom";

type Sketch = (context: CanvasRenderingContext2D, palette: Palette) => void;

const dot = (fill: keyof Palette, ring: keyof Palette | null): Sketch => (context, palette) => {
  context.beginPath();
  context.arc(17, 9, 6, 0, 2 * Math.PI);
  context.fillStyle = palette[fill] as string;
  context.fill();
  context.lineWidth = 2;
  context.strokeStyle = palette[ring ?? fill] as string;
  context.stroke();
};

const line = (colour: keyof Palette, dash: number[] = [], width = 2.2): Sketch => (context, palette) => {
  context.setLineDash(dash);
  context.lineWidth = width;
  context.strokeStyle = palette[colour] as string;
  context.beginPath();
  context.moveTo(2, 9);
  context.lineTo(32, 9);
  context.stroke();
  context.setLineDash([]);
};

const ramp: Sketch = (context, palette) => {
  palette.scale.forEach((colour, k) => {
    context.fillStyle = colour;
    context.fillRect(2 + (30 * k) / palette.scale.length, 4, 1, 10);
  });
};

/** What a legend can explain, by name. */
const ENTRIES: Record<string, [Sketch, string]> = {
  masked: [dot("empty", "faint"), "masked"],
  drawn: [ramp, "drawn, from first to last"],
  now: [dot("empty", "now"), "in this very step"],
  given: [dot("given", null), "given beforehand"],
  held: [dot("held", null), "held still"],
  source: [dot("source", null), "varied: shows other values"],
  response: [dot("response", "voted"), "masked and read: deeper, the more its row moved"],
  voted: [line("voted"), "one end names the other"],
  estimated: [line("voted"), "estimated tie"],
  strength: [line("response"), "tie, wider where stronger (nats)"],
  certified: [line("certified"), "certified: the run relies on it"],
  contradicted: [line("now", [5, 4]), "contradicted: the other end denies it"],
  spent: [line("truth"), "settled: an end is drawn"],
  truth: [line("truth", [2, 3]), "true tie, which the sampler never saw"],
  broken: [line("broken"), "tie with both ends drawn at once"],
  ignored: [line("broken"), "true tie with both ends drawn at once"],
};

const KEYS = [
  ["Space", "play or pause"], ["← →", "step"], ["Home End", "first, last"], ["[ ]", "states of a probe stage"],
  ["+ −", "zoom"], ["0", "whole picture"], ["/", "search"], ["T", "theme"], ["Esc", "let go of a position"],
];

/** A row of keys to the picture: those that the step at hand needs. */
export class LegendView {
  readonly element = el("ul", { class: "legend", "aria-label": "Legend" });
  private readonly made = new Map<string, [HTMLElement, Surface, Sketch]>();
  private shown = "";

  draw(names: string[], palette: Palette): void {
    if (names.join() !== this.shown) {
      this.shown = names.join();
      this.element.replaceChildren(...names.map((name) => this.entry(name)));
    }
    for (const name of names) {
      const [, surface, sketch] = this.made.get(name) as [HTMLElement, Surface, Sketch];
      surface.fit(34, 18);
      surface.clear();
      sketch(surface.context, palette);
    }
  }

  private entry(name: string): HTMLElement {
    let made = this.made.get(name);
    if (!made) {
      const [sketch, words] = ENTRIES[name];
      const surface = new Surface("", "key");
      surface.canvas.setAttribute("aria-hidden", "true");
      this.made.set(name, (made = [el("li", {}, surface.canvas, words), surface, sketch]));
    }
    return made[0];
  }
}

/** What the keyboard does. */
export function keyboardHelp(): HTMLElement {
  const list = el("dl");
  for (const [key, words] of KEYS) list.append(el("dt", {}, el("kbd", {}, key)), el("dd", {}, words));
  return el("details", { class: "help" }, el("summary", {}, "Keys"), el("div", { class: "panel" }, list));
}
