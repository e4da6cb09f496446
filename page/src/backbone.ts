// A protein on its backbone: one dot a residue, turned by dragging, and slowly while playing.
import type { Palette } from "./colours";
import { Surface } from "./dom";
import type { GraphView } from "./graph";
import { inscription, paint, readable } from "./picture";
import type { Scene } from "./picture";
import { OPEN, Status } from "./run";
import type { Run } from "./run";

const MARGIN = 30;
/** Room for the buttons above the picture. */
const HEAD = 30;
const YAW = 0.25;
const PITCH = -0.2;

export class BackboneView implements Pick<GraphView, "surface" | "hit" | "draw" | "zoomBy" | "reset" | "show"> {
  readonly surface: Surface;
  private yaw = YAW;
  private pitch = PITCH;
  private zoom = 1;
  /** Coordinates along the longest axes, then where they fall on the canvas and how near they are. */
  private readonly turned: Float64Array;
  private reach: [number, number] = [1, 1];
  private readonly at: { x: Float64Array; y: Float64Array; depth: Float64Array };

  constructor(
    private readonly run: Run,
    private readonly redraw: () => void,
  ) {
    this.surface = new Surface("The protein's backbone, one dot a residue", "backbone");
    const { length } = run;
    this.turned = alongAxes(run.coordinates?.data ?? new Float64Array(3 * length), length);
    for (let v = 0; v < length; v++) {
      const [x, y, z] = this.turned.subarray(3 * v, 3 * v + 3);
      if (isNaN(x)) continue;
      this.reach = [Math.max(this.reach[0], Math.hypot(x, z)), Math.max(this.reach[1], Math.hypot(y, z * 0.4))];
    }
    this.at = { x: new Float64Array(length), y: new Float64Array(length), depth: new Float64Array(length) };
    this.listen();
  }

