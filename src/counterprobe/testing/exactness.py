"""Whether a sampler draws from the target where it says so.

By enumeration where the ways to draw can be enumerated, by draws where they cannot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from counterprobe.evaluation.draw_tree import draw_tree_law
from counterprobe.evaluation.output_law import exact_output_law
from counterprobe.run.ledger import Right
from counterprobe.run.results import SampleResult, StopReason
from counterprobe.run.unmasking import Unmasking
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Streams
from counterprobe.testing.laws import Law, tiny_laws
from counterprobe.testing.require import require
from counterprobe.testing.wrappers import CountingOracle

__all__ = ["STREAMS", "Laws", "attempt", "check_exactness"]

STREAMS = Streams(21, 22)
# Draws of a rule that verifies; chi-square on 7 degrees of freedom passes 60 with chance 1.5e-10.
NUM_DRAWS, MOST_SURPRISE = 300, 60.0
Laws = Sequence[Law] | None


def attempt(sampler: Sampler, law: Law) -> tuple[Sampler | None, SampleResult | None, str]:
    """Run on a law; return the sampler and its result, or why it refused before submitting."""
    oracle = CountingOracle(law.oracle(), trusted=True)
    try:
        told = sampler.informed_by(law)
        result = told(Unmasking(oracle), STREAMS)
    except ValueError as problem:
        if oracle.calls:
            raise
        return None, None, str(problem)
    if result.stop is StopReason.COMPLETED:
        return told, result, ""
    require(result.tokens is None, sampler.name, "an infeasible run must have no tokens")
    return None, None, result.reason


def check_exactness(sampler: Sampler, laws: Laws = None) -> None:
    """Require the target as output law, by enumeration to 1e-12, where exactness is claimed.

    Small laws of its own are used, whatever ``laws`` says. Rules that verify have no end of ways
    to draw: a few hundred draws are judged instead, which shows what is grossly wrong.
    """
    if Right.VERIFY in sampler.rights:
        _check_draws(sampler)
        return
    commits_candidates = Right.COMMIT_CANDIDATES in sampler.rights
    for law in tiny_laws(3 if commits_candidates else 4):
        told = attempt(sampler, law)[0]
        if told is None or not told.exact_for(law.length):
            continue
        for seed in range(3):
            if commits_candidates:
                output = draw_tree_law(law, told, decision_seed=seed)
            else:
                replayed = exact_output_law(law, told, decision_seed=seed)
                output = None if replayed is None else replayed.output
            if output is None:
                continue
            sequences = np.indices(output.shape).reshape(law.length, -1).T
            target = np.exp(law.log_prob(sequences)).reshape(output.shape)
            gap = float(np.abs(output - target).sum() / 2)
            require(gap < 1e-12, sampler.name, f"claims to be exact but is {gap:.3g} off in TV")


def _check_draws(sampler: Sampler) -> None:
    """Compare draws with the target by chi-square, where exactness is claimed."""
    for law in tiny_laws(3):
        told = attempt(sampler, law)[0]
        if told is None or not told.exact_for(law.length):
            continue
        oracle = law.oracle()
        target = np.exp(law.log_prob(np.indices((2,) * 3).reshape(3, -1).T))
        counts = np.zeros(8)
        for k in range(NUM_DRAWS):
            tokens = told(Unmasking(oracle, trusted=True, sequence=k), Streams(k, 5)).tokens
            counts[np.ravel_multi_index(tuple(tokens), (2,) * 3)] += 1  # type: ignore[arg-type]
        surprise = float(((counts - NUM_DRAWS * target) ** 2 / (NUM_DRAWS * target)).sum())
        require(
            surprise < MOST_SURPRISE,
            sampler.name,
            f"claims to be exact but {NUM_DRAWS} draws have chi-square {surprise:.0f} on 7 "
            "degrees of freedom",
        )
