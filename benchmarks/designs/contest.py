"""Samplers side by side where no law is known: what each costs, and how good its sequences are.

Every rule draws the same number of sequences from the same seed. They are measured by the batch KL
of what was committed together, the log-likelihood in fresh random orders, and a permutation test
against sequences drawn one position at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

import counterprobe as cp
from counterprobe.evaluation import assess
from counterprobe.evaluation.two_sample import TwoSampleTest
from counterprobe.samplers import Sampler, build_sampler

__all__ = [
    "Contestant",
    "Effort",
    "Field",
    "Sweeps",
    "baselines",
    "joint_p_value",
    "peers",
    "recovery",
]

Kind = Literal["structured", "baseline", "peer"]

# Groups of sequences that share a plan or an order.
GROUPS = 16
# Rules with a setting that decides how many steps they take, and its values.
Sweeps = Mapping[str, tuple[str, tuple[float, ...]]]
REFERENCE_SEED = 1_000


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is drawn and measured.

    Attributes
    ----------
    sequences, reference : int
        Sequences of a sampler, and of the reference.
    scored : int
        Sequences of these that are scored and priced.
    orders : int
        Random orders in which each of them is scored.
    terms : int
        Steps of each batch that its price is estimated from.
    permutations : int
    """

    sequences: int
    reference: int
    scored: int
    orders: int = 2
    terms: int = 2
    permutations: int = 999


@dataclass(frozen=True, slots=True)
class Contestant:
    """A sampler at one setting."""

    sampler: str
    settings: Mapping[str, Any]
    rule: Sampler
    kind: Kind

    @property
    def key(self) -> str:
        """Name and settings, unlike those of any other."""
        return " ".join([self.sampler, *(f"{k}={v}" for k, v in self.settings.items())])

    @classmethod
    def dealt(cls, way: str, rule: Sampler, **settings: Any) -> Contestant:
        """Name a sampler that commits by plans of one way: ``planned`` ones need a structure."""
        return cls(way, settings, rule, "structured" if way == "planned" else "baseline")

    @classmethod
    def named(cls, name: str, kind: Kind, **settings: Any) -> Contestant:
        """Build a sampler from its name and settings."""
        return cls(name, settings, build_sampler(name, settings), kind)


def baselines(budgets: Sequence[int]) -> Iterator[Contestant]:
    """Yield one at a time, and what needs no reply."""
    yield Contestant.named("sequential", "baseline", order="random")
    for budget in budgets:
        yield Contestant.named("random-balanced", "baseline", batches=budget)
        yield Contestant.named("spread", "baseline", batches=budget)


def peers(budgets: Sequence[int], sweeps: Sweeps) -> Iterator[Contestant]:
    """Yield rules that adapt to replies: by number of steps, then by settings of their own."""
    for budget in budgets:
        yield Contestant.named("llada", "peer", steps=budget)
        yield Contestant.named("maskgit", "peer", steps=budget)
    for name, (setting, values) in sweeps.items():
        for value in values:
            yield Contestant.named(name, "peer", **{setting: value})


def joint_p_value(test: TwoSampleTest) -> float:
    """Return the p-value of all kernels together: the smallest, times their number."""
    return min(1.0, len(test.p_value) * min(test.p_value.values()))


class Field:
    """What all contestants of one task share.

    Parameters
    ----------
    oracle : Oracle
        Whose rows are a function of the state alone.
    given : array_like of int, shape (N,)
        Context, ``MASK`` elsewhere.
    effort : Effort
    native : ndarray of int, shape (N,), optional
        The natural sequence, -1 where there is none: for its recovery.
    """

    def __init__(
        self,
        oracle: cp.Oracle,
        given: ArrayLike,
        effort: Effort,
        native: np.ndarray | None = None,
    ) -> None:
        self.oracle = oracle
        self.given = np.asarray(given)
        self.effort = effort
        self.native = native
        self._reference: cp.SampleBatch | None = None

    @property
    def reference(self) -> cp.SampleBatch:
        """Sequences drawn one position at a time, each in an order of its own."""
        if self._reference is None:
            self._reference = cp.sample(
                self.oracle,
                "sequential",
                self.effort.reference,
                order="random",
                orders="fresh",
                seed=REFERENCE_SEED,
                given=self.given,
                progress=False,
            )
        return self._reference

    def draw(self, contestant: Contestant, seed: int = 0) -> cp.SampleBatch:
        """Draw sequences; raise ``ValueError`` with the rule's reason if it stopped early."""
        is_alone = contestant.kind == "peer" or contestant.sampler == "sequential"
        batch = cp.sample(
            self.oracle,
            contestant.rule,
            self.effort.sequences,
            seed=seed,
            given=self.given,
            orders="fresh" if is_alone else GROUPS,
            progress=False,
        )
        if batch.num_completed < len(batch):
            raise ValueError(f"{contestant.key} stopped early: {batch.results[0].reason}")
        return batch

    def measure(self, contestant: Contestant) -> dict[str, Any]:
        """Draw sequences and measure them."""
        batch = self.draw(contestant)
        spent = [result.ledger for result in batch.results]
        return {
            "sampler": contestant.sampler,
            "settings": dict(contestant.settings),
            "kind": contestant.kind,
            "evaluations": float(np.mean([ledger.evaluations for ledger in spent])),
            "stages": float(np.mean([ledger.stages for ledger in spent])),
            **self.score(batch),
        }

    def score(self, batch: cp.SampleBatch) -> dict[str, Any]:
        """Measure sequences: all of them by themselves, the first ones by the oracle."""
        effort = self.effort
        by_oracle = assess(
            self.oracle,
            first_of(batch, effort.scored),
            orders=effort.orders,
            terms=effort.terms,
        )
        by_looks = assess(
            self.oracle,
            batch,
            self.reference,
            evaluate=False,
            permutations=effort.permutations,
        )
        kl = by_oracle.batch_kl
        found = {
            "kl": None if kl is None else kl.value,
            "kl_se": None if kl is None else kl.standard_error,
            "log_likelihood": by_oracle.log_likelihood_per_token,
            "log_likelihood_se": by_oracle.log_likelihood_per_token_se,
            "mmd_p": None if by_looks.test is None else joint_p_value(by_looks.test),
            "distance": by_looks.diversity.mean_distance,
            "sequences": len(batch),
            "scored": by_oracle.completed,
            "measuring": by_oracle.ledger.evaluations,
        }
        if self.native is not None:
            found.update(recovery(batch.sequences, self.native))
        return found


def first_of(batch: cp.SampleBatch, count: int) -> cp.SampleBatch:
    """Return the first sequences of a batch."""
    return cp.SampleBatch(
        batch.sequences[:count], batch.given[:count], batch.results[:count], batch.ledger
    )


def recovery(sequences: np.ndarray, native: np.ndarray) -> dict[str, float]:
    """Return the share of residues that are the natural ones, and its standard error.

    Parameters
    ----------
    sequences : ndarray of int, shape (count, N)
    native : ndarray of int, shape (N,)
        Below 0 where nothing natural is known; such positions do not count.
    """
    known = native >= 0
    if not known.any():
        return {"recovery": math.nan, "recovery_se": math.nan}
    shares = (sequences[:, known] == native[known]).mean(axis=1)
    error = shares.std(ddof=1) / math.sqrt(len(shares)) if len(shares) > 1 else math.nan
    return {"recovery": float(shares.mean()), "recovery_se": float(error)}
