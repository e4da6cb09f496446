// One stage of probes: which positions were masked and read, which varied, which were held, and how
// far the replies moved. A stage is looked at as a whole, or one state at a time.
import { positions, table } from "./decode";
import type { Event, Table } from "./decode";
import type { Run } from "./run";

/** Flags: over a whole stage a position can be read in one state and vary in others. */
export const READOUT = 1;
export const SOURCE = 2;
export const HELD = 4;

export interface Look {
  role: Uint8Array;
  /** 0 did not move .. 1 moved as far as can be; NaN was not read. */
  response: Float32Array;
  /** Tokens that a single state shows, -1 elsewhere; null where they are not known. */
  shown: Int32Array | null;
  /** What this look shows, in words. */
  words: string;
}

const MASKED = -1;
const HISTORY = -2;
const LEVELS = 15;
/** States that a stage is stepped through while playing. */
const SHOWN_WHILE_PLAYING = 6;

export class Stage {
  /** States that can be looked at one by one. */
  readonly count: number;
  private readonly screen: Screen | null;
  private shown: Table | null = null;
  private response: Table | null = null;
  /** Where each state's replies start, when every masked position is read. */
  private starts: Int32Array | null = null;
  private read: Table | null = null;
  private readonly first: Int32Array;

  constructor(
    private readonly run: Run,
    private readonly event: Event,
  ) {
    this.first = new Int32Array(run.length);
    const screen = event.screen;
    this.screen = typeof screen === "object" && screen ? new Screen(run, screen as Event) : null;
    if (!this.screen) this.unpack();
    this.count = this.screen?.count ?? this.shown?.shape[0] ?? 0;
  }

  private unpack(): void {
    const { event, run } = this;
    this.shown = table(event.shown);
    this.response = table(event.response);
    if (event.read !== "masked") {
      this.read = table(event.read);
      return;
    }
    if (!this.shown) return;
    const states = this.shown.shape[0];
    this.starts = new Int32Array(states + 1);
    for (let s = 0, k = 0; s < states; s++) {
      let masked = 0;
      for (let v = 0; v < run.length; v++, k++) masked += Number(this.shown.data[k] === MASKED);
      this.starts[s + 1] = this.starts[s] + masked;
    }
  }

  /** Whether over the whole stage a position can be both source and readout. */
  get isMixed(): boolean {
    return this.count > 1;
  }

  /** A few states, evenly spread, to show while playing. */
  glimpses(): number[] {
    const some = Math.min(SHOWN_WHILE_PLAYING, this.count);
    return Array.from({ length: some }, (_, k) => Math.floor((k * this.count) / some));
  }

  look(state: number | null): Look {
    if (this.screen) return state === null ? this.screen.whole() : this.screen.one(state);
    return state === null && this.count !== 1 ? this.whole() : this.one(state ?? 0);
  }

  private blank(words: string): Look {
    return {
      role: new Uint8Array(this.run.length),
      response: new Float32Array(this.run.length).fill(NaN),
      shown: null,
      words,
    };
  }

  private one(state: number): Look {
    const look = this.blank(`State ${state + 1} of ${this.count}`);
    this.visit(state, state + 1, look.response);
    if (this.shown) {
      const base = state * this.run.length;
      const varies = this.varied();
      const tokens = new Int32Array(this.run.length).fill(MASKED);
      look.shown = tokens;
      for (let v = 0; v < this.run.length; v++) {
        const value = this.shown.data[base + v];
        if (value >= 0 && this.event.unit === "token") tokens[v] = value;
        if (value >= 0) look.role[v] = varies[v] ? SOURCE : HELD;
        else if (value === MASKED && !isNaN(look.response[v])) look.role[v] = READOUT;
      }
    }
    return look;
  }

  private whole(): Look {
    const look = this.blank(`All ${this.count} states: how far each row moved on average`);
    const { length } = this.run;
    this.visit(0, Infinity, look.response);
    const varies = this.varied();
    for (let v = 0; v < length; v++) {
      if (!isNaN(look.response[v])) look.role[v] |= READOUT;
      if (varies[v]) look.role[v] |= SOURCE;
      else if (this.first[v] >= 0) look.role[v] |= HELD;
    }
    return look;
  }

