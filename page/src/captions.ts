// What a step does, in plain words. A person who only reads these lines should follow the run.
import { count, plural } from "./dom";
import { number, sentences, table, text } from "./decode";
import { Status, total } from "./run";
import type { Run, Step } from "./run";

export interface Caption {
  stage: string;
  headline: string;
  words: string;
  kind: "start" | "preprocessing" | "probes" | "structure" | "commits" | "end";
}

const nats = (value: number): string =>
  value === 0 ? "0 nats" : Math.abs(value) < 5e-5 ? "less than 0.0001 nats" : `${value.toFixed(Math.abs(value) < 0.1 ? 4 : 2)} nats`;

/** "position 7", "positions 1, 4 and 9", "12 positions" */
function named(run: Run, positions: Int32Array): string {
  if (positions.length === 0) return "no position";
  if (positions.length > 4) return `${count(positions.length)} positions`;
  const labels = Array.from(positions, (v) => run.label(v));
  if (labels.length === 1) return `position ${labels[0]}`;
  return `positions ${labels.slice(0, -1).join(", ")} and ${labels[labels.length - 1]}`;
}

const capital = (words: string): string => words.charAt(0).toUpperCase() + words.slice(1);

const sentence = (words: string): string => capital(words) + (/[.!?]$/.test(words) ? "" : ".");

const PROBES: Record<string, (n: number) => [string, string]> = {
  first: (n) => [
    `${plural(n, "probe")} in which nearly everything varies at once`,
    "In each of them a random part is masked and read, and every other position shows a random value. A row that moves has a neighbour among what changed; all rows together tell which.",
  ],
  resolve: (n) => [
    `${plural(n, "more probe")} for the positions still unexplained`,
    "What is explained already leaves room: the rest is asked again, with values chosen so that hubs stay readable.",
  ],
  evidence: (n) => [
    `${plural(n, "more probe")}, to trust what was found`,
    "A position is settled only when probes that played no part in the fit are explained by its neighbours alone.",
  ],
  validate: (n) => [
    `${plural(n, "probe")} to look for edges that were missed`,
    "Nothing is held still: one side of every component is masked, the other varies, and sides are switched. An edge between components would show.",
  ],
  rehearse: (n) => [
    `${plural(n, "probe")} to rehearse`,
    "What the found neighbourhoods imply is compared with rows like those that commits will read.",
  ],
  soft: (n) => [
    `${plural(n, "probe")} with random values everywhere`,
    "A regression on what was shown estimates how strongly each pair is tied, with its error.",
  ],
  contexts: (n) => [
    `${plural(n, "probe")}: what does the model expect when part is known?`,
    "A random part of the positions shows values, the rest is read. Each of these is a context to change one thing in.",
  ],
  substitute: (n) => [
    `${plural(n, "probe")}, each with one position changed`,
    "One position after another shows its likely tokens while the others stay masked and are read. How far their rows move tells how strongly each pair is tied.",
  ],
  draft: () => [
    "The model is asked what it expects now",
    "One evaluation of everything committed so far; the rule decides with these rows.",
  ],
  test: (n) => [
    `${plural(n, "probe")}: do the candidates disturb each other?`,
    "Some candidates are shown, the others stay masked. Rows that do not move may be drawn together.",
  ],
  lookahead: (n) => [
    `${plural(n, "probe")} to look ahead`,
    "What would be known after each choice? The rule picks the choice that tells most.",
  ],
};

function probe(step: Step): [string, string] {
  const { event } = step;
  const submitted = Number(event.count) || 0;
  const probes = plural(submitted, "probe");
  if (typeof event.screen === "object" && event.screen) {
    const screen = event.screen as Record<string, unknown>;
    const colorings = plural(Number(screen.num_colorings) || 0, "time");
    return [
      `${probes} at once: who reacts to whom?`,
      `Positions get one of ${count(Number(screen.num_colors) || 0)} colors at random, ${colorings} over. One color varies while another is masked and read, and everything else holds still: a row that moves has a neighbour of the varying color.`,
    ];
  }
  const write = PROBES[text(event.purpose)];
  if (write) return write(submitted);
  return [`${probes} at once`, "Masked positions are read while other positions show values of the probe's choice."];
}

const COMMITS: Record<string, (what: string, isOne: boolean) => [string, string]> = {
  peel: (what) => [
    `Commit ${what}: a hub goes first`,
    "Drawn alone, at the price of one evaluation. Its many neighbours no longer hang together through it.",
  ],
  repair: (what) => [
    `Commit ${what}, to open a cycle`,
    "A position on a cycle is drawn alone, until what is left is a forest.",
  ],
  single: (what) => [
    `Commit ${what} alone`,
    "Its neighbours are not known for certain, so nothing is drawn beside it.",
  ],
  layer: (what, isOne) => isOne ? [
    `Commit ${what}, the centre of its component`,
    "What is left of the component falls into pieces of at most half its size, which no longer depend on each other.",
  ] : [
    `Commit ${what} at once: the centre of every component`,
    "No two of them are tied through masked positions, so drawing them together breaks nothing. Every component falls into pieces of at most half its size.",
  ],
  batch: (what, isOne) => isOne
    ? [`Commit ${what}`, "Drawn alone, given everything drawn before it: nothing is broken, and an evaluation is spent on it."]
    : [`Commit ${what} in one batch`, "Drawn independently from one evaluation: whatever ties them to each other is ignored."],
  selected: (what) => [
    `Commit ${what}, chosen after the rows were seen`,
    "The rule looked at this very reply to decide what to keep.",
  ],
  verified: (what) => [
    `Commit ${what}, drafted at once and verified`,
    "Rows that saw the drafts accepted these values; nothing else was drawn for them.",
  ],
  guard: (what) => [
    `The guard commits ${what}`,
    "The last permitted round takes everything that is left, tied or not: nothing is promised about these draws.",
  ],
  rest: (what) => [`Commit ${what}: all that is left`, "Drawn from one evaluation."],
};

