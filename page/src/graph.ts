// The dependence graph as the run discovers it, on a canvas that zooms.
import { quadtree } from "d3-quadtree";
import type { Quadtree } from "d3-quadtree";
import { select } from "d3-selection";
import { zoom, zoomIdentity } from "d3-zoom";
import type { ZoomBehavior, ZoomTransform } from "d3-zoom";
import { Surface } from "./dom";
import { place } from "./layout";
import type { Edges, Places } from "./layout";
import { inscription, paint, readable } from "./picture";
import type { Scene } from "./picture";
import { OPEN, Status } from "./run";
import type { Run } from "./run";

/** Below this many pixels between neighbours, dots are plain squares without outlines. */
const OUTLINED = 5;
const LETTERED = 13;
/** Text below this size is left out. */
const SMALLEST = 6.5;
const MARGIN = 26;
/** Room for the buttons above the picture. */
const HEAD = 30;

export class GraphView {
  readonly surface: Surface;
  protected places: Places | null = null;
  protected tree: Quadtree<number> | null = null;
  private transform: ZoomTransform = zoomIdentity;
  private readonly behaviour: ZoomBehavior<HTMLCanvasElement, unknown>;

  constructor(
    protected readonly run: Run,
    private readonly redraw: () => void,
    /** A view of the same law, whose places this one shares. */
    private readonly twin: GraphView | null = null,
    name = "dependence",
  ) {
    this.surface = new Surface("Dependence graph of the run", name);
    this.behaviour = zoom<HTMLCanvasElement, unknown>()
      .scaleExtent([0.7, 60])
      .on("zoom", (event: { transform: ZoomTransform }) => {
        this.transform = event.transform;
        this.redraw();
      });
    select(this.surface.canvas).call(this.behaviour).on("dblclick.zoom", null);
  }

  zoomBy(factor: number): void {
    this.behaviour.scaleBy(select(this.surface.canvas), factor);
  }

  reset(): void {
    this.behaviour.transform(select(this.surface.canvas), zoomIdentity);
  }

  /** Bring a position to the middle, near enough to read its neighbourhood. */
  show(position: number): void {
    if (!this.places || this.run.length <= 200) return;
    const { x, y } = this.places;
    const { fit, left, top } = this.frame();
    const k = Math.max(this.transform.k, 40 / (this.places.unit * fit));
    const next = zoomIdentity
      .translate(this.surface.width / 2, this.surface.height / 2)
      .scale(k)
      .translate(-(left + x[position] * fit), -(top + y[position] * fit));
    this.behaviour.transform(select(this.surface.canvas), next);
  }

  /** The position under a point of the canvas, or -1. */
  hit(px: number, py: number): number {
    if (!this.places || !this.tree) return -1;
    const { fit, left, top } = this.frame();
    const [zx, zy] = this.transform.invert([px, py]);
    const scale = fit * this.transform.k;
    const reach = Math.max(14 / scale, this.places.unit * 0.7);
    return this.tree.find((zx - left) / fit, (zy - top) / fit, reach) ?? -1;
  }

  protected frame(): { fit: number; left: number; top: number } {
    const { width, height } = this.places as Places;
    const fit = Math.min(
      (this.surface.width - 2 * MARGIN) / width,
      (this.surface.height - 2 * MARGIN - HEAD) / height,
      4.2,
    );
    return {
      fit,
      left: (this.surface.width - width * fit) / 2,
      top: (this.surface.height + HEAD - height * fit) / 2,
    };
  }

  protected arrange(): Places {
    if (!this.places) {
      const [wide, high] = [this.surface.width - 2 * MARGIN, this.surface.height - 2 * MARGIN - HEAD];
      const aspect = Math.min(5, Math.max(0.4, wide / Math.max(1, high)));
      this.settle(this.twin?.arrange() ?? place(this.run.length, this.run.layoutEdges, aspect));
    }
    return this.places as Places;
  }

  protected settle(places: Places): void {
    const { x, y } = (this.places = places);
    this.tree = quadtree<number>().x((v) => x[v]).y((v) => y[v]).addAll([...x.keys()]);
  }

  draw(scene: Scene): void {
    const { surface } = this;
    surface.fit();
    surface.clear();
    if (surface.width < 2 * MARGIN + 10 || surface.height < 2 * MARGIN + 10) return;
    const places = this.arrange();
    const { fit, left, top } = this.frame();
    const { k, x: tx, y: ty } = this.transform;
    const scale = fit * k;
    const screen = {
      x: (v: number): number => (left + places.x[v] * fit) * k + tx,
      y: (v: number): number => (top + places.y[v] * fit) * k + ty,
      zoom: k,
    };
    const gap = places.unit * scale;
    this.drawEdges(scene, screen, gap);
    this.drawDots(scene, screen, gap);
  }

