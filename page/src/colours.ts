// Colours of both themes, and the scale that says when a position was committed.
import { interpolateLab, piecewise } from "d3-interpolate";

export interface Palette {
  ink: string;
  soft: string;
  faint: string;
  line: string;
  paper: string;
  empty: string;
  now: string;
  source: string;
  held: string;
  given: string;
  chain: string;
  response: string;
  voted: string;
  certified: string;
  broken: string;
  truth: string;
  preprocessing: string;
  probes: string;
  commits: string;
  /** First committed to last. */
  scale: string[];
}

const SHADES = 64;

const shades = (stops: string[]): string[] => {
  const at = piecewise(interpolateLab, stops);
  return Array.from({ length: SHADES }, (_, k) => at(k / (SHADES - 1)));
};

const light: Palette = {
  ink: "#1c2430",
  soft: "#5a6473",
  faint: "#98a1ad",
  line: "#e2e0d9",
  paper: "#fffefb",
  empty: "#e6e2d7",
  now: "#e0591f",
  source: "#e39a1e",
  held: "#7d8794",
  given: "#f3f1ea",
  chain: "#c4c2ba",
  response: "#7a4fc4",
  voted: "#a98be0",
  certified: "#38495f",
  broken: "#d0213f",
  truth: "#c9c5ba",
  preprocessing: "#8a94a3",
  probes: "#7a4fc4",
  commits: "#1f8a80",
  scale: shades(["#22336b", "#1f6f93", "#2a9d8a", "#8fc06c", "#e9c64f"]),
};

const dark: Palette = {
  ink: "#eef0f3",
  soft: "#a5aeba",
  faint: "#707a88",
  line: "#2c323b",
  paper: "#181c22",
  empty: "#343c47",
  now: "#ff8a4c",
  source: "#f2b64a",
  held: "#8390a1",
  given: "#20262d",
  chain: "#4a5360",
  response: "#b594f5",
  voted: "#7f68b8",
  certified: "#c3cedb",
  broken: "#ff5470",
  truth: "#3f4752",
  preprocessing: "#8a94a3",
  probes: "#a98bf0",
  commits: "#3fb8a8",
  scale: shades(["#4a63c4", "#3590bd", "#35b8a0", "#9fd077", "#f6da6b"]),
};

export type Theme = "light" | "dark";

export const palettes: Record<Theme, Palette> = { light, dark };

/** Shade of the k-th of `total` batches. */
export function shade(palette: Palette, k: number, total: number): number {
  if (total <= 1) return Math.floor(palette.scale.length / 3);
  return Math.round((k / (total - 1)) * (palette.scale.length - 1));
}
