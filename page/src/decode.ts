// Reading a trace: docs/trace.md, version 1. Whatever is wrong becomes one sentence and a remedy.
import { gunzipSync, unzlibSync } from "fflate";

export class TraceError extends Error {
  constructor(
    message: string,
    readonly remedy = "Write the trace again with `counterprobe sample --trace run.html`.",
  ) {
    super(message);
  }
}

export interface Trace {
  name: string;
  header: Fields;
  events: Event[];
  truncated: boolean;
}

export type Fields = Record<string, unknown>;
export type Event = Fields & { type: string };

export type Numbers = Float64Array | Float32Array | Int32Array | Uint32Array | Int16Array
  | Uint16Array | Int8Array | Uint8Array;

const FORMAT = "counterprobe trace";
const PAGE_FORMAT = "counterprobe page";
const VERSION = 1;
// What a page can hold and still answer: past these it says how to make the trace smaller.
const MAX_CHARACTERS = 96_000_000;
const MAX_LENGTH = 1 << 18;
const MAX_EVENTS = 1 << 18;
const MAX_VALUES = 1 << 28;
const THIN =
  "Thin it first: `counterprobe trace run.json --thin 5000000 --out thin.json` leaves out the " +
  "largest parts, says which, and keeps every commit and the ledger.";

const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The traces in what the page carries, or in a file that somebody opened. */
export function readTraces(text: string, name: string): Trace[] {
  if (!text.trim()) {
    throw new TraceError(
      "This page holds no run yet.",
      "Open a trace (a .json or .json.gz file) below, or write a page with one in it: " +
        "`counterprobe sample --family path --n 200 --sampler packed --trace run.html`.",
    );
  }
  if (text.length > MAX_CHARACTERS) {
    throw new TraceError(`This trace has ${millions(text.length)} million characters.`, THIN);
  }
  const document = parse(text);
  if (!isObject(document)) throw foreign(document);
  if (document.format === PAGE_FORMAT) {
    requireVersion(document.version);
    const traces = document.traces;
    if (!Array.isArray(traces) || traces.length < 1 || traces.length > 2) {
      throw new TraceError("A page holds one trace, or two to compare.");
    }
    return traces.map((entry: unknown) => {
      if (!isObject(entry)) throw foreign(entry);
      return readTrace(entry.trace, String(entry.name ?? ""));
    });
  }
  return [readTrace(document, name)];
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    const lines = text.split("\n");
    const head = lines[0];
    if (!head.includes(`"${FORMAT}"`)) {
      throw new TraceError(
        "This is not a whole JSON document: it was cut short, or it is no trace.",
      );
    }
    return salvage(head, lines);
  }
}

/** What a run that died left: the header, and every whole line after it. */
function salvage(head: string, lines: string[]): unknown {
  let document: Fields & { events: unknown[] };
  try {
    document = JSON.parse(`${head}]}`);
  } catch {
    throw new TraceError("This trace was cut short before its first event.");
  }
  for (const line of lines.slice(1)) {
    try {
      document.events.push(JSON.parse(line.trim().replace(/,$/, "")));
    } catch {
      break;
    }
  }
  document.truncated = true;
  return document;
}

function readTrace(document: unknown, name: string): Trace {
  if (!isObject(document) || document.format !== FORMAT) throw foreign(document);
  requireVersion(document.version);
  const { header, events } = document;
  if (!isObject(header) || !Array.isArray(events)) {
    throw new TraceError("This trace has no header or no events.");
  }
  const length = header.length;
  if (typeof length !== "number" || !Number.isInteger(length) || length < 1) {
    throw new TraceError(`The trace's length must be a positive integer, got ${String(length)}.`);
  }
  if (length > MAX_LENGTH) {
    throw new TraceError(
      `This run has ${length} positions; the page draws at most ${MAX_LENGTH}.`,
      "`counterprobe trace run.json` prints what it did; a shorter run can be watched.",
    );
  }
  if (events.length > MAX_EVENTS) {
    throw new TraceError(`This trace has ${events.length} events; the page takes ${MAX_EVENTS}.`, THIN);
  }
  for (const event of events) {
    if (!isObject(event) || typeof event.type !== "string") {
      throw new TraceError("An event of this trace has no type.");
    }
  }
  const ended = events.some((event) => event.type === "end");
  return { name, header, events, truncated: document.truncated === true || !ended };
}

const foreign = (document: unknown): TraceError => {
  const said = isObject(document) ? document.format : undefined;
  const got = typeof said === "string" ? `it calls itself “${said.slice(0, 60)}”` : "it names no format";
  return new TraceError(`This is not a trace of counterprobe: ${got}.`);
};

function requireVersion(version: unknown): void {
  if (version !== VERSION) {
    throw new TraceError(
      `This trace has version ${String(version).slice(0, 20)}; this page reads version ${VERSION}.`,
      "Make the page with the library that wrote the trace, or a newer one.",
    );
  }
}

const millions = (value: number): string => (value / 1e6).toFixed(0);

