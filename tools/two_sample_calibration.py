"""Whether p-values of the two-sample test are uniform where they should be, and what it can see.

    .venv/bin/python tools/two_sample_calibration.py --json docs/data/two-sample.json

Takes some minutes. Sets are drawn from laws that are known exactly, so that what is broken is
known in nats: the same law against itself (many splits), samplers that break dependence by a
batch KL that is computed, and samplers that draw likely values too often. Laws are trees with
random tables of four tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import counterprobe as cp
from counterprobe.evaluation import two_sample_test
from counterprobe.samplers import MaskGIT, RandomBalanced, Sampler

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_now

LENGTH, TOKENS, LEVEL, PERMUTATIONS = 64, 4, 0.05, 399
SIZE = 96
# More sequences, for what nobody could miss.
LARGER = (("random-balanced batches=1", 384),)
LAW_SEED = 7


def random_law(seed: int) -> cp.ForestLaw:
    """Return a random recursive tree with tables of log-entries of deviation one."""
    draw = np.random.default_rng(seed)
    edges = np.array([(draw.integers(k), k) for k in range(1, LENGTH)])
    tables = np.exp(draw.normal(0, 1, (len(edges), TOKENS, TOKENS)))
    return cp.ForestLaw(np.exp(draw.normal(0, 0.5, (LENGTH, TOKENS))), edges, tables)


def drawn_by(law: cp.ForestLaw, sampler: Sampler, count: int, seed: int) -> np.ndarray:
    """Draw sequences, each with decisions of its own."""
    batch = cp.sample(law.oracle(), sampler, count, seed=seed, orders="fresh", progress=False)
    return batch.sequences


def judge(
    draw: Callable[[int, int], np.ndarray], law: cp.ForestLaw, size: int, trials: int
) -> dict[str, Any]:
    """Test a way of drawing against the law; p-values by kernel, and of all three together."""
    rng = np.random.default_rng(size)
    found: dict[str, list[float]] = {}
    for trial in range(trials):
        test = two_sample_test(
            draw(size, trial), law.sample(size, rng), permutations=PERMUTATIONS, seed=trial
        )
        for kernel, p in test.p_value.items():
            found.setdefault(kernel, []).append(p)
        # Three tests: the least of three p-values, three times.
        found.setdefault("all", []).append(min(1.0, 3 * min(test.p_value.values())))
    return {
        kernel: {
            "rejected": float(np.mean(np.array(ps) <= LEVEL)),
            "uniform_p": float(stats.kstest(ps, "uniform").pvalue),
        }
        for kernel, ps in found.items()
    }


def broken_by(law: cp.ForestLaw, sampler: Sampler, runs: int = 16) -> float:
    """Return the mean batch KL of a sampler, in nats."""
    values = []
    for seed in range(runs):
        result = sampler(cp.run.Run(law.oracle()), cp.Streams.from_seed(seed))
        values.append(cp.evaluation.batch_kl(law, result).value)
    return float(np.mean(values))


def main() -> None:
    """Judge every way at every size, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100, help="of each break")
    parser.add_argument("--splits", type=int, default=1000, help="of the law against itself")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--more", action="store_true", help="go on where the file ends")
    told = parser.parse_args()
    law = random_law(LAW_SEED)
    rng = np.random.default_rng(1)
    ways: dict[str, tuple[float | None, Callable[[int, int], np.ndarray], int]] = {
        "the law itself": (0.0, lambda size, _: law.sample(size, rng), told.splits)
    }
    for batches in (32, 8, 2, 1):
        sampler = RandomBalanced(batches)
        ways[f"random-balanced batches={batches}"] = (
            broken_by(law, sampler),
            lambda size, trial, s=sampler: drawn_by(law, s, size, trial),
            told.trials,
        )
    likely = MaskGIT(steps=8)
    ways["maskgit steps=8"] = (
        None,
        lambda size, trial: drawn_by(law, likely, size, trial),
        told.trials,
    )
    known: dict[str, Any] = {"made": [], "rows": []}
    if told.more and told.json.is_file():
        known = json.loads(told.json.read_text(encoding="utf-8"))
    rows = known["rows"]
    done = {(row["way"], row["size"]) for row in rows}
    for name, size in [*((name, SIZE) for name in ways), *LARGER]:
        if (name, size) in done:
            continue
        nats, draw, trials = ways[name]
        trials = max(20, trials * SIZE // size)
        found = judge(draw, law, size, trials)
        rows.append(
            {"way": name, "broken": nats, "size": size, "trials": trials, "kernels": found}
        )
        print(rows[-1], flush=True)
        settings = {"n": LENGTH, "tokens": TOKENS, "level": LEVEL, "law_seed": LAW_SEED}
        made = [*known["made"], made_now()]
        written = {"made": made, "settings": settings, "rows": rows}
        told.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
