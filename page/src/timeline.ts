// Where the runs stand together. One run: its steps. Two runs: the steps of both, merged by what had
// been spent, so that side by side means after the same number of evaluations.
import { total } from "./run";
import type { Run } from "./run";

export class Timeline {
  /** Step of each run at each tick, ticks one after another. */
  private readonly steps: Int32Array;
  readonly length: number;

  constructor(private readonly runs: Run[]) {
    this.length = runs.reduce((n, run) => n + run.steps.length - 1, 1);
    this.steps = new Int32Array(this.length * runs.length);
    const at = runs.map(() => 0);
    for (let tick = 1; tick < this.length; tick++) {
      let next = -1;
      let least = Infinity;
      runs.forEach((run, r) => {
        if (at[r] + 1 >= run.steps.length) return;
        const spent = total(run.steps[at[r] + 1].ledger);
        if (spent < least) [next, least] = [r, spent];
      });
      at[next]++;
      at.forEach((step, r) => (this.steps[tick * runs.length + r] = step));
    }
  }

  step(tick: number, run: number): number {
    return this.steps[tick * this.runs.length + run];
  }

  /** The run that moves at a tick. */
  mover(tick: number): number {
    for (let r = 0; tick > 0 && r < this.runs.length; r++) {
      if (this.step(tick, r) !== this.step(tick - 1, r)) return r;
    }
    return 0;
  }

  /** Evaluations spent at a tick: by the run that spent most. */
  spent(tick: number): number {
    return Math.max(...this.runs.map((run, r) => total(run.steps[this.step(tick, r)].ledger)));
  }
}