  protected drawEdges(scene: Scene, screen: Screen, gap: number): void {
    const { run, palette } = scene;
    const { context } = this.surface;
    const thin = Math.min(4, Math.max(0.5, gap / 9));
    const stroke = (edges: Edges, keep: (e: number) => boolean, colour: string, width: number, dash: number[] = []): void => {
      context.beginPath();
      for (let e = 0; e < edges.from.length; e++) {
        if (!keep(e)) continue;
        context.moveTo(screen.x(edges.from[e]), screen.y(edges.from[e]));
        context.lineTo(screen.x(edges.to[e]), screen.y(edges.to[e]));
      }
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.setLineDash(dash);
      context.stroke();
      context.setLineDash([]);
    };
    if (scene.showTruth && run.truth) stroke(run.truth, () => true, palette.truth, thin, gap > OUTLINED ? [2, 3] : []);
    const { edges, status, committed } = run;
    const isOpen = (e: number): boolean => committed[edges.from[e]] === OPEN && committed[edges.to[e]] === OPEN;
    stroke(edges, (e) => status[e] !== Status.gone && !isOpen(e), palette.truth, thin);
    stroke(edges, (e) => status[e] === Status.voted && isOpen(e), palette.voted, thin * 1.1);
    stroke(edges, (e) => status[e] === Status.estimated && isOpen(e), palette.voted, thin * 1.2);
    stroke(edges, (e) => status[e] === Status.certified && isOpen(e), palette.certified, thin * 1.5);
    stroke(edges, (e) => status[e] === Status.contradicted && isOpen(e), palette.now, thin * 1.3, gap > OUTLINED ? [5, 4] : []);
    const { truth } = run;
    if (truth && run.ignored.length) {
      const together = {
        from: run.ignored.map((e) => truth.from[e]),
        to: run.ignored.map((e) => truth.to[e]),
      };
      stroke(together, (e) => committed[together.from[e]] >= 0, palette.broken, thin * 2);
    }
    const focus = scene.hovered >= 0 ? scene.hovered : scene.selected;
    if (focus >= 0) {
      stroke(edges, (e) => status[e] !== Status.gone && (edges.from[e] === focus || edges.to[e] === focus), palette.now, thin * 1.8);
    }
  }

  protected drawDots(scene: Scene, screen: Screen, gap: number): void {
    const { run, palette } = scene;
    const { context, width, height } = this.surface;
    const outlined = gap > OUTLINED;
    const base = outlined ? Math.min(15, gap * 0.34) : Math.max(0.7, gap * 0.42);
    let last = "";
    const now: number[] = [];
    for (let v = 0; v < run.length; v++) {
      const [x, y] = [screen.x(v), screen.y(v)];
      if (x < -20 || y < -20 || x > width + 20 || y > height + 20) continue;
      const { fill, ring, isNow } = paint(scene, v);
      if (isNow) now.push(v);
      const colour = isNow && !outlined ? palette.now : fill;
      if (colour !== last) context.fillStyle = last = colour;
      if (!outlined) {
        // Open dots are small enough to let edges show between them.
        const side = run.committed[v] === OPEN && !scene.look ? base * 0.62 : base;
        context.fillRect(x - side, y - side, 2 * side, 2 * side);
        continue;
      }
      const radius = run.hub[v] ? base * 1.35 : base;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fill();
      context.lineWidth = ring ? 2 : 1.2;
      context.strokeStyle = ring ?? (run.committed[v] === OPEN ? palette.faint : fill);
      context.stroke();
    }
    this.ringNow(scene, screen, outlined ? now : [], base);
    if (gap * 0.72 > LETTERED) this.letter(scene, screen, base);
  }

  /** What happens in this step, and what a person points at. */
  private ringNow(scene: Scene, screen: Screen, now: number[], base: number): void {
    const { context } = this.surface;
    context.strokeStyle = scene.palette.now;
    context.lineWidth = base > 5 ? 2.4 : 1.6;
    context.beginPath();
    const r = base + (base > 5 ? 3.4 : 2);
    for (const v of now) {
      context.moveTo(screen.x(v) + r, screen.y(v));
      context.arc(screen.x(v), screen.y(v), r, 0, 2 * Math.PI);
    }
    context.stroke();
    for (const v of [scene.selected, scene.hovered]) {
      if (v < 0) continue;
      context.beginPath();
      context.lineWidth = 2.4;
      context.strokeStyle = scene.palette.ink;
      context.arc(screen.x(v), screen.y(v), base + 6, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  private letter(scene: Scene, screen: Screen, base: number): void {
    const { run } = scene;
    const { context, width, height } = this.surface;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let v = 0; v < run.length; v++) {
      const [x, y] = [screen.x(v), screen.y(v)];
      if (x < 0 || y < 0 || x > width || y > height) continue;
      const words = inscription(scene, v);
      // A letter is about 0.62 of its size wide, and must stay inside its dot.
      const size = Math.min(13, base * 0.95, (1.9 * base) / (0.62 * words.length));
      if (size < SMALLEST) continue;
      context.font = `600 ${size}px ui-sans-serif, system-ui, sans-serif`;
      context.fillStyle = readable(paint(scene, v).fill);
      context.fillText(words, x, y + 0.5);
    }
  }
}

export interface Screen {
  x(v: number): number;
  y(v: number): number;
  zoom: number;
}
