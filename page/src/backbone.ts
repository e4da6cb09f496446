// A protein on its backbone: one dot a residue, turned by dragging, and slowly while playing.
import { Surface } from "./dom";
import type { GraphView } from "./graph";
import { inscription, paint, readable } from "./picture";
import type { Scene } from "./picture";
import { OPEN, Status } from "./run";
import type { Run } from "./run";

const MARGIN = 30;

export class BackboneView implements Pick<GraphView, "surface" | "hit" | "draw" | "zoomBy" | "reset" | "show"> {
  readonly surface: Surface;
  private yaw = 0.6;
  private pitch = -0.35;
  private zoom = 1;
  /** Centred coordinates, then where they fall on the canvas and how near they are. */
  private readonly centred: Float64Array;
  private readonly reach: number;
  private readonly at: { x: Float64Array; y: Float64Array; depth: Float64Array };

  constructor(
    private readonly run: Run,
    private readonly redraw: () => void,
  ) {
    this.surface = new Surface("The protein's backbone, one dot a residue", "backbone");
    const { length } = run;
    const data = run.coordinates?.data ?? new Float64Array(3 * length);
    this.centred = new Float64Array(3 * length);
    let reach = 1;
    for (let axis = 0; axis < 3; axis++) {
      let [sum, seen] = [0, 0];
      for (let v = 0; v < length; v++) {
        if (Number.isFinite(data[3 * v + axis])) [sum, seen] = [sum + data[3 * v + axis], seen + 1];
      }
      for (let v = 0; v < length; v++) this.centred[3 * v + axis] = data[3 * v + axis] - sum / Math.max(1, seen);
    }
    for (let v = 0; v < length; v++) {
      const distance = Math.hypot(...this.centred.subarray(3 * v, 3 * v + 3));
      if (distance > reach) reach = distance;
    }
    this.reach = reach;
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
    [this.yaw, this.pitch, this.zoom] = [0.6, -0.35, 1];
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
    const scale = ((Math.min(width, height) / 2 - MARGIN) / this.reach) * this.zoom * 1.15;
    const [cy, sy] = [Math.cos(this.yaw), Math.sin(this.yaw)];
    const [cp, sp] = [Math.cos(this.pitch), Math.sin(this.pitch)];
    for (let v = 0; v < this.run.length; v++) {
      const [x, y, z] = this.centred.subarray(3 * v, 3 * v + 3);
      const turned = x * cy + z * sy;
      const back = z * cy - x * sy;
      this.at.x[v] = width / 2 + turned * scale;
      this.at.y[v] = height / 2 - (y * cp - back * sp) * scale;
      this.at.depth[v] = (y * sp + back * cp) / this.reach;
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
    const base = Math.max(2.4, Math.min(11, (Math.min(surface.width, surface.height) / Math.sqrt(run.length)) * 0.13)) * Math.sqrt(this.zoom);
    this.drawTies(scene);
    context.lineCap = "round";
    for (let v = 1; v < run.length; v++) {
      if (isNaN(x[v]) || isNaN(x[v - 1])) continue;
      context.globalAlpha = 0.35 + 0.3 * (1 + (depth[v] + depth[v - 1]) / 2);
      context.strokeStyle = palette.faint;
      context.lineWidth = base * 0.5;
      context.beginPath();
      context.moveTo(x[v - 1], y[v - 1]);
      context.lineTo(x[v], y[v]);
      context.stroke();
    }
    const order = Array.from(depth.keys()).filter((v) => !isNaN(x[v])).sort((a, b) => depth[a] - depth[b]);
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const v of order) {
      const { fill, ring, isNow } = paint(scene, v);
      const radius = base * (1 + 0.28 * depth[v]);
      context.globalAlpha = 0.55 + 0.225 * (1 + depth[v]);
      context.beginPath();
      context.arc(x[v], y[v], radius, 0, 2 * Math.PI);
      context.fillStyle = fill;
      context.fill();
      context.globalAlpha = 1;
      context.lineWidth = isNow || ring ? 2 : 1;
      context.strokeStyle = isNow ? palette.now : (ring ?? (run.committed[v] === OPEN ? palette.faint : palette.paper));
      context.stroke();
      if (radius > 7 && run.hasLetters && run.token[v] >= 0) {
        context.fillStyle = readable(fill);
        context.font = `600 ${radius * 1.15}px ui-sans-serif, system-ui, sans-serif`;
        context.fillText(inscription(run, v).slice(0, 1), x[v], y[v] + 0.5);
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

  /** Ties between open residues, under the chain. */
  private drawTies(scene: Scene): void {
    const { run, at } = this;
    const { context } = this.surface;
    const { edges, status, committed } = run;
    context.globalAlpha = 0.5;
    context.strokeStyle = scene.palette.voted;
    context.lineWidth = 1;
    context.beginPath();
    for (let e = 0; e < edges.from.length; e++) {
      const [u, v] = [edges.from[e], edges.to[e]];
      const focus = scene.hovered >= 0 ? scene.hovered : scene.selected;
      const touched = focus === u || focus === v;
      if (status[e] === Status.gone || (!touched && (committed[u] !== OPEN || committed[v] !== OPEN))) continue;
      context.moveTo(at.x[u], at.y[u]);
      context.lineTo(at.x[v], at.y[v]);
    }
    context.stroke();
    context.globalAlpha = 1;
  }
}
