// Where positions stand in the picture of the dependence graph.
//
// Small graphs are relaxed by forces (d3-force). Past MAX_FORCED positions a walk through every
// component is laid along a space-filling curve, in linear time: neighbours in the graph are
// neighbours on the walk, hence near on the page. A path becomes the curve itself, a star a patch
// around its hub, a matching a field of dominoes.
import { forceLink, forceManyBody, forceSimulation, forceX, forceY } from "d3-force";
import type { SimulationLinkDatum, SimulationNodeDatum } from "d3-force";

export interface Places {
  x: Float32Array;
  y: Float32Array;
  width: number;
  height: number;
  /** Distance between neighbours on the curve, the unit in which dots are sized. */
  unit: number;
}

export type Edges = { from: Int32Array; to: Int32Array };

const MAX_FORCED = 600;
const SPACING = 10;
/** Length of an edge in a relaxed graph. */
const APART = 16;
/** Share of cells that may stay empty at the end of the curve. */
const FEW = 0.002;

interface Neighbours {
  start: Int32Array;
  list: Int32Array;
}

/** Every position's neighbours, one after another. */
export function neighbours(length: number, edges: Edges): Neighbours {
  const start = new Int32Array(length + 1);
  for (const ends of [edges.from, edges.to]) for (const v of ends) start[v + 1]++;
  for (let v = 0; v < length; v++) start[v + 1] += start[v];
  const fill = start.slice(0, length);
  const list = new Int32Array(2 * edges.from.length);
  for (let e = 0; e < edges.from.length; e++) {
    const [u, v] = [edges.from[e], edges.to[e]];
    list[fill[u]++] = v;
    list[fill[v]++] = u;
  }
  return { start, list };
}

/** Vertices of a component in breadth-first order, with their parents. */
function sweep(graph: Neighbours, root: number, parent: Int32Array): number[] {
  const order = [root];
  parent[root] = root;
  for (let head = 0; head < order.length; head++) {
    const u = order[head];
    for (let k = graph.start[u]; k < graph.start[u + 1]; k++) {
      const v = graph.list[k];
      if (parent[v] === -1) {
        parent[v] = u;
        order.push(v);
      }
    }
  }
  return order;
}

/** A walk through every component, largest first; small branches come before large ones. */
export function walk(length: number, edges: Edges): Int32Array {
  const graph = neighbours(length, edges);
  const parent = new Int32Array(length).fill(-1);
  const pieces: number[][] = [];
  for (let v = 0; v < length; v++) {
    if (parent[v] !== -1) continue;
    const first = sweep(graph, v, parent);
    for (const u of first) parent[u] = -1;
    // From the far end, so that a path is walked from tip to tip.
    pieces.push(sweep(graph, first[first.length - 1], parent));
  }
  pieces.sort((a, b) => b.length - a.length || a[0] - b[0]);
  const size = new Int32Array(length).fill(1);
  const walked = new Int32Array(length);
  let place = 0;
  for (const piece of pieces) {
    for (let k = piece.length - 1; k > 0; k--) size[parent[piece[k]]] += size[piece[k]];
    const stack = [piece[0]];
    while (stack.length) {
      const u = stack.pop() as number;
      walked[place++] = u;
      const children: number[] = [];
      for (let k = graph.start[u]; k < graph.start[u + 1]; k++) {
        const v = graph.list[k];
        if (parent[v] === u && v !== u) children.push(v);
      }
      children.sort((a, b) => size[b] - size[a] || b - a);
      for (const v of children) stack.push(v);
    }
  }
  return walked;
}

/**
 * Cells of a width x height rectangle in an order whose successive cells touch: Hilbert's curve
 * for rectangles of any size, each cut into two or three until one line is left.
 */
