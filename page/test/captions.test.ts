// What a step says: a run that draws, one that only discovers, and which of many it is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { caption } from "../src/captions";
import { readTraces } from "../src/decode";
import type { Event } from "../src/decode";
import { Run } from "../src/run";

const LEDGER = { preprocessing: 1, probes: 20, commits: 0, stages: 3 };
const EVENTS: Event[] = [
  { type: "preprocess", positions: [0, 1, 2, 3], ledger: [1, 0, 0, 1, 4] },
  { type: "probe", purpose: "first", count: 20, ledger: [1, 20, 0, 2, 40] },
  { type: "graph", purpose: "first", pairs: [[0, 1], [1, 3], [2, 3]], status: [1, 1, 1] },
  { type: "graph", purpose: "terminal", pairs: [[0, 1], [1, 3], [2, 3]], status: [2, 0, 2] },
  { type: "end", stop: "discovered", reason: "", notes: ["one more thing"], ledger: LEDGER },
];

const makeRun = (header: object, events = EVENTS): Run => {
  const document = { format: "counterprobe trace", version: 1, header: { length: 4, vocab_size: 5, ...header }, events };
  return new Run(readTraces(JSON.stringify(document), "run.json")[0]);
};

const captions = (run: Run): string[] =>
  run.steps.map((_, step) => {
    run.seek(step);
    const { headline, words } = caption(run);
    return `${headline}. ${words}`;
  });

test("a discovery says at its start and its end that nothing is drawn", () => {
  const said = captions(makeRun({ task: "discover" }));
  assert.match(said[0], /Which of 4 positions depend on each other\?.*Nothing is drawn here/);
  assert.match(said[4], /The graph that samples will commit by: 2 edges/);
  assert.match(said[5], /2 edges found after 21 evaluations; nothing was drawn\. Spent once, in 3 stages.*would take 4\. One more thing\./);
  assert.doesNotMatch(said.join(" "), /true tie|to draw|Done after/);
});

test("a discovery is held against the true ties where they are known", () => {
  const [right, wrong] = [[[1, 0], [3, 2], [0, 3]], [[1, 2]]].map((true_edges) =>
    captions(makeRun({ task: "discover", true_edges }))[5]);
  assert.match(right, /2 of 3 true ties found\. /);
  assert.match(wrong, /0 of 1 true tie found, and 2 pairs that the law does not tie directly\. /);
});

test("a discovery in vain says why", () => {
  const events = [...EVENTS.slice(0, 2), { type: "end", stop: "infeasible", reason: "nothing explains the rows", ledger: LEDGER }];
  assert.equal(captions(makeRun({ task: "discover" }, events))[3], "The run stopped: infeasible. nothing explains the rows");
});

test("a run that draws is told as before", () => {
  const said = captions(makeRun({ task: "sample" }));
  assert.match(said[0], /4 positions to draw, all masked/);
  assert.match(said[4], /The graph to commit by: 2 edges/);
  assert.deepEqual(captions(makeRun({})), said);
});

test("one of many sequences says which", () => {
  assert.equal(makeRun({ sequence: 0, count: 5 }).place, "sequence 1 of 5");
  assert.equal(makeRun({ sequence: 4, count: 5 }).place, "sequence 5 of 5");
  for (const header of [{}, { sequence: 0 }, { sequence: 0, count: 1 }, { sequence: 5, count: 5 }, { sequence: "0", count: [3] }]) {
    assert.equal(makeRun(header).place, "");
  }
});
