// Where positions stand: every cell once, every step of the curve short, neighbours near.
import assert from "node:assert/strict";
import { test } from "node:test";
import { curve, neighbours, place, walk } from "../src/layout";
import type { Edges } from "../src/layout";

const edges = (pairs: number[][]): Edges => ({
  from: Int32Array.from(pairs, (pair) => pair[0]),
  to: Int32Array.from(pairs, (pair) => pair[1]),
});

const path = (length: number): Edges => edges([...Array(length - 1).keys()].map((v) => [v, v + 1]));

/** A forest on shuffled labels, the same for the same seed. */
function forest(length: number, seed: number): Edges {
  let state = seed;
  const random = (): number => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
  const names = [...Array(length).keys()];
  for (let v = length - 1; v > 0; v--) {
    const u = Math.floor(random() * (v + 1));
    [names[u], names[v]] = [names[v], names[u]];
  }
  const pairs: number[][] = [];
  for (let v = 1; v < length; v++) if (random() < 0.8) pairs.push([names[v], names[Math.floor(random() * v)]]);
  return edges(pairs);
}

test("the curve visits every cell once", () => {
  for (let width = 1; width <= 13; width++) {
    for (let height = 1; height <= 13; height++) {
      const { x, y } = curve(width, height);
      const cells = new Set(Array.from(x, (value, k) => `${value},${y[k]}`));
      assert.equal(cells.size, width * height);
      assert.ok(x.every((value) => value >= 0 && value < width));
      assert.ok(y.every((value) => value >= 0 && value < height));
    }
  }
});

test("with an even width every step of the curve leads to a cell beside it", () => {
  for (const [width, height] of [[2, 2], [4, 3], [8, 8], [10, 7], [20, 9], [64, 33]]) {
    const { x, y } = curve(width, height);
    for (let k = 1; k < x.length; k++) {
      assert.equal(Math.abs(x[k] - x[k - 1]) + Math.abs(y[k] - y[k - 1]), 1, `${width}x${height} at ${k}`);
    }
  }
});

test("a walk names every position once, a component at a time", () => {
  for (let seed = 1; seed < 30; seed++) {
    const ties = forest(40, seed);
    const order = walk(40, ties);
    assert.deepEqual(Array.from(order).sort((a, b) => a - b), [...Array(40).keys()]);
    // Each position but the first of a component is tied to one walked before it.
    const graph = neighbours(40, ties);
    const at = new Int32Array(40);
    order.forEach((v, k) => (at[v] = k));
    let components = 0;
    for (const v of order) {
      const tied = Array.from(graph.list.subarray(graph.start[v], graph.start[v + 1]));
      if (!tied.some((u) => at[u] < at[v])) components++;
    }
    assert.equal(components, 40 - ties.from.length);
  }
});

test("a path is walked from end to end", () => {
  const order = Array.from(walk(9, path(9)));
  assert.deepEqual(order[0] === 0 ? order : order.reverse(), [...Array(9).keys()]);
});

test("a long path runs along the curve: every tie is one unit long", () => {
  const { x, y, unit } = place(5000, path(5000), 2);
  for (let v = 1; v < 5000; v++) {
    assert.equal(Math.hypot(x[v] - x[v - 1], y[v] - y[v - 1]), unit);
  }
});

test("places are inside, apart and the same every time", () => {
  for (const [length, ties] of [[1, edges([])], [2, path(2)], [7, edges([])], [60, forest(60, 3)], [900, forest(900, 4)]] as const) {
    const one = place(length, ties, 1.7);
    const two = place(length, ties, 1.7);
    assert.deepEqual(one, two);
    assert.equal(new Set(Array.from(one.x, (value, v) => `${value},${one.y[v]}`)).size, length);
    assert.ok(one.x.every((value) => value >= 0 && value <= one.width));
    assert.ok(one.y.every((value) => value >= 0 && value <= one.height));
  }
});
