// Seeking is replaying; a stage's looks are what its arrays say; two runs advance by what they spent.
import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import { readTraces, table, TraceError } from "../src/decode";
import type { Event } from "../src/decode";
import { OPEN, Run } from "../src/run";
import { HELD, READOUT, SOURCE, Stage } from "../src/stage";
import { Timeline } from "../src/timeline";

function generator(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return Math.floor((state / 2147483648) * below);
  };
}

const makeRun = (length: number, events: Event[], header = {}): Run => {
  const document = {
    format: "counterprobe trace", version: 1, header: { length, vocab_size: 5, ...header }, events,
  };
  return new Run(readTraces(JSON.stringify(document), "run.json")[0]);
};

/** Commits, remasks and changes of edges at random, with an account that grows. */
function randomEvents(length: number, count: number, seed: number): Event[] {
  const random = generator(seed);
  const ledger = [0, 0, 0, 0, 0];
  const events: Event[] = [];
  for (let k = 0; k < count; k++) {
    const v = random(length);
    const u = (v + 1 + random(length - 1)) % length;
    const kind = random(4);
    if (kind === 0) events.push({ type: "remask", positions: [v] });
    else if (kind === 1) events.push({ type: "graph", pairs: [[u, v]], status: [random(5)] });
    else if (kind === 2) {
      ledger[1] += 1 + random(9);
      events.push({ type: "probe", purpose: "probe", count: 1, ledger: [...ledger] });
    } else {
      ledger[2]++;
      events.push({ type: "commit", positions: [v], tokens: [random(5)], ledger: [...ledger] });
    }
  }
  return events;
}

test("seeking anywhere gives what replaying from the start gives", () => {
  for (let seed = 1; seed < 12; seed++) {
    const events = randomEvents(6, 40, seed);
    const run = makeRun(6, events);
    const random = generator(seed + 100);
    for (let look = 0; look < 60; look++) {
      const step = random(41);
      run.seek(step);
      const [token, status] = [new Map<number, number>(), new Map<string, number>()];
      for (const event of events.slice(0, step)) {
        const [v] = (event.positions as number[]) ?? [];
        if (event.type === "commit") token.set(v, (event.tokens as number[])[0]);
        if (event.type === "remask") token.delete(v);
        if (event.type === "graph") {
          const [pair] = event.pairs as number[][];
          status.set(String([...pair].sort()), (event.status as number[])[0]);
        }
      }
      for (let v = 0; v < 6; v++) assert.equal(run.token[v], token.get(v) ?? OPEN);
      assert.equal(run.numCommitted, token.size);
      run.edges.from.forEach((from, e) => {
        assert.equal(run.status[e], status.get(String([from, run.edges.to[e]])) ?? 0);
      });
    }
  }
});

test("ties are ignored when both ends are drawn in one batch, and only then", () => {
  const commit = (...where: number[]): Event => ({ type: "commit", positions: where, tokens: where.map(() => 0) });
  const run = makeRun(4, [commit(0, 1), commit(2), commit(3)], { true_edges: [[0, 1], [1, 2], [2, 3]] });
  assert.deepEqual(Array.from(run.ignored), [0]);
});

test("a whole stage averages what its states show one by one", () => {
  const random = generator(7);
  const [states, length] = [9, 11];
  const shown = Array.from({ length: states }, () =>
    Array.from({ length }, (_, v) => (v === 0 ? -2 : v === 1 ? 3 : random(3) - 1)));
  const response = shown.flat().filter((value) => value === -1).map(() => random(16));
  const event: Event = { type: "probe", count: states, shown, unit: "token", read: "masked", response };
  const stage = new Stage(makeRun(length, [event]), event);
  const whole = stage.look(null);
  let reply = 0;
  const seen: number[][] = Array.from({ length }, () => []);
  shown.forEach((state, s) => {
    const look = stage.look(s);
    state.forEach((value, v) => {
      if (value === -1) {
        assert.equal(look.response[v], Math.fround(response[reply] / 15));
        assert.equal(look.role[v], READOUT);
        seen[v].push(response[reply++] / 15);
      } else {
        assert.ok(isNaN(look.response[v]));
        assert.equal(look.role[v], value === -2 ? 0 : new Set(shown.map((row) => row[v]).filter((x) => x >= 0)).size > 1 ? SOURCE : HELD);
        assert.equal(look.shown?.[v], value === -2 ? -1 : value);
      }
    });
  });
  seen.forEach((values, v) => {
    if (!values.length) assert.ok(isNaN(whole.response[v]));
    else assert.ok(Math.abs(whole.response[v] - values.reduce((a, b) => a + b) / values.length) < 1e-6);
  });
  assert.equal(whole.role[0], 0);
  assert.equal(whole.role[1], HELD);
});