function commit(run: Run, step: Step): [string, string] {
  const write = COMMITS[text(step.event.reason)] ?? COMMITS.batch;
  const [headline, words] = write(named(run, step.positions), step.positions.length === 1);
  const price = number(step.event.price);
  const priced = price === null ? "" : ` Estimated price: ${nats(price)} of broken dependence.`;
  const promoted = step.event.promoted ? " No new evaluation: the probe just made counts as this commit." : "";
  return [headline, words + priced + promoted];
}

/** Pairs of a text that discovery found tied, with their strengths. */
function ties(run: Run): [string, string] {
  const { edges, strength, status } = run;
  const strongest = [...status.keys()].reduce((best, e) => ((strength[e] || 0) > (strength[best] || 0) ? e : best), 0);
  const [u, v] = [run.label(edges.from[strongest]), run.label(edges.to[strongest])];
  const when = run.discovery ? `Found beforehand with ${plural(run.discovery, "evaluation")}, once for any number of sequences. ` : "";
  return [
    `${plural(run.numEdges, "pair")} tied, ${u} and ${v} most strongly`,
    `${when}An arc is as wide as one value moves what is expected at its other end: here up to ${nats(strength[strongest])}. Ends of a strong tie should not be drawn at once.`,
  ];
}

function graph(run: Run, step: Step): [string, string] {
  const counts = run.edgeCounts();
  const known = run.numEdges;
  if (text(step.event.purpose) === "terminal") {
    const byIt = run.isDiscovery ? "The graph that samples will commit by" : "The graph to commit by";
    return [
      known ? `${byIt}: ${plural(known, "edge")}` : "No edge is left: everything may be drawn at once",
      "Positions in different components do not depend on each other; within a component, its centre goes first.",
    ];
  }
  if (known && counts[Status.estimated] === known && run.isSequence) return ties(run);
  const parts = [
    [counts[Status.certified], "certified"],
    [counts[Status.voted], "named by one end"],
    [counts[Status.contradicted], "contradicted"],
    [counts[Status.estimated], "estimated"],
  ] as const;
  const said = parts.filter(([n]) => n).map(([n, word]) => `${count(n)} ${word}`);
  return [
    `${plural(known, "edge")} so far`,
    said.length ? `${said.length > 1 ? "Of these, " : ""}${said.join(", ")}.` : "Nothing moved beyond the rows' error yet.",
  ];
}

/** The end of a run that drew nothing. */
function found(run: Run, spent: number, free: number): [string, string] {
  const hits = run.hits();
  const wrong = hits?.wrong ? `, and ${plural(hits.wrong, "pair")} that the law does not tie directly` : "";
  const said = [
    `Spent once, in ${plural(run.finalLedger.stages, "stage")} one after another, for any number of samples; each of them, one position at a time, would take ${count(free)}.`,
    hits && run.truth ? `${count(hits.found)} of ${plural(run.truth.from.length, "true tie")} found${wrong}.` : "",
    ...sentences(run.end?.notes).map((note) => sentence(note)),
  ];
  return [`${plural(run.numEdges, "edge")} found after ${plural(spent, "evaluation")}; nothing was drawn`, said.filter(Boolean).join(" ")];
}

/** What is known of the dependence that a run broke where nobody measured it. */
function broken(run: Run): string {
  const alone = run.steps.every(({ type, positions }) => type !== "remask" && (type !== "commit" || positions.length === 1));
  if (alone) return "Every position was drawn alone: nothing was broken.";
  const ties = Array.from(run.status.keys()).filter((e) => run.isBroken(e));
  const known = run.isSequence && run.numEdges ? `; of ${plural(run.numEdges, "known tie")}, ${count(ties.length)} had both ends drawn at once` : "";
  return `Broken dependence: not measured${known}.`;
}

