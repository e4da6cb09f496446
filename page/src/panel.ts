// One run on the page: its graph, its strip, its ledger and the position somebody points at.
import { BackboneView } from "./backbone";
import { ChainView } from "./chain";
import { caption } from "./captions";
import type { Palette } from "./colours";
import { DetailView } from "./detail";
import { count, el } from "./dom";
import { number, text } from "./decode";
import { GraphView } from "./graph";
import { LedgerView } from "./ledger";
import { LegendView } from "./legend";
import type { Scene } from "./picture";
import { omissions, OPEN, Status } from "./run";
import type { Run } from "./run";
import { HELD, READOUT, SOURCE, Stage } from "./stage";
import type { Look } from "./stage";
import { StripView } from "./strip";

/** So few positions to draw fit into a low picture on a narrow screen. */
const FEW = 24;

/** Whether two runs drew from laws with the same ties, so that one picture serves both. */
function sameLaw(one: Run, other: Run): boolean {
  const key = (run: Run): string => `${run.length}/${run.truth?.from.join()}/${run.truth?.to.join()}`;
  return one.truth !== null && key(one) === key(other);
}

export class Panel {
  readonly element: HTMLElement;
  readonly title: HTMLElement;
  private readonly graph: GraphView;
  private readonly backbone: BackboneView | null;
  private readonly strip: StripView;
  private readonly ledger: LedgerView;
  private readonly detail: DetailView;
  private readonly note: HTMLElement;
  private readonly legend = new LegendView();
  private readonly grouping = el("p", { class: "grouping" });
  private readonly lens: HTMLElement;
  private readonly lensWords = el("span", { "aria-live": "polite" });
  private hovered = -1;
  private selected = -1;
  private showTruth: boolean;
  private onBackbone: boolean;
  /** The stage at hand, and which of its states is looked at (null: all of them). */
  private stage: Stage | null = null;
  private stageStep = -1;
  private look: Look | null = null;
  private state: number | null = null;

  constructor(
    readonly run: Run,
    private readonly redraw: () => void,
    isOneOfTwo: boolean,
    twin: Panel | null,
    ceiling: number,
  ) {
    this.graph = run.isSequence
      ? new ChainView(run, redraw)
      : new GraphView(run, redraw, twin && sameLaw(run, twin.run) ? twin.graph : null);
    this.backbone = run.coordinates ? new BackboneView(run, redraw) : null;
    this.onBackbone = this.backbone !== null && !run.isSequence;
    this.showTruth = run.edges.from.length === 0 && run.truth !== null;
    this.strip = new StripView(run);
    this.ledger = new LedgerView(run, ceiling);
    this.detail = new DetailView(run, (v) => this.select(v));
    this.note = el("p", { class: "note" });
    this.title = this.makeTitle();
    this.lens = this.makeLens();
    const isLow = run.isSequence && run.length - run.numGiven <= FEW;
    const isProbed = run.steps.some(({ type }) => type === "probe");
    const figure = el("section", { class: `panel graph${isLow ? " low" : ""}${isProbed ? " probed" : ""}`, "aria-label": "Dependence graph" }, this.graph.surface.canvas);
    if (this.backbone) figure.append(this.backbone.surface.canvas);
    figure.append(this.makeCorner(), this.lens);
    const strip = el(
      "section",
      { class: "panel strip", "aria-label": "Strip of positions" },
      this.strip.surface.canvas,
      this.legend.element,
      this.grouping,
    );
    this.element = el(
      "article",
      { class: "run" },
      isOneOfTwo ? this.title : null,
      isOneOfTwo ? this.note : null,
      figure,
      strip,
      el("div", { class: "side" }, this.ledger.element, this.detail.element),
    );
    this.listen();
    new ResizeObserver(redraw).observe(figure);
  }

  /** Who ran on what, and what must be said about the trace. */
  private makeTitle(): HTMLElement {
    const { header, name, truncated, length } = this.run;
    const what = text(header.family) || text(header.model) || text(header.oracle);
    const title = text(header.title) || [text(header.sampler), what].filter(Boolean).join(" on ");
    const vocab = number(header.vocab_size);
    const facts = [
      `N = ${count(length)}`,
      vocab === null ? "" : `V = ${count(vocab)}`,
      this.run.place,
      name === title ? "" : name,
    ];
    const element = el(
      "div",
      { class: "title" },
      el("h2", {}, title || "A run"),
      el("span", {}, facts.filter(Boolean).join("  ·  ")),
    );
    const warnings = [
      truncated ? "This trace was cut short: the run is shown as far as it goes." : "",
      ...omissions(this.run),
    ];
    for (const words of warnings) if (words) element.append(el("p", { class: "warning" }, words));
    return element;
  }

  private makeCorner(): HTMLElement {
    const corner = el("div", { class: "corner" });
    const add = (label: string, words: string, act: (button: HTMLButtonElement) => void): HTMLButtonElement => {
      const button = el("button", { type: "button", "aria-label": words, title: words }, label);
      button.addEventListener("click", () => {
        act(button);
        this.redraw();
      });
      corner.append(button);
      return button;
    };
    const toggle = (button: HTMLButtonElement, on: boolean): void => button.setAttribute("aria-pressed", String(on));
    if (this.backbone) {
      const button = add("Backbone", "Show the protein's backbone", () => {
        this.onBackbone = !this.onBackbone;
        toggle(button, this.onBackbone);
      });
      toggle(button, this.onBackbone);
    }
    if (this.run.truth) {
      const button = add("True ties", "Show the ties of the hidden law", () => {
        this.showTruth = !this.showTruth;
        toggle(button, this.showTruth);
      });
      toggle(button, this.showTruth);
    }
    add("+", "Zoom in", () => this.zoomBy(1.5));
    add("−", "Zoom out", () => this.zoomBy(1 / 1.5));
    add("Fit", "Show the whole picture", () => this.reset());
    return corner;
  }

