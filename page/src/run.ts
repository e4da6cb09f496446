// A run as the page sees it: steps, and what is known at each of them.
//
// The trace is read once into small lists of changes; seek() replays them up to any step, forwards
// from where it stands or from the start, so that scrubbing is exact and costs what changed. The
// large arrays of probe stages stay packed until somebody looks (stage.ts).
import { number, pairs, positions, sentences, strings, table, text, TraceError } from "./decode";
import type { Event, Fields, Table, Trace } from "./decode";
import type { Edges } from "./layout";

export interface Ledger {
  preprocessing: number;
  probes: number;
  commits: number;
  stages: number;
}

export const total = (ledger: Ledger): number =>
  ledger.preprocessing + ledger.probes + ledger.commits;

export interface Step {
  type: string;
  event: Event;
  ledger: Ledger;
  /** Which commit this is, from 0, or -1. */
  batch: number;
  positions: Int32Array;
  tokens: Int32Array;
  /** Edges that change here, by index, and their new statuses. */
  edges: Int32Array;
  statuses: Uint8Array;
  /** How strong they are, in nats; NaN where nobody estimated it. */
  strengths: Float32Array;
  messages: string[];
}

export enum Status {
  gone = 0,
  voted = 1,
  certified = 2,
  contradicted = 3,
  estimated = 4,
}

const EMPTY = new Int32Array(0);
const NO_STATUS = new Uint8Array(0);
const NO_STRENGTH = new Float32Array(0);
const SILENT = new Set(["message"]);
const KNOWN = new Set([
  "preprocess", "probe", "votes", "hubs", "graph", "candidates", "tests", "plan", "commit", "remask",
  "verify", "end",
]);
/** What a position is before it is committed, and what was known from the start. */
export const OPEN = -1;
export const GIVEN = -2;

export class Run {
  readonly name: string;
  readonly header: Fields;
  readonly length: number;
  readonly vocab: number | null;
  readonly truncated: boolean;
  readonly steps: Step[] = [];
  readonly numBatches: number;
  readonly numGiven: number;
  readonly truth: Edges | null;
  readonly coordinates: Table | null;
  /** Where unbroken pieces of a chain begin, with the names of their chains. */
  readonly stretches: Map<number, string>;
  /** Evaluations that were spent beside this run, by what they were for. */
  readonly beside: [string, number][];
  readonly edges: Edges;
  /** True edges both of whose ends were drawn in one batch, by index in `truth`. */
  readonly ignored: Int32Array;
  readonly end: Event | null;
  /** Whether nothing is drawn: the run only looks for what depends on what. */
  readonly isDiscovery: boolean;
  /** The step of the all-mask readout, or -1. */
  readonly preprocessed: number;
  readonly finalLedger: Ledger;
  private readonly given: Int32Array | null;
  private readonly tokenNames: string[] | null;
  private readonly positionNames: string[] | null;
  private readonly nameLengths: Uint8Array;
  private readonly edgeIndex = new Map<number, number>();

  // What is known at `at`.
  at = -1;
  /** Step at which each position was committed, OPEN or GIVEN. */
  committed: Int32Array;
  token: Int32Array;
  status: Uint8Array;
  strength: Float32Array;
  standing: Uint8Array;
  hub: Uint8Array;
  numCommitted = 0;

  constructor(trace: Trace) {
    const { header } = trace;
    this.name = trace.name;
    this.header = header;
    this.truncated = trace.truncated;
    this.isDiscovery = header.task === "discover";
    this.length = Number(header.length);
    this.vocab = number(header.vocab_size);
    this.tokenNames = strings(header.tokens, this.vocab ?? -1);
    this.positionNames = strings(header.positions, this.length);
    const given = table(header.given);
    this.given = given ? Int32Array.from(given.data) : null;
    if (this.given && this.given.length !== this.length) {
      throw new TraceError("The given tokens of this trace are not one a position.");
    }
    this.numGiven = this.given ? this.given.reduce((n, v) => n + Number(v >= 0), 0) : 0;
    const truth = pairs(header.true_edges, this.length);
    this.truth = header.true_edges ? truth : null;
    const coordinates = table(header.coordinates);
    this.coordinates =
      coordinates && coordinates.data.length === 3 * this.length ? coordinates : null;
    this.stretches = readStretches(header.stretches, this.length);
    const ends: number[][] = [[], []];
    this.readSteps(trace.events, ends);
    this.edges = { from: Int32Array.from(ends[0]), to: Int32Array.from(ends[1]) };
    this.numBatches = this.steps.reduce((n, step) => n + Number(step.type === "commit"), 0);
    this.end = trace.events.find((event) => event.type === "end") ?? null;
    this.beside = [header.beside, this.end?.beside]
      .flatMap((spent) => Object.entries(spent ?? {}))
      .filter(([, n]) => number(n) !== null) as [string, number][];
    this.preprocessed = this.steps.findIndex((step) => step.type === "preprocess");
    this.finalLedger = this.steps[this.steps.length - 1].ledger;

    this.committed = new Int32Array(this.length);
    this.token = new Int32Array(this.length);
    this.status = new Uint8Array(this.edges.from.length);
    this.strength = new Float32Array(this.edges.from.length);
    this.standing = new Uint8Array(this.length);
    this.hub = new Uint8Array(this.length);
    this.seek(this.steps.length - 1);
    this.ignored = this.drawnTogether();
    this.nameLengths = Uint8Array.from(this.token, (token) => (token < 0 ? 1 : Math.min(12, this.tokenName(token).length)));
    this.seek(0);
  }

