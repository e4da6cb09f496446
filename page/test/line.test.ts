// The line of a text: what is free stands in the middle and is large enough, everything stays inside.
import assert from "node:assert/strict";
import { test } from "node:test";
import { caption } from "../src/captions";
import { layLine } from "../src/line";
import { readTraces } from "../src/decode";
import type { Event } from "../src/decode";
import { Run } from "../src/run";

const END = { type: "end", stop: "completed", reason: "", notes: [], batch_kl: null };

/** A chain of letters, masked where `free` says. */
const makeRun = (length: number, free: (v: number) => boolean, events: Event[] = [], header = {}): Run => {
  const given = Array.from({ length }, (_, v) => (free(v) ? -1 : 0));
  const document = {
    format: "counterprobe trace", version: 1, events,
    header: { length, vocab_size: 3, tokens: ["A", "C", "D"], given, positions: given.map((_, v) => String(v + 1)), ...header },
  };
  return new Run(readTraces(JSON.stringify(document), "run.json")[0]);
};

const SIZES = [[888, 358], [366, 270], [366, 359]];
const SHAPES: [number, (v: number) => boolean][] = [
  [119, (v) => v >= 98 && v < 106], [119, (v) => v < 3], [119, (v) => v === 118], [76, () => true], [1, () => true],
  [214, () => true], [118, (v) => (v >= 25 && v < 33) || (v >= 50 && v < 58) || (v >= 96 && v < 107)],
  [900, (v) => v % 9 === 0], [40, () => false], [5000, () => true], [5000, (v) => v === 2500],
];

test("a line stays inside its picture, in order, without overlap", () => {
  for (const [width, height] of SIZES) {
    for (const [length, free] of SHAPES) {
      for (const stretches of [null, [[0, "A"], [Math.floor(length / 2), "B"]]]) {
        const { x, y, size, row } = layLine(makeRun(length, free, [], { stretches }), width, height);
        for (let v = 0; v < length; v++) {
          assert.ok(size[v] > 0 && x[v] - size[v] / 2 >= -0.01 && x[v] + size[v] / 2 <= width + 0.01, `${v} of ${length} at ${x[v]}`);
          assert.ok(y[v] > 0 && y[v] < height, `${v} of ${length} at height ${y[v]}`);
          if (v && row[v] === row[v - 1]) assert.ok(x[v] - size[v] / 2 >= x[v - 1] + size[v - 1] / 2 - 0.01);
          else if (v) assert.ok(row[v] === row[v - 1] + 1 && y[v] > y[v - 1]);
        }
      }
    }
  }
});

test("what is free stands in the middle, where a letter can be read", () => {
  for (const [width, height] of SIZES) {
    for (const [length, free] of SHAPES.slice(0, 3)) {
      const { x, size } = layLine(makeRun(length, free), width, height);
      const where = [...x.keys()].filter(free);
      const middle = (x[where[0]] + x[where[where.length - 1]]) / 2;
      assert.ok(Math.abs(middle - width / 2) < 0.2 * width, `${middle} of ${width}`);
      for (const v of where) assert.ok(size[v] >= 11);
    }
    // Loops stay whole, one to a row where they must be wrapped.
    const loops: [number, number[][]][] = [[0, [[98, 106]]], [6, [[25, 33], [50, 58], [96, 107]]]];
    for (const [shape, places] of loops) {
      const { row, size } = layLine(makeRun(...SHAPES[shape]), width, height);
      for (const [from, until] of places) {
        for (let v = from; v < until; v++) assert.ok(row[v] === row[from] && size[v] >= 11);
      }
    }
  }
});

test("a text opens where there is more to see than masks; a law at its start", () => {
  const probe = { type: "probe", purpose: "draft", count: 1, read: "masked" };
  const graph = { type: "graph", pairs: [[0, 1]], status: [4], strength: [0.25] };
  const commit = { type: "commit", positions: [0], tokens: [1] };
  assert.equal(makeRun(4, () => true, [{ type: "preprocess" }, probe, graph, commit]).opening, 3);
  assert.equal(makeRun(4, () => true, [probe, commit]).opening, 2);
  assert.equal(makeRun(4, () => true, [{ ...probe, shown: [[1, -1, -1, -1]] }, commit]).opening, 1);
  assert.equal(makeRun(4, () => false, [END]).opening, 0);
  assert.equal(makeRun(4, () => true, [commit], { true_edges: [[0, 1]] }).opening, 0);
});

test("the end says what broke: measured, not measured, or nothing", () => {
  const graph = { type: "graph", pairs: [[0, 1], [1, 2]], status: [4, 4], strength: [0.25, 0.5] };
  const commit = (...positions: number[]): Event => ({ type: "commit", positions, tokens: positions.map(() => 1) });
  const said = (...events: Event[]): string => {
    const run = makeRun(3, () => true, [graph, ...events], { beside: { discovery: 64 } });
    run.seek(run.steps.length - 1);
    return caption(run).words;
  };
  assert.match(said(commit(0, 1), commit(2), END), /Discovery took 64 more.*not measured; of 2 known ties, 1 had both ends drawn at once\./);
  assert.match(said(commit(0, 2), commit(1), END), /not measured; of 2 known ties, 0 had both/);
  assert.match(said(commit(0), commit(1), commit(2), END), /Every position was drawn alone: nothing was broken/);
  assert.match(said(commit(0, 1), commit(2), { ...END, batch_kl: 0.125 }), /measured: 0\.13 nats/);
  assert.doesNotMatch(said(commit(0, 1), commit(2), { ...END, batch_kl: 0.125 }), /not measured/);
});

test("strengths follow the step, and labels are what a search means", () => {
  const events = [
    { type: "graph", pairs: [[0, 1], [1, 2]], status: [4, 4], strength: [0.25, 0.5] },
    { type: "graph", pairs: [[1, 2]], status: [0] },
  ];
  const run = makeRun(3, () => true, events);
  run.seek(1);
  assert.equal(run.strongest, 0.5);
  run.seek(2);
  assert.equal(run.strongest, 0.25);
  run.seek(0);
  assert.equal(run.strongest, 0);
  assert.deepEqual(["1", "3", "0", "4", ""].map((query) => run.find(query)), [0, 2, -1, -1, -1]);
});