function end(run: Run): [string, string] {
  const spent = total(run.finalLedger);
  const free = run.length - run.numGiven;
  const stop = text(run.end?.stop);
  if (run.isDiscovery && stop === "discovered") return found(run, spent, free);
  if (stop && stop !== "completed") {
    return [`The run stopped: ${stop.replace("-", " ")}`, text(run.end?.reason)];
  }
  const times = (ratio: number): string => count(Number(ratio.toFixed(ratio < 10 ? 1 : 0)));
  const ratio =
    spent < free ? `${times(free / spent)} times fewer` : spent > free ? `${times(spent / free)} times as many` : "as many";
  const kl = number(run.end?.batch_kl);
  const error = number(run.end?.batch_kl_se);
  const together = run.ignored.length;
  const said = [
    `That is ${ratio}, in ${plural(run.finalLedger.stages, "stage")} one after another, ${count(run.finalLedger.commits)} of them commits.`,
    run.truth
      ? together
        ? `${count(together)} of ${plural(run.truth.from.length, "true dependence")} had both ends drawn at once.`
        : "No true dependence had both ends drawn at once."
      : "",
    run.discovery ? `Discovery took ${count(run.discovery)} more, once for any number of sequences.` : "",
    kl === null ? broken(run) : `Broken dependence, measured: ${nats(kl)}${error ? ` (standard error ${error.toPrecision(1)})` : ""}.`,
    ...sentences(run.end?.notes).map((note) => sentence(note)),
  ];
  return [`Done after ${plural(spent, "evaluation")}; one at a time takes ${count(free)}`, said.filter(Boolean).join(" ")];
}

/** The caption of the step at which the run stands. */
export function caption(run: Run): Caption {
  const step = run.steps[run.at];
  const write = (kind: Caption["kind"], stage: string, [headline, words]: [string, string]): Caption => ({
    kind, stage, headline, words: [words, ...step.messages].filter(Boolean).join(" "),
  });
  const { event } = step;
  switch (step.type) {
    case "start": {
      const free = run.length - run.numGiven;
      const given = run.numGiven ? `, ${count(run.numGiven)} given` : "";
      if (run.isDiscovery) {
        return write("start", "Start", [
          `Which of ${plural(free, "position")} depend on each other${given}?`,
          "Nothing is drawn here. What is found serves every later sample: positions that do not depend on each other may be drawn together.",
        ]);
      }
      return write("start", "Start", [
        `${plural(free, "position")} to draw, all masked${given}`,
        `One at a time this takes ${plural(free, "evaluation")} of the model. Positions drawn together must not depend on each other: the run has to find out which do, or guess.`,
      ]);
    }
    case "preprocess": {
      const entropy = Array.from(table(event.entropy)?.data ?? []);
      const mean = entropy.length ? entropy.reduce((a, b) => a + b, 0) / entropy.length : null;
      return write("preprocessing", "Preprocessing", [
        "One evaluation with everything masked",
        `It gives each position's distribution on its own${mean === null ? "" : ` (${nats(mean)} of entropy on average)`}, and the likely tokens that probes will show.`,
      ]);
    }
    case "probe":
      return write("probes", "Probes", probe(step));
    case "votes": {
      const needed = number(event.needed);
      const rule = needed === null ? "" : ` in more than ${needed} of ${number(event.num_colorings) ?? "all"} colorings`;
      return write("structure", "Votes", [
        `${plural(step.edges.length, "pair")} win a majority`,
        `A readout names a source when its row moved${rule} while the source varied. Chance meetings of colors rarely repeat; neighbours always do.`,
      ]);
    }
    case "hubs":
      return write("structure", "Hubs", [
        `${capital(named(run, step.positions))} ${step.positions.length === 1 ? "is" : "are"} named by many others`,
        `More than ${count(Math.floor((number(event.cutoff) ?? 0) / 2))} rows name ${step.positions.length === 1 ? "it" : "each"}. A hub is committed alone and leaves the graph; the rest is screened again.`,
      ]);
    case "graph":
      return write("structure", "Graph", graph(run, step));
    case "candidates":
      return write("structure", "Candidates", [
        `Values are drawn for ${named(run, step.positions)}`,
        "Not committed yet: the rule now chooses which of them to keep.",
      ]);
    case "tests": {
      const kept = table(event.kept)?.data.length ?? 0;
      const dropped = table(event.dropped)?.data.length ?? 0;
      return write("structure", "Tests", [
        `${plural(kept, "candidate")} kept, ${count(dropped)} put back`,
        "A candidate is put back when it would change the row of another.",
      ]);
    }
    case "plan": {
      const batches = Math.max(0, (table(event.start)?.data.length ?? 1) - 1);
      const price = number(event.price);
      return write("structure", "Plan", [
        `A plan: ${plural(batches, "batch", "batches")}${price === null ? "" : ` at ${nats(price)}`}`,
        "The price estimates how much dependence the batches break in all, before any of it is paid.",
      ]);
    }
    case "commit":
      return write("commits", `Commit ${count(step.batch + 1)} of ${count(run.numBatches)}`, commit(run, step));
    case "remask":
      return write("commits", "Remask", [`${capital(named(run, step.positions))} masked again`, "The rule takes back what it no longer believes."]);
    case "verify": {
      const kept = Array.from(table(event.accepted)?.data ?? []);
      return write("structure", "Verify", [
        `${count(kept.filter((flag) => flag).length)} of ${plural(kept.length, "drafted value")} kept`,
        "Rows that saw the drafts decide which of them the model would have drawn one by one.",
      ]);
    }
    default:
      return write("end", "End", end(run));
  }
}
