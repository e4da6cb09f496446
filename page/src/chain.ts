// A text or a protein as the line that it is: cells for what is drawn, in the middle of the picture,
// what was given drawn small beside them, a ruler below, and ties as arcs above, wider where stronger.
import type { Palette } from "./colours";
import { GraphView } from "./graph";
import type { Screen } from "./graph";
import type { Places } from "./layout";
import { arch, layLine } from "./line";
import type { Line } from "./line";
import { inscription, lettering, paint } from "./picture";
import type { Scene } from "./picture";
import { OPEN, Status } from "./run";
import type { Run } from "./run";

/** Given positions narrower than this are but part of the line. */
const SPECK = 5;
const FONT = "ui-sans-serif, system-ui, sans-serif";
/** Strengths that are written on arcs, unless somebody points at a position. */
const WRITTEN = 5;

export class ChainView extends GraphView {
  private line: Line | null = null;

  constructor(run: Run, redraw: () => void) {
    super(run, redraw, null, "chain");
  }

  protected frame(): { fit: number; left: number; top: number } {
    return { fit: 1, left: 0, top: 0 };
  }

  protected arrange(): Places {
    const { width, height } = this.surface;
    if (this.line?.width !== width || this.line.height !== height) {
      this.line = layLine(this.run, width, height);
      this.settle(this.line);
    }
    return this.line;
  }

  draw(scene: Scene): void {
    super.draw(scene);
    const words = describe(scene.run);
    if (this.surface.canvas.ariaLabel !== words) this.surface.canvas.ariaLabel = words;
  }

  protected drawEdges(scene: Scene, screen: Screen): void {
    const { run, palette } = scene;
    const { line } = this;
    if (!line) return;
    const { edges, status, strength } = run;
    const { context } = this.surface;
    const { zoom } = screen;
    const focus = scene.hovered >= 0 ? scene.hovered : scene.selected;
    const touches = (e: number): boolean => edges.from[e] === focus || edges.to[e] === focus;
    const { strongest } = run;
    const known = [...status.keys()].filter((e) => status[e] !== Status.gone);
    // Weak under strong; settled under open; what is pointed at above all.
    const rank = (e: number): number => (touches(e) ? 4 : run.isBroken(e) ? 2 : this.isSettled(e) ? 0 : 1) + (strength[e] || 0) / (strongest || 1);
    known.sort((a, b) => rank(a) - rank(b));
    const tops: [number, number, number][] = [];
    for (const e of known) {
      const [u, v] = [edges.from[e], edges.to[e]];
      const share = strongest > 0 ? (strength[e] || 0) / strongest : 0.4;
      const isSettled = this.isSettled(e) && !run.isBroken(e);
      context.strokeStyle = touches(e) ? palette.now : run.isBroken(e) ? palette.broken : isSettled ? palette.truth
        : status[e] === Status.certified ? palette.certified : palette.response;
      // What broke is seen however weak it was.
      const least = run.isBroken(e) ? 0.4 : 0;
      context.globalAlpha = touches(e) ? 1 : (focus >= 0 ? 0.35 : 1) * (0.22 + least + (0.7 - least) * share);
      context.lineWidth = (0.8 + 2 * least + 4.2 * share) * Math.min(2, zoom);
      context.beginPath();
      const [x, y, a, b] = [screen.x(u), screen.y(u), screen.x(v), screen.y(v)];
      const lift = 0.43 * line.unit * zoom;
      if (line.row[u] === line.row[v]) {
        const rise = arch(line.rise, Math.abs(line.x[u] - line.x[v])) * zoom;
        context.moveTo(x, y - lift);
        context.bezierCurveTo(x, y - lift - rise * 4 / 3, a, b - lift - rise * 4 / 3, a, b - lift);
        if (touches(e) || (share > 0.25 && !isSettled && focus < 0)) tops.push([e, (x + a) / 2, y - lift - rise]);
      } else {
        const half = (b - y) / 2;
        context.moveTo(x, y);
        context.bezierCurveTo(x, y + half, a, b - half, a, b);
        if (touches(e)) tops.push([e, (x + a) / 2, (y + b) / 2]);
      }
      context.stroke();
    }
    context.globalAlpha = 1;
    if (strongest > 0) this.writeStrengths(scene, tops.reverse(), focus >= 0 ? 16 : WRITTEN);
  }

  private isSettled(e: number): boolean {
    const { edges, committed } = this.run;
    return committed[edges.from[e]] !== OPEN || committed[edges.to[e]] !== OPEN;
  }

