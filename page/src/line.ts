// Where the positions of a text stand on its line: what is free in the middle and large enough for a
// letter, what was given beside it readable, and the rest of it in whatever room is left. Where one
// line has no room for letters it is wrapped, between loops where it can be.
import type { Places } from "./layout";
import type { Run } from "./run";

/** Pixels: margins, the head with its buttons, and what the ruler takes below a row. */
const [SIDE, HEAD, RULER] = [18, 46, 44];
/** Widths of cells in pixels: the last is the smallest that a letter is read in. */
const [LARGEST, EASY, READABLE] = [44, 22, 11];
/** Given positions so near to a free one are large, too. */
const NEAR = 4;
/** The most pixels of a small position, and the most of a line that all of them take. */
const [SMALL, SHARE] = [6, 0.3];
/** The least of a line for small positions at either end. */
const FLANK = 0.14;
/** Gap before a new stretch of chain, in cells, and in pixels where positions are small. */
const [GAP, SLIT] = [0.8, 6];

export interface Line extends Places {
  /** Width of each position, in pixels. */
  size: Float32Array;
  row: Int32Array;
  /** How high arcs may rise above a row. */
  rise: number;
}

const sum = (values: Iterable<number>): number => [...values].reduce((all, value) => all + value, 0);

/** Widths in cells, gaps included; 0 for a position that takes what room is left. */
function cellsOf(run: Run): Float32Array {
  const cells = new Float32Array(run.length);
  const isNear = new Uint8Array(run.length);
  for (let v = 0; v < run.length; v++) {
    if (run.isFree(v)) isNear.fill(1, Math.max(0, v - NEAR), v + NEAR + 1);
  }
  if (!isNear.includes(1)) isNear.fill(1);
  for (let v = 0; v < run.length; v++) {
    if (!isNear[v]) continue;
    const wide = Math.max(1, 0.5 + 0.34 * run.nameLength(v));
    cells[v] = (run.isFree(v) ? 1 : 0.8) * wide + (v && run.stretches.has(v) ? GAP : 0);
  }
  return cells;
}

/** Stretches of large cells: where each begins and ends. */
function blocksOf(cells: Float32Array): [number, number][] {
  const blocks: [number, number][] = [];
  cells.forEach((cell, v) => {
    if (cell && v && cells[v - 1]) blocks[blocks.length - 1][1] = v + 1;
    else if (cell) blocks.push([v, v + 1]);
  });
  return blocks;
}

/** Where everything stands in a picture of this size. */
export function layLine(run: Run, width: number, height: number): Line {
  const { length, stretches } = run;
  const cells = cellsOf(run);
  const blocks = blocksOf(cells);
  const [first, last] = [blocks[0][0], blocks[blocks.length - 1][1]];
  const [before, after] = [first, length - last];
  const between = cells.subarray(first, last).filter((cell) => !cell).length;
  const small = before + between + after;
  const slits = [...stretches.keys()].filter((v) => v && !cells[v]).length;
  const room = width - 2 * SIDE - SLIT * Math.min(20, slits);
  const large = sum(cells);

  const inner = Math.min(SMALL * between, SHARE * room);
  const flanks = FLANK * room * (Number(before > 0) + Number(after > 0));
  let unit = Math.min(LARGEST, (room - inner - flanks) / large);
  // Arcs want one line, and loops want theirs; letters alone may have wide cells on several.
  const enough = run.edges.from.length || small ? READABLE : EASY;
  const most = Math.max(1, Math.floor((height - HEAD) / (RULER + 2 * READABLE)));
  let rows = 1;
  while (unit < enough && rows < most) {
    const all = ++rows * room;
    unit = Math.min(LARGEST, (all - Math.min(SMALL * small, SHARE * all)) / (large + rows));
  }
  const isWrapped = rows > 1;
  const span = unit * large + inner;
  const rest = (v: number): number => {
    if (isWrapped) return Math.min(SMALL, (SHARE * rows * room) / small);
    const isInside = v >= first && v < last;
    return Math.min(0.6 * unit, isInside ? inner / between : (room - span) / 2 / (v < first ? before : after));
  };
  // A loop that fits into a row is not cut.
  const needed = new Float32Array(length);
  for (const [from, until] of blocks) {
    const wide = sum(cells.subarray(from, until)) * unit;
    if (wide <= room) needed[from] = wide;
  }

  const [x, y, size] = [new Float32Array(length), new Float32Array(length), new Float32Array(length)];
  const row = new Int32Array(length);
  let [at, now, chain] = [isWrapped ? SIDE : (width - span) / 2 - (before && before * rest(0)), 0, stretches.get(0)];
  for (let v = 0; v < length; v++) {
    const gap = v && stretches.has(v) ? (cells[v] ? GAP * unit : SLIT) : 0;
    const slot = cells[v] ? cells[v] * unit : rest(v) + gap;
    const isNewChain = gap > 0 && stretches.get(v) !== chain && at > 0.6 * width;
    if (isWrapped && (isNewChain || at + Math.max(slot, needed[v]) > width - SIDE)) [at, now] = [SIDE, now + 1];
    chain = stretches.get(v) ?? chain;
    size[v] = slot - gap;
    x[v] = at + slot - size[v] / 2;
    row[v] = now;
    at += slot;
  }
  const line = { x, y, size, row, width, height, unit, rise: 0 };
  if (isWrapped && small) centre(line);
  raise(run, line, now + 1);
  return line;
}

/** Every row in the middle. */
function centre({ x, size, row, width }: Line): void {
  for (let from = 0, until = 0; from < x.length; from = until) {
    while (until < x.length && row[until] === row[from]) until++;
    const [left, right] = [x[from] - size[from] / 2, x[until - 1] + size[until - 1] / 2];
    for (let v = from; v < until; v++) x[v] += (width - left - right) / 2;
  }
}

/** Rows at heights that leave room for the arcs between them, the whole in the middle. */
function raise(run: Run, line: Line, rows: number): void {
  const { edges } = run;
  const band = (line.height - HEAD) / rows;
  line.rise = Math.max(0, band - line.unit - RULER);
  let tallest = 0;
  edges.from.forEach((u, e) => {
    const v = edges.to[e];
    const high = line.row[u] === line.row[v] ? arch(line.rise, Math.abs(line.x[u] - line.x[v])) : line.rise;
    tallest = Math.max(tallest, high);
  });
  const each = Math.min(band, tallest + line.unit + RULER + 8);
  const top = HEAD + (line.height - HEAD - rows * each) / 2;
  line.row.forEach((row, v) => (line.y[v] = top + (row + 1) * each - RULER - line.unit / 2));
}

/** How high an arc rises over so wide a gap: as high as it is wide, and never out of the picture. */
export const arch = (rise: number, wide: number): number =>
  rise * (1 - Math.exp(-wide / (1.3 * Math.max(1, rise))));