  private readSteps(events: Event[], ends: number[][]): void {
    let ledger: Ledger = { preprocessing: 0, probes: 0, commits: 0, stages: 0 };
    let batch = -1;
    const blank = { batch: -1, positions: EMPTY, tokens: EMPTY, edges: EMPTY, statuses: NO_STATUS, strengths: NO_STRENGTH };
    this.steps.push({ type: "start", event: { type: "start" }, ledger, ...blank, messages: [] });
    for (const event of events) {
      const last = this.steps[this.steps.length - 1];
      if (SILENT.has(event.type)) last.messages.push(text(event.text));
      if (!KNOWN.has(event.type)) continue;
      ledger = readLedger(event.ledger) ?? ledger;
      const step: Step = { type: event.type, event, ledger, ...blank, messages: [] };
      if (["commit", "remask", "hubs", "candidates"].includes(event.type)) {
        step.positions = positions(event.positions, this.length);
      }
      if (event.type === "commit") {
        step.tokens = Int32Array.from(table(event.tokens)?.data ?? []);
        step.batch = ++batch;
      }
      if (event.type === "votes" || event.type === "graph") this.readEdges(step, ends);
      this.steps.push(step);
    }
  }

  private readEdges(step: Step, ends: number[][]): void {
    const found = pairs(step.event.pairs, this.length);
    const kept = table(step.event.kept)?.data;
    const status = table(step.event.status)?.data;
    const strength = table(step.event.strength)?.data;
    const isVotes = step.type === "votes";
    step.edges = new Int32Array(found.from.length);
    step.statuses = new Uint8Array(found.from.length);
    step.strengths = Float32Array.from(found.from, (_, e) => strength?.[e] ?? NaN);
    for (let e = 0; e < found.from.length; e++) {
      const [u, v] = [found.from[e], found.to[e]];
      const key = Math.min(u, v) * this.length + Math.max(u, v);
      let index = this.edgeIndex.get(key);
      if (index === undefined) {
        index = ends[0].length;
        this.edgeIndex.set(key, index);
        ends[0].push(Math.min(u, v));
        ends[1].push(Math.max(u, v));
      }
      step.edges[e] = index;
      step.statuses[e] = isVotes
        ? Number(!kept || kept[e] ? Status.voted : Status.gone)
        : (status?.[e] ?? Status.certified);
    }
    // A pair named from both sides is there if either side keeps it.
    if (isVotes) {
      const best = new Map<number, number>();
      step.edges.forEach((edge, e) => best.set(edge, Math.max(best.get(edge) ?? 0, step.statuses[e])));
      step.edges = Int32Array.from(best.keys());
      step.statuses = Uint8Array.from(best.values());
    }
  }

  /** Know what was known after step `target`, and no more. */
  seek(target: number): void {
    if (target < this.at || this.at < 0) {
      this.committed.fill(OPEN);
      this.token.fill(OPEN);
      this.given?.forEach((token, v) => {
        if (token < 0) return;
        this.committed[v] = GIVEN;
        this.token[v] = token;
      });
      for (const array of [this.status, this.strength, this.standing, this.hub]) array.fill(0);
      this.numCommitted = 0;
      this.at = 0;
    }
    while (this.at < target) this.apply(++this.at);
  }

  private apply(index: number): void {
    const step = this.steps[index];
    step.positions.forEach((v, k) => {
      if (step.type === "commit") {
        if (this.committed[v] === OPEN) this.numCommitted++;
        this.committed[v] = index;
        this.token[v] = step.tokens[k] ?? OPEN;
      } else if (step.type === "remask") {
        if (this.committed[v] !== OPEN) this.numCommitted--;
        this.committed[v] = OPEN;
        this.token[v] = OPEN;
      } else if (step.type === "hubs") {
        this.hub[v] = 1;
      }
    });
    step.edges.forEach((edge, e) => {
      this.status[edge] = step.statuses[e];
      this.strength[edge] = step.strengths[e] ?? NaN;
    });
    if (step.type === "graph" && step.event.standing) {
      const where = positions(step.event.positions, this.length);
      const standing = table(step.event.standing)?.data ?? [];
      where.forEach((v, k) => (this.standing[v] = standing[k]));
    }
  }

  private drawnTogether(): Int32Array {
    const { truth, committed } = this;
    if (!truth) return EMPTY;
    const found: number[] = [];
    truth.from.forEach((u, e) => {
      if (committed[u] >= 0 && committed[u] === committed[truth.to[e]]) found.push(e);
    });
    return Int32Array.from(found);
  }