  /** Which positions show different values in different states; what each shows first. */
  private varied(): Uint8Array {
    const { length } = this.run;
    const varies = new Uint8Array(length);
    this.first.fill(HISTORY);
    const data = this.shown?.data ?? [];
    for (let s = 0, k = 0; s < this.count; s++) {
      for (let v = 0; v < length; v++, k++) {
        if (data[k] < 0) continue;
        // What a lone state shows is what it asks about.
        if (this.count === 1) varies[v] = 1;
        if (this.first[v] < 0) this.first[v] = data[k];
        else if (this.first[v] !== data[k]) varies[v] = 1;
      }
    }
    return varies;
  }

  /** How far each row moved in states from..until-1, on average; NaN where it was not read. */
  private visit(from: number, until: number, average: Float32Array): void {
    const responses = this.response?.data;
    const sums = new Float32Array(this.run.length);
    const times = new Int32Array(this.run.length);
    const keep = (v: number, k: number): void => {
      sums[v] += responses ? responses[k] / LEVELS : 0;
      times[v]++;
    };
    if (this.read) {
      const { data } = this.read;
      for (let k = 0; 2 * k < data.length; k++) {
        if (data[2 * k] >= from && data[2 * k] < until) keep(data[2 * k + 1], k);
      }
    } else if (this.shown && this.starts) {
      for (let s = from; s < Math.min(until, this.count); s++) {
        let k = this.starts[s];
        const base = s * this.run.length;
        for (let v = 0; v < this.run.length; v++) {
          if (this.shown.data[base + v] === MASKED) keep(v, k++);
        }
      }
    }
    for (let v = 0; v < this.run.length; v++) if (times[v]) average[v] = sums[v] / times[v];
  }
}

/** The packed screen: colorings, and which readouts moved while one color varied. */
class Screen {
  readonly count: number;
  private readonly residual: Int32Array;
  private readonly colors: Table | null;
  private readonly moved: Table | null;
  private readonly numColors: number;
  private readonly numColorings: number;

  constructor(
    private readonly run: Run,
    screen: Event,
  ) {
    this.residual = positions(screen.residual, run.length);
    this.colors = table(screen.colors);
    this.moved = table(screen.moved);
    this.numColors = Number(screen.num_colors) || 0;
    this.numColorings = this.colors?.shape[0] ?? 0;
    this.count = this.numColorings * this.numColors;
  }

  one(state: number): Look {
    const coloring = Math.floor(state / this.numColors);
    const color = state % this.numColors;
    const role = new Uint8Array(this.run.length);
    const response = new Float32Array(this.run.length).fill(NaN);
    this.residual.forEach((v, j) => {
      const mine = this.colors?.data[coloring * this.run.length + v];
      role[v] = mine === color ? SOURCE : READOUT;
      if (mine !== color) response[v] = this.didMove(coloring, color, j);
    });
    const words = `Coloring ${coloring + 1} of ${this.numColorings}, color ${color + 1} of ${this.numColors} varies`;
    return { role, response, shown: null, words };
  }

  /** Every position is source and readout in turn; the share of looks in which its row moved. */
  whole(): Look {
    const role = new Uint8Array(this.run.length);
    const response = new Float32Array(this.run.length).fill(NaN);
    const n = this.residual.length;
    const sums = new Float32Array(n);
    for (let state = 0, k = 0; this.moved && state < this.count; state++) {
      for (let j = 0; j < n; j++, k++) sums[j] += this.moved.data[k];
    }
    const looks = this.numColorings * Math.max(1, this.numColors - 1);
    this.residual.forEach((v, j) => {
      role[v] = READOUT | SOURCE;
      response[v] = sums[j] / looks;
    });
    return { role, response, shown: null, words: `All ${this.numColorings} colorings: how often each row moved` };
  }

  private didMove(coloring: number, color: number, j: number): number {
    if (!this.moved) return 0;
    const n = this.residual.length;
    return this.moved.data[(coloring * this.numColors + color) * n + j] ? 1 : 0;
  }
}