export function curve(width: number, height: number): { x: Int32Array; y: Int32Array } {
  const x = new Int32Array(width * height);
  const y = new Int32Array(width * height);
  let place = 0;
  type Vector = [number, number];
  const half = (v: number): number => Math.floor(v / 2);
  const fill = (px: number, py: number, along: Vector, across: Vector): void => {
    const long = Math.abs(along[0] + along[1]);
    const wide = Math.abs(across[0] + across[1]);
    const step: Vector = [Math.sign(along[0]), Math.sign(along[1])];
    const side: Vector = [Math.sign(across[0]), Math.sign(across[1])];
    if (wide === 1 || long === 1) {
      const direction = wide === 1 ? step : side;
      for (let k = 0; k < Math.max(long, wide); k++) {
        x[place] = px + k * direction[0];
        y[place++] = py + k * direction[1];
      }
      return;
    }
    // An even first part keeps the parts joined.
    let near: Vector = [half(along[0]), half(along[1])];
    let low: Vector = [half(across[0]), half(across[1])];
    if (2 * long > 3 * wide) {
      if (Math.abs(near[0] + near[1]) % 2 && long > 2) near = [near[0] + step[0], near[1] + step[1]];
      fill(px, py, near, across);
      fill(px + near[0], py + near[1], [along[0] - near[0], along[1] - near[1]], across);
      return;
    }
    if (Math.abs(low[0] + low[1]) % 2 && wide > 2) low = [low[0] + side[0], low[1] + side[1]];
    fill(px, py, low, near);
    fill(px + low[0], py + low[1], along, [across[0] - low[0], across[1] - low[1]]);
    fill(
      px + along[0] - step[0] + low[0] - side[0],
      py + along[1] - step[1] + low[1] - side[1],
      [-low[0], -low[1]],
      [near[0] - along[0], near[1] - along[1]],
    );
  };
  if (width >= height) fill(0, 0, [width, 0], [0, height]);
  else fill(0, 0, [0, height], [width, 0]);
  return { x, y };
}

/** Columns as near as can be to the wanted number that leave few cells of the last row empty. */
function fewestEmpty(length: number, wanted: number): number {
  const even = 2 * Math.max(1, Math.round(wanted / 2)); // so that every step of the curve is one cell
  for (let by = 0; by < 0.2 * wanted; by += 2) {
    for (const columns of [even - by, even + by]) {
      if (columns < 2) continue;
      const empty = Math.ceil(length / columns) * columns - length;
      if (empty <= FEW * length) return columns;
    }
  }
  return even;
}

/** Without a tie to lay out, positions are read like a text. */
function inRows(length: number, columns: number): Places {
  return {
    x: Float32Array.from({ length }, (_, v) => ((v % columns) + 0.5) * SPACING),
    y: Float32Array.from({ length }, (_, v) => (Math.floor(v / columns) + 0.5) * SPACING),
    width: columns * SPACING,
    height: Math.ceil(length / columns) * SPACING,
    unit: SPACING,
  };
}

/** Positions along the curve, in a rectangle with so many columns. */
function alongCurve(order: Int32Array, columns: number): Places {
  const length = order.length;
  const rows = Math.max(1, Math.ceil(length / columns));
  const cells = curve(columns, rows);
  const places = {
    x: new Float32Array(length),
    y: new Float32Array(length),
    width: columns * SPACING,
    height: rows * SPACING,
    unit: SPACING,
  };
  for (let k = 0; k < length; k++) {
    places.x[order[k]] = (cells.x[k] + 0.5) * SPACING;
    places.y[order[k]] = (cells.y[k] + 0.5) * SPACING;
  }
  return places;
}

interface Dot extends SimulationNodeDatum {
  id: number;
}

/** Relax a small graph by forces, from its places along the curve; the same on every machine. */
function relaxed(start: Places, edges: Edges, aspect: number): Places {
  const length = start.x.length;
  const dots: Dot[] = Array.from({ length }, (_, id) => ({
    id,
    x: (start.x[id] - start.width / 2) * 2,
    y: (start.y[id] - start.height / 2) * 2,
  }));
  const links: SimulationLinkDatum<Dot>[] = Array.from(edges.from, (source, e) => ({
    source,
    target: edges.to[e],
  }));
  const simulation = forceSimulation(dots)
    .force("link", forceLink<Dot, SimulationLinkDatum<Dot>>(links).distance(APART).strength(0.9))
    .force("apart", forceManyBody().strength(-38).distanceMax(220))
    .force("x", forceX(0).strength(0.06 / Math.sqrt(aspect)))
    .force("y", forceY(0).strength(0.06 * Math.sqrt(aspect)))
    .stop();
  simulation.tick(length > 250 ? 150 : 300);
  const xs = dots.map((dot) => dot.x ?? 0);
  const ys = dots.map((dot) => dot.y ?? 0);
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  return {
    x: Float32Array.from(xs, (v) => v - left + SPACING),
    y: Float32Array.from(ys, (v) => v - top + SPACING),
    width: Math.max(...xs) - left + 2 * SPACING,
    height: Math.max(...ys) - top + 2 * SPACING,
    unit: APART,
  };
}

export function place(length: number, edges: Edges, aspect: number): Places {
  const columns = fewestEmpty(length, Math.sqrt(length * aspect));
  if (!edges.from.length) return inRows(length, columns);
  const start = alongCurve(walk(length, edges), columns);
  return length <= MAX_FORCED ? relaxed(start, edges, aspect) : start;
}