  /** How many edges have a status now. */
  edgeCounts(): number[] {
    const counts = [0, 0, 0, 0, 0];
    for (const status of this.status) counts[status]++;
    return counts;
  }

  /** How many edges are known now, by whatever evidence. */
  get numEdges(): number {
    return this.status.reduce((n, status) => n + Number(status !== Status.gone), 0);
  }

  /** The strength of the strongest edge known now, in nats; 0 where nobody estimated any. */
  get strongest(): number {
    return this.strength.reduce((most, s, e) => (this.status[e] !== Status.gone && s > most ? s : most), 0);
  }

  /** Of the edges known now: how many are true, and how many are not; null where nobody knows. */
  hits(): { found: number; wrong: number } | null {
    const { truth, edges, status, length } = this;
    if (!truth) return null;
    const key = (u: number, v: number): number => Math.min(u, v) * length + Math.max(u, v);
    const isTrue = new Set(Array.from(truth.from, (u, e) => key(u, truth.to[e])));
    let [found, wrong] = [0, 0];
    status.forEach((state, e) => {
      if (state === Status.gone) return;
      if (isTrue.has(key(edges.from[e], edges.to[e]))) found++;
      else wrong++;
    });
    return { found, wrong };
  }

  /** What a position is called. */
  label(position: number): string {
    return this.positionNames?.[position] ?? String(position);
  }

  tokenName(token: number): string {
    return this.tokenNames?.[token] ?? String(token);
  }

  /** Which sequence of many this is, in words; empty for one alone. */
  get place(): string {
    const [sequence, count] = [number(this.header.sequence), number(this.header.count)];
    if (sequence === null || count === null || count < 2 || sequence < 0 || sequence >= count) return "";
    return `sequence ${sequence + 1} of ${count}`;
  }

  /** Letters of what stands at a position in the end. */
  nameLength(position: number): number {
    return this.nameLengths[position];
  }

  /** Whether tokens are letters that fit into a cell. */
  get hasLetters(): boolean {
    return this.tokenNames !== null;
  }

  /** What it took to find the structure that it commits by; 0 where there is none. */
  get discovery(): number {
    return this.beside.find(([word]) => word.startsWith("discovery"))?.[1] ?? 0;
  }

  /** Whether this is a text or a chain that a model fills in, to be read in its own order. */
  get isSequence(): boolean {
    return this.hasLetters && this.truth === null;
  }

  /** Whether a position is to be drawn: it was not known from the start. */
  isFree(position: number): boolean {
    return !this.given || this.given[position] < 0;
  }

  /** Whether an edge known now had both ends drawn at once. */
  isBroken(edge: number): boolean {
    const when = this.committed[this.edges.from[edge]];
    return this.status[edge] !== Status.gone && when >= 0 && when === this.committed[this.edges.to[edge]];
  }

  /** The step to open at: the first of a text that shows more than masks. */
  get opening(): number {
    if (!this.isSequence) return 0;
    const tells = ({ type, event, edges }: Step): boolean =>
      type === "commit" || edges.length > 0 || (type === "probe" && Boolean(event.shown ?? event.screen));
    return Math.max(0, this.steps.findIndex(tells));
  }

  /** The position that a search means: by its label, or by its number where it has none. */
  find(query: string): number {
    const wanted = query.trim();
    if (this.positionNames) return this.positionNames.indexOf(wanted);
    const value = Number(wanted);
    return wanted && Number.isInteger(value) && value >= 0 && value < this.length ? value : -1;
  }

  /** Edges to lay the picture out by: what was found, else what is true. */
  get layoutEdges(): Edges {
    const last = new Uint8Array(this.edges.from.length);
    for (const step of this.steps) step.edges.forEach((edge, e) => (last[edge] = Math.max(last[edge], step.statuses[e])));
    const certified = last.some((status) => status >= Status.certified);
    const keep = [...last.keys()].filter((e) => last[e] >= (certified ? Status.certified : Status.voted));
    if (this.truth && this.truth.from.length) return this.truth;
    return {
      from: Int32Array.from(keep, (e) => this.edges.from[e]),
      to: Int32Array.from(keep, (e) => this.edges.to[e]),
    };
  }
}

function readLedger(value: unknown): Ledger | null {
  if (Array.isArray(value)) {
    const [preprocessing, probes, commits, stages] = value.map(Number);
    return { preprocessing, probes, commits, stages };
  }
  if (typeof value === "object" && value !== null) {
    const { preprocessing, probes, commits, stages } = value as Record<string, number>;
    return { preprocessing, probes, commits, stages };
  }
  return null;
}

function readStretches(value: unknown, length: number): Map<number, string> {
  const found = new Map<number, string>();
  for (const one of Array.isArray(value) ? value : []) {
    if (Array.isArray(one) && Number.isInteger(one[0]) && one[0] >= 0 && one[0] < length) found.set(one[0], text(one[1]));
  }
  return found;
}

/** What was left out of the trace. */
export function omissions(run: Run): string[] {
  return [
    ...sentences(run.header.thinned),
    ...sentences(run.end?.thinned),
  ];
}
