"""Designs of one model in the eyes of another: what a way of drawing breaks, and what it is worth.

A model's own law says what dependence is broken when residues are drawn together. Whether that
matters to anybody else is for another model to say, one that was trained apart: it scores the
finished designs by the chain rule, the mean over some random orders, at temperature 1 whatever
they were drawn at. Beside it stand the residues of nature that were recovered, how varied designs
are, and how fast they come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import counterprobe as cp
from counterprobe.evaluation import log_likelihoods, run_kl
from counterprobe.evaluation.chain_rule_kl import grouped_error
from counterprobe.evaluation.two_sample import diversity
from counterprobe.run.ledger import Need
from designs.contest import GROUPS, Contestant, recovery

__all__ = ["Effort", "Judged", "break_even", "by_oracle"]

Scores = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is drawn and measured.

    Attributes
    ----------
    designs : int
    priced : int
        Designs of these whose broken dependence is measured; 0 for none.
    terms : int or None
        Steps of each batch that its price is estimated from; None for all.
    """

    designs: int
    priced: int
    terms: int | None = 1


def by_oracle(oracle: cp.Oracle, given: np.ndarray, orders: int) -> Scores:
    """Return what scores designs by the chain rule under an oracle, in nats each."""

    def scores(sequences: np.ndarray) -> np.ndarray:
        return log_likelihoods(oracle, sequences, given=given, orders=orders).per_sequence

    return scores


@dataclass(frozen=True)
class Judged:
    """One task: who draws, who judges, and what nature has there.

    Attributes
    ----------
    oracle : Oracle
        Of the model that draws; its temperature is part of its law.
    given : ndarray of int, shape (N,)
    judge : callable
        Scores designs, in nats each.
    native : ndarray of int, shape (N,)
        -1 where nothing is known or nothing was masked.
    """

    oracle: cp.Oracle
    given: np.ndarray
    judge: Scores
    native: np.ndarray

    def draw(self, contestant: Contestant, count: int, seed: int = 0) -> cp.SampleBatch:
        """Draw designs, plans shared by groups; raise ``ValueError`` if a rule stopped early."""
        is_alone = contestant.kind == "peer"
        batch = cp.sample(
            self.oracle,
            contestant.rule,
            count,
            seed=seed,
            given=self.given,
            orders="fresh" if is_alone else min(GROUPS, count),
            at_once=count,
            progress=False,
        )
        if batch.num_completed < len(batch):
            raise ValueError(f"{contestant.key} stopped early: {batch.results[0].reason}")
        return batch

    def measure(self, contestant: Contestant, effort: Effort) -> dict[str, Any]:
        """Draw designs against the clock, and measure them."""
        started = time.perf_counter()
        batch = self.draw(contestant, effort.designs)
        seconds = time.perf_counter() - started
        return {
            "sampler": contestant.sampler,
            "settings": dict(contestant.settings),
            "evaluations": float(np.mean([result.ledger.evaluations for result in batch.results])),
            "designs": len(batch),
            "designs a second": len(batch) / seconds,
            **self.judged(batch),
            **self.broken(contestant, batch, effort),
        }

    def judged(self, batch: cp.SampleBatch) -> dict[str, Any]:
        """Score designs by the judge, by nature, and by how they differ."""
        scores = self.judge(batch.sequences)
        # Designs of one plan go together; one pass over everything has no plan.
        seeds = [
            result.streams.decision_seed if len(result.batches) > 1 else k
            for k, result in enumerate(batch.results)
        ]
        masked = np.flatnonzero(self.given == cp.MASK)
        spread = diversity(batch.sequences, positions=masked)
        return {
            "judge": float(scores.mean()),
            "judge_se": grouped_error(scores, np.unique(seeds, return_inverse=True)[1]),
            "variety": spread.mean_distance / len(masked),
            "distinct": spread.num_distinct,
            **recovery(batch.sequences, self.native),
        }

    def broken(
        self, contestant: Contestant, batch: cp.SampleBatch, effort: Effort
    ) -> dict[str, Any]:
        """Price some designs of every group under the law they were drawn from."""
        if all(len(one) == 1 for result in batch.results for one in result.batches):
            return {"kl": 0.0, "kl_se": 0.0, "priced": len(batch)}
        if not effort.priced or contestant.rule.needs & (Need.VERIFY | Need.REMASK):
            return {}
        count = min(effort.priced, len(batch))
        chosen = np.linspace(0, len(batch) - 1, count).round().astype(int)
        found = run_kl(self.oracle, [batch.results[k] for k in chosen], terms=effort.terms)
        return {
            "kl": found.value,  # infinite where a row leaves no mass for what another one draws
            "kl_se": found.standard_error,
            "kl_median": float(np.median(found.per_sample)),
            "priced": found.samples,
            "measuring": found.ledger.evaluations,
        }

    def of_nature(self) -> dict[str, Any]:
        """Return what the judge says of the natural sequence; nothing where it has gaps."""
        sequence = np.where(self.given == cp.MASK, self.native, self.given)
        if (sequence < 0).any():
            return {}
        return {"judge": float(self.judge(sequence[None])[0])}


def break_even(ways: Mapping[str, Mapping[str, Any]], structure: int, planned: str) -> Any:
    """Return how many designs repay finding a structure, against each way that needs none.

    What is compared breaks no more than the plan (beyond two standard errors of the difference):
    of each free way the fewest evaluations that do, and one residue at a time.

    Parameters
    ----------
    ways : mapping
        Measurements by name, such as ``planned 8``.
    structure : int
        Evaluations that found it.
    planned : str
        The plan in question.

    Returns
    -------
    dict
        By way: ``designs``, None where a free way breaks no more in as few evaluations, and
        ``evaluations``, those of the free way; a way that never gets there is left out.
    """
    mine = ways[planned]
    found: dict[str, Any] = {}
    for name, entry in ways.items():
        if entry["sampler"] == "planned" or entry.get("kl") is None:
            continue
        error = 2 * np.hypot(entry["kl_se"] or 0.0, mine["kl_se"] or 0.0)
        way = name.split()[0]
        cost = entry["evaluations"]
        if entry["kl"] > mine["kl"] + error:
            continue
        if way not in found or cost < found[way]["evaluations"]:
            saved = cost - mine["evaluations"]
            designs = int(structure // saved) + 1 if saved > 0 else None
            found[way] = {"evaluations": cost, "designs": designs}
    return found