  /** Strengths in nats at the tops of arcs, the strongest first, where they do not cover each other. */
  private writeStrengths(scene: Scene, tops: [number, number, number][], most: number): void {
    const { context } = this.surface;
    context.font = `600 11px ${FONT}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 4;
    context.strokeStyle = scene.palette.paper;
    context.fillStyle = scene.palette.ink;
    const taken: [number, number][] = [];
    for (const [e, x, y] of tops) {
      if (taken.length === most) break;
      if (scene.run.strength[e] < 0.005) continue;
      if (taken.some(([a, b]) => Math.abs(a - x) < 34 && Math.abs(b - y) < 14)) continue;
      taken.push([x, y]);
      const words = scene.run.strength[e].toFixed(2);
      context.strokeText(words, x, y);
      context.fillText(words, x, y);
    }
  }

  protected drawDots(scene: Scene, screen: Screen): void {
    const { line } = this;
    if (!line) return;
    const { run, palette } = scene;
    const { context, width } = this.surface;
    const { zoom } = screen;
    this.drawLine(screen, palette);
    const shown = [...line.x.keys()].filter((v) => screen.x(v) > -60 && screen.x(v) < width + 60);
    context.textAlign = "center";
    context.textBaseline = "middle";
    const high = 0.86 * line.unit * zoom;
    for (const v of shown) {
      const [x, y] = [screen.x(v), screen.y(v)];
      const wide = 0.86 * line.size[v] * zoom;
      const { fill, ring, isNow } = paint(scene, v);
      const isFree = run.isFree(v);
      if (!isFree && wide < SPECK) continue;
      const tall = Math.min(high, isFree ? high : wide);
      context.beginPath();
      context.roundRect(x - wide / 2, y - tall / 2, wide, tall, tall / 2);
      context.fillStyle = fill;
      context.fill();
      if (isFree || isNow) {
        context.lineWidth = isNow ? 2.8 : ring ? 2 : 1.4;
        context.strokeStyle = isNow ? palette.now : (ring ?? (run.committed[v] === OPEN ? palette.soft : fill));
        context.stroke();
      }
      const words = inscription(scene, v, "");
      const size = Math.min(19, 0.76 * tall, (1.5 * wide) / Math.max(1, words.length));
      if (words && size > 6) {
        context.font = `600 ${size}px ${FONT}`;
        context.fillStyle = lettering(scene, v, fill);
        context.fillText(words, x, y + 0.5);
      }
      if (v === scene.hovered || v === scene.selected) {
        context.beginPath();
        context.roundRect(x - wide / 2 - 4, y - tall / 2 - 4, wide + 8, tall + 8, tall / 2 + 4);
        context.lineWidth = 2.4;
        context.strokeStyle = palette.ink;
        context.stroke();
      }
    }
    this.drawRuler(scene, screen, shown, high);
  }

  /** The chain itself, with a gap wherever a new stretch begins. */
  private drawLine(screen: Screen, palette: Palette): void {
    const { zoom } = screen;
    const line = this.line as Line;
    const { context } = this.surface;
    context.beginPath();
    for (let v = 0; v < line.x.length; v++) {
      const half = (line.size[v] / 2) * zoom;
      const isJoined = v > 0 && line.row[v] === line.row[v - 1] && !this.run.stretches.has(v);
      if (isJoined) context.lineTo(screen.x(v) + half, screen.y(v));
      else {
        context.moveTo(screen.x(v) - half, screen.y(v));
        context.lineTo(screen.x(v) + half, screen.y(v));
      }
    }
    context.strokeStyle = palette.chain;
    context.lineWidth = Math.max(2, Math.min(6, 0.16 * line.unit)) * Math.sqrt(zoom);
    context.stroke();
  }

  /** Numbers below: ends of what is free, then every tenth, wherever there is room; names of chains. */
  private drawRuler(scene: Scene, screen: Screen, shown: number[], high: number): void {
    const { run, palette } = scene;
    const { row } = this.line as Line;
    const { context } = this.surface;
    const isEnd = (v: number): boolean =>
      run.isFree(v) && (v === 0 || v === run.length - 1 || !run.isFree(v - 1) || !run.isFree(v + 1));
    const isTenth = (v: number): boolean => /0$/.test(run.label(v));
    const isTip = (v: number): boolean => v === 0 || v === run.length - 1 || run.stretches.has(v) || run.stretches.has(v + 1);
    context.textBaseline = "top";
    context.textAlign = "center";
    context.lineWidth = 1;
    const taken: [number, number, number][] = [];
    for (const [isWanted, colour, weight] of [[isEnd, palette.ink, 600], [isTip, palette.soft, 400], [isTenth, palette.soft, 400]] as const) {
      context.font = `${weight} 11px ${FONT}`;
      context.fillStyle = context.strokeStyle = colour;
      for (const v of shown) {
        if (!isWanted(v)) continue;
        const [x, y, half] = [screen.x(v), screen.y(v) + high / 2 + 4, context.measureText(run.label(v)).width / 2 + 4];
        if (taken.some(([a, b, r]) => r === row[v] && Math.abs(a - x) < b + half)) continue;
        taken.push([x, half, row[v]]);
        context.fillRect(x - 0.5, y, 1, 4);
        context.fillText(run.label(v), x, y + 6);
      }
    }
    context.font = `600 11px ${FONT}`;
    context.fillStyle = palette.soft;
    context.textAlign = "left";
    let last: string | undefined;
    for (const [v, name] of run.stretches) {
      const left = Math.min(screen.x(v) - 4, this.surface.width - 56);
      if (name !== last && name) context.fillText(`chain ${name}`, left, screen.y(v) + high / 2 + 24);
      last = name;
    }
  }
}

/** The picture in words. */
function describe(run: Run): string {
  const free = [...run.committed.keys()].filter((v) => run.isFree(v));
  const letters = free.slice(0, 400).map((v) => (run.token[v] >= 0 ? run.tokenName(run.token[v]) : "·")).join("");
  const where = free.length ? `positions ${run.label(free[0])} to ${run.label(free[free.length - 1])}` : "nothing to draw";
  const { numEdges: known, strongest } = run;
  const ties = known ? `; ${known} ${known === 1 ? "tie" : "ties"}${strongest > 0 ? ` of up to ${strongest.toFixed(2)} nats` : ""}` : "";
  return `The chain, ${where}: ${letters}${ties}`;
}
