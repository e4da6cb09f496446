// One position: its row, its neighbours, its votes.
import { el, plural } from "./dom";
import { pairs, positions, table } from "./decode";
import type { Event, Numbers } from "./decode";
import { GIVEN, OPEN, Status } from "./run";
import type { Run } from "./run";
import type { Look } from "./stage";
import { HELD, READOUT, SOURCE } from "./stage";

const STATUS_WORDS = ["", "named by one end", "certified", "contradicted", "estimated"];
const MANY = 24;

interface Row {
  entropy: number | null;
  top: number[];
  mass: number[];
  prob: number | null;
}

/** Arrays of events that somebody has looked at. */
const unpacked = new WeakMap<Event, Map<string, Numbers | null>>();

function field(event: Event, name: string): Numbers | null {
  let fields = unpacked.get(event);
  if (!fields) unpacked.set(event, (fields = new Map()));
  if (!fields.has(name)) fields.set(name, table(event[name])?.data ?? null);
  return fields.get(name) ?? null;
}

/** The last row that was read at a position, up to where the run stands. */
function lastRow(run: Run, v: number): Row | null {
  const when = run.committed[v];
  const first = run.preprocessed >= 0 && run.preprocessed <= run.at ? run.preprocessed : -1;
  const event = run.steps[when >= 0 ? when : first]?.event;
  if (!event) return null;
  const where = positions(event.positions, run.length).indexOf(v);
  if (where < 0) return null;
  const top = field(event, "top");
  const mass = field(event, "mass");
  const n = (field(event, "positions") ?? []).length;
  const k = top && n ? top.length / n : 0;
  const slice = (values: Numbers | null): number[] =>
    values ? Array.from(values.subarray(where * k, (where + 1) * k)) : [];
  return {
    entropy: field(event, "entropy")?.[where] ?? null,
    top: slice(top),
    mass: slice(mass),
    prob: field(event, "prob")?.[where] ?? null,
  };
}

function standing(run: Run, v: number, row: Row | null): string {
  const when = run.committed[v];
  if (when === GIVEN) return `Given: ${run.tokenName(run.token[v])}.`;
  if (when === OPEN) {
    const known = ["", " Its neighbours are settled.", " Given up: it will be committed alone."];
    return `Masked.${known[run.standing[v]] ?? ""}${run.hub[v] ? " A hub: many rows name it." : ""}`;
  }
  const chance = row?.prob != null ? `, which had probability ${row.prob.toFixed(3)}` : "";
  return `Token ${run.tokenName(run.token[v])}${chance}, drawn in commit ${run.steps[when].batch + 1} of ${run.numBatches}.`;
}

function probed(run: Run, look: Look, v: number): string {
  const role = look.role[v];
  const parts: string[] = [];
  const token = look.shown?.[v] ?? -1;
  if (token >= 0) parts.push(`it shows ${run.tokenName(token)}`);
  if (role & SOURCE) parts.push("it varies");
  if (role & HELD) parts.push("it is held at one value");
  if (role & READOUT) {
    const moved = look.response[v];
    parts.push(moved > 0 ? `its row is read, and moved (${Math.round(moved * 100)} of 100)` : "its row is read, and did not move");
  }
  return parts.length ? `In this look: ${parts.join("; ")}.` : "";
}

/** Votes of the last count up to here that name this position. */
function votes(run: Run, v: number): string[] {
  for (let s = run.at; s >= 0; s--) {
    const { event, type } = run.steps[s];
    if (type !== "votes") continue;
    const { from, to } = pairs(event.pairs, run.length);
    const given = field(event, "votes");
    const said: string[] = [];
    from.forEach((source, e) => {
      if (source !== v && to[e] !== v) return;
      said.push(`${run.label(source)} → ${run.label(to[e])}: ${given?.[e] ?? "?"} of ${String(event.num_colorings)}`);
    });
    return said;
  }
  return [];
}

export class DetailView {
  readonly element = el("section", { class: "panel detail", "aria-label": "One position", "aria-live": "polite" });
  private shown = "";

  constructor(
    private readonly run: Run,
    private readonly choose: (position: number) => void,
  ) {}

  draw(v: number, look: Look | null, pinned: boolean): void {
    const { run } = this;
    const key = `${v}/${run.at}/${look?.words ?? ""}/${pinned}`;
    if (key === this.shown) return;
    this.shown = key;
    if (v < 0) {
      this.element.replaceChildren(
        el("h3", {}, "Point at a position"),
        el("p", {}, "Hover or tap one, here or on the strip, to see its row, its neighbours and its votes. A click keeps it."),
      );
      return;
    }
    const row = lastRow(run, v);
    const children: Node[] = [
      el("h3", { "data-position": String(v) }, `Position ${run.label(v)}`),
      el("p", {}, [standing(run, v, row), look ? probed(run, look, v) : ""].filter(Boolean).join(" ")),
    ];
    if (row?.top.length) children.push(...this.bars(row));
    children.push(...this.neighbourhood(v), ...this.ballots(v));
    this.element.replaceChildren(...children);
  }

  private bars(row: Row): Node[] {
    const bars = el("div", { class: "bars" });
    row.top.forEach((token, k) => {
      const mass = row.mass[k] ?? 0;
      const bar = el("span", { class: "bar" });
      bar.style.width = `${Math.max(1, Math.round(mass * 100))}%`;
      bars.append(el("span", {}, this.run.tokenName(token)), bar, el("span", {}, mass.toFixed(3)));
    });
    const entropy = row.entropy === null ? "" : `, entropy ${row.entropy.toFixed(2)} nats`;
    return [el("p", {}, `Likeliest tokens of its last row${entropy}:`), bars];
  }

  private neighbourhood(v: number): Node[] {
    const { edges, status, strength } = this.run;
    const found: [number, number, number][] = [];
    for (let e = 0; e < status.length; e++) {
      if (status[e] === Status.gone) continue;
      if (edges.from[e] === v) found.push([edges.to[e], status[e], strength[e]]);
      else if (edges.to[e] === v) found.push([edges.from[e], status[e], strength[e]]);
    }
    found.sort(([, , a], [, , b]) => (b || 0) - (a || 0));
    if (!found.length) return [el("p", {}, "No neighbours found so far.")];
    const chips = el("div", { class: "chips" });
    for (const [u, how, nats] of found.slice(0, MANY)) {
      const strong = isNaN(nats) ? "" : `: ${nats.toFixed(nats < 0.1 ? 3 : 2)}`;
      const chip = el("button", { type: "button", title: STATUS_WORDS[how] }, `${this.run.label(u)}${strong}`);
      chip.addEventListener("click", () => this.choose(u));
      chips.append(chip);
    }
    if (found.length > MANY) chips.append(`and ${found.length - MANY} more`);
    return [el("p", {}, `${plural(found.length, "neighbour")}, ${STATUS_WORDS[found[0][1]]}${isNaN(found[0][2]) ? "" : ", in nats"}:`), chips];
  }

  private ballots(v: number): Node[] {
    const said = votes(this.run, v);
    if (!said.length) return [];
    const more = said.length > 8 ? ` and ${said.length - 8} more` : "";
    return [el("p", {}, `Votes (source → readout): ${said.slice(0, 8).join(", ")}${more}.`)];
  }
}
