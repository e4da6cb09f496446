// How positions look, the same in the graph, on the strip and on a backbone.
import type { Palette } from "./colours";
import { shade } from "./colours";
import { GIVEN, OPEN } from "./run";
import type { Run } from "./run";
import type { Look } from "./stage";
import { HELD, READOUT, SOURCE } from "./stage";

export interface Scene {
  run: Run;
  palette: Palette;
  look: Look | null;
  hovered: number;
  selected: number;
  showTruth: boolean;
}

export interface Paint {
  fill: string;
  ring: string | null;
  isNow: boolean;
}

/** A violet that grows with how far the row moved; a move that can be told is never invisible. */
const GLOW = 16;
const glows = new Map<string, string[]>();

function glow(palette: Palette, response: number): string {
  let shades = glows.get(palette.response);
  if (!shades) {
    shades = Array.from({ length: GLOW + 1 }, (_, k) => mix(palette.empty, palette.response, k ? 0.16 + (0.84 * k) / GLOW : 0));
    glows.set(palette.response, shades);
  }
  return shades[Math.min(GLOW, Math.ceil(response * GLOW))];
}

function mix(from: string, to: string, share: number): string {
  const [a, b] = [rgb(from), rgb(to)];
  return `rgb(${[0, 1, 2].map((k) => Math.round(a[k] + (b[k] - a[k]) * share)).join(",")})`;
}

export function paint(scene: Scene, v: number): Paint {
  const { run, palette, look } = scene;
  const when = run.committed[v];
  // What a probe masks and reads shows how far it moved, even where a value was drawn before.
  if (look && look.role[v] & READOUT) {
    return { fill: glow(palette, look.response[v]), ring: palette.voted, isNow: false };
  }
  if (when === GIVEN) return { fill: palette.given, ring: null, isNow: false };
  if (when !== OPEN) {
    const { batch } = run.steps[when];
    return { fill: palette.scale[shade(palette, batch, run.numBatches)], ring: null, isNow: when === run.at };
  }
  if (!look) return { fill: palette.empty, ring: null, isNow: isSpoken(run, v) };
  if (look.role[v] & SOURCE) return { fill: palette.source, ring: null, isNow: false };
  return { fill: look.role[v] & HELD ? palette.held : palette.empty, ring: null, isNow: false };
}

/** Whether the step at hand is about this open position without committing it. */
function isSpoken(run: Run, v: number): boolean {
  const step = run.steps[run.at];
  return step.type === "hubs" && step.positions.includes(v);
}

/** What is written on a position: its letter, drawn or shown in a probe, where tokens are letters. */
export function inscription({ run, look }: Scene, v: number, whileOpen = run.label(v)): string {
  if (!run.hasLetters) return run.label(v);
  const token = run.token[v] >= 0 ? run.token[v] : (look?.shown?.[v] ?? OPEN);
  return token >= 0 ? run.tokenName(token) : whileOpen;
}

const channels = new Map<string, [number, number, number]>();

/** Red, green and blue of "#rrggbb" or "rgb(r, g, b)". */
export function rgb(colour: string): [number, number, number] {
  let found = channels.get(colour);
  if (!found) {
    const parts = colour.startsWith("#")
      ? [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16))
      : (colour.match(/\d+/g) ?? []).map(Number);
    found = [parts[0] ?? 0, parts[1] ?? 0, parts[2] ?? 0];
    channels.set(colour, found);
  }
  return found;
}

/** The colour of a letter on a position; what was given is dimmed. */
export const lettering = ({ run, palette, look }: Scene, v: number, fill: string): string =>
  run.committed[v] === GIVEN && !look?.role[v] ? palette.soft : readable(fill);

/** Black or white, whichever is read better on a colour of the scale. */
export function readable(fill: string): string {
  const [r, g, b] = rgb(fill);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#14181f" : "#ffffff";
}