  private makeLens(): HTMLElement {
    const lens = el("div", { class: "lens" });
    const step = (label: string, words: string, by: number): void => {
      const button = el("button", { type: "button", "aria-label": words, title: words }, label);
      button.addEventListener("click", () => this.moveLens(by));
      lens.append(button);
    };
    step("‹", "Previous state of this stage", -1);
    lens.append(this.lensWords);
    step("›", "Next state of this stage", 1);
    return lens;
  }

  private listen(): void {
    const views = [this.graph, this.strip, ...(this.backbone ? [this.backbone] : [])];
    for (const view of views) {
      const { canvas } = view.surface;
      const under = (event: PointerEvent | MouseEvent): number => {
        const box = canvas.getBoundingClientRect();
        return view.hit(event.clientX - box.left, event.clientY - box.top);
      };
      canvas.addEventListener("pointermove", (event) => {
        const found = under(event);
        if (found === this.hovered) return;
        this.hovered = found;
        this.redraw();
      });
      canvas.addEventListener("pointerleave", () => {
        this.hovered = -1;
        this.redraw();
      });
      canvas.addEventListener("click", (event) => {
        const found = under(event);
        this.selected = found === this.selected ? -1 : found;
        this.redraw();
      });
    }
  }

  select(position: number): void {
    this.selected = position;
    if (position >= 0) this.picture.show(position);
    this.redraw();
  }

  private get picture(): GraphView | BackboneView {
    return this.onBackbone && this.backbone ? this.backbone : this.graph;
  }

  zoomBy(factor: number): void {
    this.picture.zoomBy(factor);
  }

  reset(): void {
    this.picture.reset();
  }

  turn(angle: number): void {
    if (this.onBackbone) this.backbone?.turn(angle);
  }

  /** The stage of probes at which the run stands, unpacked when first looked at. */
  private enterStage(): void {
    const { run } = this;
    if (this.stageStep === run.at) return;
    this.stageStep = run.at;
    const step = run.steps[run.at];
    this.stage = step.type === "probe" ? new Stage(run, step.event) : null;
    this.state = null;
    this.look = this.stage?.look(null) ?? null;
  }

  /** States to step through while playing. */
  glimpses(): number[] {
    this.enterStage();
    return this.stage && this.stage.count > 1 ? this.stage.glimpses() : [];
  }

  /** Look at one state of the stage, or at all of them. */
  lookAt(state: number | null): void {
    this.enterStage();
    if (!this.stage || state === this.state) return;
    this.state = state;
    this.look = this.stage.look(state);
    this.redraw();
  }

  moveLens(by: number): void {
    if (!this.stage || !this.stage.count) return;
    const next = (this.state ?? (by > 0 ? -1 : this.stage.count)) + by;
    this.lookAt(next < 0 || next >= this.stage.count ? null : next);
  }

  /** What the picture at hand needs explained. */
  private keys(): string[] {
    const { run, stage, look } = this;
    const counts = run.edgeCounts();
    const isProbing = stage !== null && look !== null;
    const has = (role: number): boolean => look !== null && look.role.some((r) => (r & role) !== 0);
    const wanted: [boolean, string][] = [
      [run.committed.some((when, v) => when === OPEN && !look?.role[v]), "masked"],
      [run.numCommitted > 0, "drawn"],
      [["commit", "hubs"].includes(run.steps[run.at].type), "now"],
      [run.numGiven > 0, "given"],
      [isProbing && has(READOUT), "response"],
      [isProbing && (this.state !== null || !this.stage?.isMixed) && has(SOURCE), "source"],
      [isProbing && has(HELD), "held"],
      [counts[Status.voted] > 0, "voted"],
      [counts[Status.estimated] > 0, run.isSequence ? "strength" : "estimated"],
      [counts[Status.certified] > 0, "certified"],
      [counts[Status.contradicted] > 0, "contradicted"],
      [run.numCommitted > 0 && counts.slice(1).some((n) => n > 0), "spent"],
      [this.showTruth, "truth"],
      [run.numCommitted > 0 && run.ignored.length > 0, "ignored"],
      [run.isSequence && run.status.some((_, e) => run.isBroken(e)), "broken"],
    ];
    return wanted.filter(([isWanted]) => isWanted).map(([, name]) => name);
  }

  draw(palette: Palette): void {
    this.enterStage();
    const { run } = this;
    const scene: Scene = {
      run,
      palette,
      look: this.look,
      hovered: this.hovered,
      selected: this.selected,
      showTruth: this.showTruth,
    };
    this.graph.surface.canvas.hidden = this.onBackbone;
    if (this.backbone) this.backbone.surface.canvas.hidden = !this.onBackbone;
    this.lens.hidden = !this.stage || this.stage.count < 2;
    this.lensWords.textContent = this.look?.words ?? "";
    const said = caption(run);
    this.note.replaceChildren(el("strong", {}, said.headline), said.words);
    this.legend.draw(this.keys(), palette);
    // Pictures last: words above may have moved them.
    this.strip.draw(scene);
    this.grouping.hidden = this.strip.group === 1;
    this.grouping.textContent = `Each cell of the strip stands for ${count(this.strip.group)} positions.`;
    this.picture.draw(scene);
    this.ledger.draw(palette);
    this.detail.draw(this.hovered >= 0 ? this.hovered : this.selected, this.look, this.selected >= 0);
  }
}
