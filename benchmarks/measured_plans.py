"""Whether plans get better by designs that were scored, at equal evaluations with more probes.

    python benchmarks/measured_plans.py [--backbone 1ubi] [--designs 128] [--json FILE]

ProteinMPNN in commit order, eight batches. Designs are drawn by four plans of a structure, and
each is scored in one pass: the divergence of every position's row as drawn from its row when the
positions of its batch came one by one, in a random order. Regressed on which of its batch came
before, that says which pairs inside a batch cost; what they cost is added to their strength, and
plans are searched anew. Beside it, as many evaluations are spent on further probes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _results import plain, run_program, write_results

import counterprobe as cp
from counterprobe.arrays import FloatArray
from counterprobe.evaluation import plan_kl
from counterprobe.evaluation.ordered_runs import divergences
from counterprobe.evaluation.plan_runs import PlanRun, as_plans
from counterprobe.planning import Plan, make_plan, plan_for
from counterprobe.run import measuring
from counterprobe.states import as_contexts

BATCHES, PLANS, PROBES, SAMPLES = 8, 4, 256, 64
# Reads that a pair's cost is drawn towards zero by, as a share of the designs.
RIDGE = 1 / 16


def scored(oracle: cp.Oracle, plan: Plan, designs: int, seed: int) -> tuple[FloatArray, ...]:
    """Draw designs by a plan; return the divergence of every position, and the order inside."""
    contexts = as_contexts(None, oracle.length, oracle.vocab_size, designs)
    run = PlanRun(as_plans([plan], contexts), contexts, seed)
    everyone = slice(0, designs)
    [(divergence, _)], _ = measuring.measure(oracle, [divergences(run, everyone)])
    return divergence, run.noise(everyone)[0]


def pair_costs(plan: Plan, divergence: FloatArray, order: FloatArray) -> FloatArray:
    """Return what pairs inside batches cost, by which of them came before which."""
    length = divergence.shape[1]
    cost = np.zeros((length, length))
    for batch in plan.batches:
        for i in batch:
            mates = batch[batch != i]
            came = (order[:, mates] < order[:, [i]]).astype(np.float64)
            came -= came.mean(axis=0)
            gram = came.T @ came + RIDGE * len(came) * np.eye(len(mates))
            cost[i, mates] = np.linalg.solve(gram, came.T @ divergence[:, i])
    return np.maximum(cost + cost.T, 0.0)


def measure(backbone: str, designs: int) -> dict[str, Any]:
    """Return the true price of plans by probes, by scored designs too, and by more probes."""
    model = cp.models.load("proteinmpnn", backbone=backbone, device="cpu")
    kept, streams = model.oracle(order="commit"), cp.Streams.from_seed(0)

    def found(probes: int) -> cp.Structure:
        return cp.discover(model.oracle(), streams, mode="soft", probes=probes)

    def true(plans: Sequence[Plan]) -> dict[str, float]:
        price = plan_kl(kept, plans, samples=SAMPLES, seed=11)
        return {"true": price.value, "true_se": price.standard_error}

    structure = found(PROBES)
    plans = [plan_for(structure, batches=BATCHES, seed=k) for k in range(PLANS)]
    cost, count = np.zeros((2, kept.length, kept.length))
    for plan in plans:
        cost += pair_costs(plan, *scored(kept, plan, designs // PLANS, 77))
        for batch in plan.batches:
            count[np.ix_(batch, batch)] += 1
    strength = structure.strength + cost / np.maximum(count, 1)
    again = [
        make_plan(
            strength, batches=BATCHES, coverage=structure.coverage, rng=np.random.default_rng(k)
        )
        for k in range(PLANS)
    ]
    spent = designs * (BATCHES + 1)
    larger = found(PROBES + spent)
    more = [plan_for(larger, batches=BATCHES, seed=k) for k in range(PLANS)]
    return {
        "batches": BATCHES,
        "probes": PROBES,
        "designs": designs,
        "evaluations": spent,
        "by_probes": true(plans),
        "by_designs": true(again),
        "by_more_probes": true(more),
    }


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backbone", default="1ubi")
    parser.add_argument("--designs", type=int, default=128)
    parser.add_argument("--json", type=Path, default=None)
    return parser.parse_args(words)


def run(args: argparse.Namespace) -> int:
    """Measure, print and write."""
    found = plain(measure(args.backbone, args.designs))
    print(args.backbone, found, flush=True)
    write_results(args.json, {"plans": {args.backbone: found}})
    return 0


if __name__ == "__main__":
    sys.exit(run_program(parsed, run))