test("a packed screen shows who moved while a color varied", () => {
  const [colors, moved] = [[[0, 1, 1]], [[[0, 1, 0], [1, 0, 0]]]];
  const screen = { residual: [0, 1, 2], num_colors: 2, num_colorings: 1, colors, moved: bits(moved.flat(2), [1, 2, 3]) };
  const event: Event = { type: "probe", purpose: "screen", count: 6, screen };
  const stage = new Stage(makeRun(3, [event]), event);
  assert.equal(stage.count, 2);
  const first = stage.look(0);
  assert.deepEqual(Array.from(first.role), [SOURCE, READOUT, READOUT]);
  assert.deepEqual(Array.from(first.response), [NaN, 1, 0]);
  assert.deepEqual(Array.from(stage.look(null).response), [1, 1, 0]);
});

const bits = (flags: number[], shape: number[]): object => {
  const bytes = new Uint8Array(Math.ceil(flags.length / 8));
  flags.forEach((flag, k) => (bytes[k >> 3] |= flag << (k & 7)));
  return { dtype: "bits", shape, data: deflateSync(bytes).toString("base64") };
};

test("packed arrays hold what was packed", () => {
  const pack = (values: Uint8Array | Int16Array | Float32Array, dtype: string, more = {}): object => ({
    dtype, shape: [values.length], data: deflateSync(new Uint8Array(values.buffer)).toString("base64"), ...more,
  });
  assert.deepEqual(Array.from(table(pack(Int16Array.of(-3, 0, 700), "i2"))?.data ?? []), [-3, 0, 700]);
  assert.deepEqual(Array.from(table(pack(Float32Array.of(0.5, -2), "f4"))?.data ?? []), [0.5, -2]);
  assert.deepEqual(Array.from(table(pack(Uint8Array.of(0, 2), "u1", { scale: 0.25 }))?.data ?? []), [0, 0.5]);
  assert.deepEqual(Array.from(table(bits([1, 0, 1, 1, 0, 0, 0, 0, 1], [3, 3]))?.data ?? []), [1, 0, 1, 1, 0, 0, 0, 0, 1]);
  assert.equal(table(null), null);
  assert.throws(() => table({ ...pack(Uint8Array.of(1, 2, 3), "u1"), shape: [2] }), TraceError);
  assert.throws(() => table({ ...pack(Uint8Array.of(1, 2, 3), "u1"), shape: [4] }), TraceError);
});

test("two runs advance one step at a time, whoever has spent least next", () => {
  for (let seed = 1; seed < 8; seed++) {
    const runs = [makeRun(6, randomEvents(6, 15, seed)), makeRun(6, randomEvents(6, 9, seed + 50))];
    const timeline = new Timeline(runs);
    assert.equal(timeline.length, 25);
    const spent = (r: number, step: number): number => {
      const { preprocessing, probes, commits } = runs[r].steps[step].ledger;
      return preprocessing + probes + commits;
    };
    for (let tick = 1; tick < timeline.length; tick++) {
      const moved = [0, 1].filter((r) => timeline.step(tick, r) !== timeline.step(tick - 1, r));
      assert.equal(moved.length, 1);
      const [mover] = moved;
      assert.equal(timeline.mover(tick), mover);
      const next = timeline.step(tick - 1, 1 - mover) + 1;
      if (next < runs[1 - mover].steps.length) {
        assert.ok(spent(mover, timeline.step(tick, mover)) <= spent(1 - mover, next));
      }
    }
    assert.deepEqual([0, 1].map((r) => timeline.step(24, r)), [15, 9]);
  }
});