  private listen(): void {
    const { canvas } = this.surface;
    let last: [number, number] | null = null;
    canvas.addEventListener("pointerdown", (event) => {
      last = [event.clientX, event.clientY];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!last) return;
      this.yaw += (event.clientX - last[0]) * 0.01;
      this.pitch = Math.max(-1.5, Math.min(1.5, this.pitch + (event.clientY - last[1]) * 0.01));
      last = [event.clientX, event.clientY];
      this.redraw();
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (last = null));
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.zoomBy(Math.exp(-event.deltaY * 0.002));
      },
      { passive: false },
    );
  }

  turn(angle: number): void {
    this.yaw += angle;
  }

  zoomBy(factor: number): void {
    this.zoom = Math.max(0.5, Math.min(12, this.zoom * factor));
    this.redraw();
  }

  reset(): void {
    [this.yaw, this.pitch, this.zoom] = [YAW, PITCH, 1];
    this.redraw();
  }

  show(): void {
    this.redraw();
  }

  hit(px: number, py: number): number {
    let [best, nearest] = [-1, 16];
    for (let v = 0; v < this.run.length; v++) {
      const distance = Math.hypot(this.at.x[v] - px, this.at.y[v] - py) - this.at.depth[v] * 2;
      if (distance < nearest) [best, nearest] = [v, distance];
    }
    return best;
  }

  private project(): void {
    const { width, height } = this.surface;
    const [across, up] = this.reach;
    const scale = Math.min((width / 2 - MARGIN) / across, ((height - HEAD) / 2 - MARGIN) / up) * this.zoom;
    const [cy, sy] = [Math.cos(this.yaw), Math.sin(this.yaw)];
    const [cp, sp] = [Math.cos(this.pitch), Math.sin(this.pitch)];
    for (let v = 0; v < this.run.length; v++) {
      const [x, y, z] = this.turned.subarray(3 * v, 3 * v + 3);
      const aside = x * cy + z * sy;
      const back = z * cy - x * sy;
      this.at.x[v] = width / 2 + aside * scale;
      this.at.y[v] = (height + HEAD) / 2 - (y * cp - back * sp) * scale;
      this.at.depth[v] = (y * sp + back * cp) / across;
    }
  }

  draw(scene: Scene): void {
    const { surface, run } = this;
    surface.fit();
    surface.clear();
    this.project();
    const { context } = surface;
    const { palette } = scene;
    const { x, y, depth } = this.at;
    const room = Math.min(surface.width, surface.height * 1.6);
    const base = Math.max(2.4, Math.min(11, (room / Math.sqrt(run.length)) * 0.125)) * Math.sqrt(this.zoom);
    this.drawTies(scene);
    context.textAlign = "center";
    context.textBaseline = "middle";
    const order = Array.from(depth.keys()).filter((v) => !isNaN(x[v])).sort((a, b) => depth[a] - depth[b]);
    for (const v of order) {
      // Far to near, each residue over its stretch of chain: what is nearer covers what is behind.
      this.drawChain(v, palette, base);
      const { fill, ring, isNow } = paint(scene, v);
      const radius = base * (1 + 0.22 * depth[v]);
      context.beginPath();
      context.arc(x[v], y[v], radius, 0, 2 * Math.PI);
      context.fillStyle = fill;
      context.fill();
      context.lineWidth = isNow ? 2.6 : ring ? 2 : 1;
      context.strokeStyle = isNow ? palette.now : (ring ?? (run.committed[v] === OPEN ? palette.faint : palette.paper));
      context.stroke();
      if (radius > 6 && run.hasLetters && run.token[v] >= 0) {
        context.fillStyle = readable(fill);
        context.font = `600 ${radius * 1.15}px ui-sans-serif, system-ui, sans-serif`;
        context.fillText(inscription(scene, v).slice(0, 1), x[v], y[v] + 0.5);
      }
    }
    for (const v of [scene.selected, scene.hovered]) {
      if (v < 0) continue;
      context.beginPath();
      context.lineWidth = 2.4;
      context.strokeStyle = palette.ink;
      context.arc(x[v], y[v], base + 6, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  /** The chain around one residue, bent at it, with a rim that parts it from what is behind. */
  private drawChain(v: number, palette: Palette, base: number): void {
    const { x, y, depth } = this.at;
    const { context } = this.surface;
    const half = (u: number): [number, number] =>
      u < 0 || u >= this.run.length || isNaN(x[u]) || this.run.stretches.has(Math.max(u, v)) ? [x[v], y[v]] : [(x[u] + x[v]) / 2, (y[u] + y[v]) / 2];
    context.beginPath();
    context.moveTo(...half(v - 1));
    context.quadraticCurveTo(x[v], y[v], ...half(v + 1));
    const width = base * (0.75 + 0.2 * depth[v]);
    for (const [colour, wide, cap] of [[palette.paper, width + 4, "butt"], [palette.chain, width, "round"]] as const) {
      context.strokeStyle = colour;
      context.lineCap = cap;
      context.lineWidth = wide;
      context.stroke();
    }
  }

  /** Ties between open residues, under the chain, wider where stronger. */
  private drawTies(scene: Scene): void {
    const { run, at } = this;
    const { context } = this.surface;
    const { edges, status, strength, committed } = run;
    const strongest = run.strongest;
    context.strokeStyle = scene.palette.response;
    for (let e = 0; e < edges.from.length; e++) {
      const [u, v] = [edges.from[e], edges.to[e]];
      const focus = scene.hovered >= 0 ? scene.hovered : scene.selected;
      const touched = focus === u || focus === v;
      if (status[e] === Status.gone || (!touched && (committed[u] !== OPEN || committed[v] !== OPEN))) continue;
      const share = strongest > 0 ? (strength[e] || 0) / strongest : 0.1;
      context.globalAlpha = 0.15 + 0.75 * share;
      context.lineWidth = 0.8 + 4.2 * share;
      context.beginPath();
      context.moveTo(at.x[u], at.y[u]);
      context.lineTo(at.x[v], at.y[v]);
      context.stroke();
    }
    context.globalAlpha = 1;
  }
}

/** Coordinates about their middle, the longest axis first, by power iteration on the covariance. */
function alongAxes(data: ArrayLike<number>, length: number): Float64Array {
  const seen = [...Array(length).keys()].filter((v) => Number.isFinite(data[3 * v]));
  const middle = [0, 1, 2].map((k) => seen.reduce((sum, v) => sum + data[3 * v + k], 0) / Math.max(1, seen.length));
  const at = (v: number): number[] => [0, 1, 2].map((k) => data[3 * v + k] - middle[k]);
  const spread = [0, 1, 2].map((i) => [0, 1, 2].map((j) => seen.reduce((sum, v) => sum + at(v)[i] * at(v)[j], 0)));
  const dot = (a: number[], b: number[]): number => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  const axes: number[][] = [];
  for (const start of [[1, 0.3, 0.2], [0.2, 1, 0.3]]) {
    let axis = start;
    for (let turn = 0; turn < 60; turn++) {
      axis = spread.map((row) => dot(row, axis));
      for (const other of axes) {
        const share = dot(axis, other);
        axis = axis.map((value, k) => value - share * other[k]);
      }
      const size = Math.hypot(...axis) || 1;
      axis = axis.map((value) => value / size);
    }
    axes.push(axis);
  }
  const [a, b] = axes;
  axes.push([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]);
  const turned = new Float64Array(3 * length).fill(NaN);
  for (const v of seen) axes.forEach((axis, k) => (turned[3 * v + k] = dot(axis, at(v))));
  return turned;
}