/** Text of a file that somebody opened, unpacked where it is gzip. */
export function fileText(bytes: Uint8Array): string {
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) {
    // The last four bytes say how long the text is; refuse before inflating.
    const size = new DataView(bytes.buffer, bytes.byteOffset + bytes.length - 4).getUint32(0, true);
    if (size > MAX_CHARACTERS) throw new TraceError("This trace is enormous.", THIN);
    try {
      bytes = gunzipSync(bytes, { out: new Uint8Array(size) });
    } catch {
      throw new TraceError("This compressed trace was cut short or is damaged.");
    }
  }
  return new TextDecoder().decode(bytes);
}

export interface Table {
  data: Numbers;
  shape: number[];
}

const WIDTHS: Record<string, number> = { u1: 1, u2: 2, u4: 4, i1: 1, i2: 2, i4: 4, f4: 4 };

function bytesOf(data: unknown, size: number): Uint8Array {
  if (typeof data !== "string") throw new TraceError("An array of this trace has no data.");
  // One byte more than announced, to notice a stream that goes on.
  const room = new Uint8Array(size + 1);
  let inflated: Uint8Array;
  try {
    const letters = atob(data);
    const packed = new Uint8Array(letters.length);
    for (let k = 0; k < letters.length; k++) packed[k] = letters.charCodeAt(k);
    inflated = unzlibSync(packed, { out: room });
  } catch {
    throw new TraceError("An array of this trace is damaged.");
  }
  if (inflated.length !== size) {
    throw new TraceError("An array of this trace has another size than it announces.");
  }
  return inflated.slice();
}

function flags(bytes: Uint8Array, total: number): Uint8Array {
  const out = new Uint8Array(total);
  for (let k = 0; k < total; k++) out[k] = (bytes[k >> 3] >> (k & 7)) & 1;
  return out;
}

function typed(dtype: string, bytes: Uint8Array): Numbers {
  switch (dtype) {
    case "u1": return bytes;
    case "i1": return new Int8Array(bytes.buffer);
    case "u2": return new Uint16Array(bytes.buffer);
    case "i2": return new Int16Array(bytes.buffer);
    case "u4": return new Uint32Array(bytes.buffer);
    case "i4": return new Int32Array(bytes.buffer);
    default: return new Float32Array(bytes.buffer);
  }
}

/** An array, plain or packed; null where the trace has none. */
export function table(value: unknown): Table | null {
  if (value === null || value === undefined) return null;
  if (Array.isArray(value)) {
    const shape = [value.length];
    if (Array.isArray(value[0])) shape.push(value[0].length);
    const data = Float64Array.from(value.flat() as number[], Number);
    if (shape.length > 1 && data.length !== shape[0] * shape[1]) {
      throw new TraceError("An array of this trace has rows of different lengths.");
    }
    return { data, shape };
  }
  if (!isObject(value) || !Array.isArray(value.shape)) {
    throw new TraceError("An array of this trace is not an array.");
  }
  const shape = value.shape.map(Number);
  const total = shape.reduce((product, side) => product * side, 1);
  if (!(total >= 0) || !Number.isInteger(total) || total > MAX_VALUES) {
    throw new TraceError("An array of this trace is too large to show.", THIN);
  }
  const dtype = String(value.dtype);
  if (dtype === "bits") {
    return { data: flags(bytesOf(value.data, Math.ceil(total / 8)), total), shape };
  }
  if (!(dtype in WIDTHS)) throw new TraceError(`An array has the unknown type “${dtype.slice(0, 20)}”.`);
  let data = typed(dtype, bytesOf(value.data, total * WIDTHS[dtype]));
  if (typeof value.scale === "number") {
    const scale = value.scale;
    data = Float32Array.from(data, (v: number) => v * scale);
  }
  return { data, shape };
}

/** Positions: integers of 0..length-1. */
export function positions(value: unknown, length: number): Int32Array {
  const found = Int32Array.from(table(value)?.data ?? []);
  for (const v of found) {
    if (v < 0 || v >= length) {
      throw new TraceError(`This trace names position ${v} of a run with ${length} positions.`);
    }
  }
  return found;
}

/** Two columns of positions. */
export function pairs(value: unknown, length: number): { from: Int32Array; to: Int32Array } {
  const flat = positions(value, length);
  if (flat.length % 2) throw new TraceError("A list of pairs in this trace has an odd length.");
  const from = new Int32Array(flat.length / 2);
  const to = new Int32Array(flat.length / 2);
  for (let e = 0; e < from.length; e++) {
    from[e] = flat[2 * e];
    to[e] = flat[2 * e + 1];
  }
  return { from, to };
}

export const text = (value: unknown): string => (typeof value === "string" ? value : "");

export const number = (value: unknown): number | null =>
  typeof value === "number" && Number.isFinite(value) ? value : null;

export const sentences = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((v): v is string => typeof v === "string") : [];

export const strings = (value: unknown, size: number): string[] | null =>
  Array.isArray(value) && value.length === size ? value.map(String) : null;
