// Play, pause, step, scrub and speed.
import type { Palette } from "./colours";
import { count, el, Surface } from "./dom";
import type { Panel } from "./panel";
import type { Timeline } from "./timeline";

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
/** Seconds a step takes at speed 1, in a run of few steps; longer runs last about a minute. */
const DWELL = 2.2;
const WHOLE = 60;
const GLIMPSE = 0.55;

export class Transport {
  readonly element: HTMLElement;
  tick = 0;
  isPlaying = false;
  private readonly slider: HTMLInputElement;
  private readonly play: HTMLButtonElement;
  private readonly words = el("span", { class: "count" });
  private readonly speed: HTMLSelectElement;
  private readonly band = new Surface("Kinds of steps along the run", "band");
  private elapsed = 0;
  private before = 0;

  constructor(
    private readonly timeline: Timeline,
    private readonly panels: Panel[],
    private readonly changed: () => void,
    private readonly calm: () => boolean,
  ) {
    const last = timeline.length - 1;
    this.slider = el("input", {
      type: "range", min: "0", max: String(last), step: "1", value: "0", "aria-label": "Step of the run",
    });
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.play = el("button", { type: "button", class: "play" });
    this.play.addEventListener("click", () => this.toggle());
    this.speed = el("select", { "aria-label": "Speed" });
    for (const value of SPEEDS) this.speed.append(el("option", { value: String(value) }, `${value}×`));
    this.speed.value = "1";
    const button = (label: string, words: string, act: () => void): HTMLElement => {
      const made = el("button", { type: "button", "aria-label": words, title: words }, label);
      made.addEventListener("click", act);
      return made;
    };
    this.element = el(
      "nav",
      { class: "transport", "aria-label": "Playback" },
      el(
        "div",
        { class: "buttons" },
        button("‹", "Step back", () => this.go(this.tick - 1)),
        this.play,
        button("›", "Step forward", () => this.go(this.tick + 1)),
      ),
      el("div", { class: "scrub" }, this.band.canvas, this.slider),
      this.words,
      this.speed,
    );
    this.label();
  }

  private label(): void {
    this.play.textContent = this.isPlaying ? "Pause" : "Play";
    this.play.setAttribute("aria-label", this.isPlaying ? "Pause" : "Play");
  }

  go(tick: number): void {
    this.isPlaying = false;
    this.set(tick);
    this.label();
  }

  private set(tick: number): void {
    this.tick = Math.max(0, Math.min(this.timeline.length - 1, tick));
    this.elapsed = 0;
    this.panels.forEach((panel, r) => panel.run.seek(this.timeline.step(this.tick, r)));
    this.changed();
  }

  toggle(): void {
    this.isPlaying = !this.isPlaying;
    if (this.isPlaying && this.tick === this.timeline.length - 1) this.set(0);
    this.label();
    this.before = performance.now();
    if (this.isPlaying) requestAnimationFrame((now) => this.advance(now));
    this.changed();
  }

  private advance(now: number): void {
    if (!this.isPlaying) return;
    const passed = Math.min(0.25, Math.max(0, (now - this.before) / 1000)) * Number(this.speed.value);
    this.before = now;
    this.elapsed += passed;
    const each = Math.min(DWELL, WHOLE / this.timeline.length);
    const mover = this.panels[this.timeline.mover(this.tick)];
    const glimpses = each > 0.6 && !this.calm() ? mover.glimpses() : [];
    const dwell = each + glimpses.length * GLIMPSE;
    if (!this.calm() && this.panels.some((panel) => panel.run.coordinates)) {
      this.panels.forEach((panel) => panel.turn(passed * 0.25));
      this.changed();
    }
    if (this.elapsed >= dwell) {
      const rest = this.elapsed - dwell;
      const steps = 1 + Math.floor(rest / each);
      this.set(this.tick + steps);
      this.elapsed = rest - (steps - 1) * each;
      if (this.tick === this.timeline.length - 1) this.isPlaying = false;
      this.label();
    } else if (glimpses.length) {
      const k = Math.floor(this.elapsed / GLIMPSE);
      mover.lookAt(k < glimpses.length ? glimpses[k] : null);
    }
    requestAnimationFrame((then) => this.advance(then));
  }

  draw(palette: Palette): void {
    const last = this.timeline.length - 1;
    if (this.slider.value !== String(this.tick)) this.slider.value = String(this.tick);
    this.slider.setAttribute("aria-valuetext", `Step ${this.tick} of ${last}`);
    this.words.textContent = `step ${count(this.tick)} of ${count(last)}`;
    this.band.fit();
    const { context, width, height } = this.band;
    const colours: Record<string, string> = {
      preprocess: palette.preprocessing, probe: palette.probes, commit: palette.commits, verify: palette.probes,
      remask: palette.commits,
    };
    this.band.clear();
    const bars = Math.min(last, Math.floor(width));
    for (let k = 0; k < bars; k++) {
      const tick = 1 + Math.floor((k * last) / bars);
      const mover = this.timeline.mover(tick);
      const { steps } = this.panels[mover].run;
      context.fillStyle = colours[steps[this.timeline.step(tick, mover)].type] ?? palette.line;
      context.globalAlpha = tick <= this.tick ? 1 : 0.38;
      const gap = width / bars > 6 ? 1.5 : 0;
      context.fillRect((k * width) / bars, 0, width / bars - gap + (gap ? 0 : 0.5), height);
    }
    context.globalAlpha = 1;
  }
}
