"""The batch KL of a run: how far its product commits were from the joint law, along its history.

With rows ``q_i`` at the state before batch ``B_t`` and ``P_t`` the exact joint law of the batch
given the history, ``K = sum_t KL(prod q_i || P_t)``, product to joint (appendix "Resources and
accuracy"). It is passive: nothing is submitted. It splits into a row part ``sum KL(q_i || p_i)``,
zero for an exact oracle, and a dependence part. It measures the batches along the sampled history;
the bias of a rule whose selection depends on drawn *values* is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.evaluation.factors import make_piece_scratch
from counterprobe.evaluation.pieces import batch_dependence
from counterprobe.oracles import Oracle, Readouts
from counterprobe.rows import ClassedRows, Rows, to_numpy
from counterprobe.run.ledger import Need
from counterprobe.run.results import SampleResult, StopReason
from counterprobe.states import MASK, as_context, as_states, check_batch, mix64
from counterprobe.targets.inference import make_scratch
from counterprobe.targets.law import ForestLaw, ForestOracle
from counterprobe.targets.table import TableLaw, TableOracle

__all__ = ["BatchKL", "BatchKLMeter", "batch_kl", "batch_kl_of_batches", "reference_kl"]


DEFAULT_DRAWS = 128


@dataclass(frozen=True, slots=True)
class BatchKL:
    """The batch KL of one run.

    Attributes
    ----------
    value : float
        K; NaN for a run that verifies, masks again, drew at a temperature other than 1 or did not
        complete, to which the measure does not apply.
    standard_error : float
        Monte Carlo standard error of ``value``, given the run.
    row_part, dependence_part : float
        ``sum KL(q_i || p_i)``, and the rest.
    per_round : ndarray of float, shape (R,)
        Contribution of each batch.
    num_enumerated, num_sampled, largest_arity : int
        How many factors were enumerated and sampled, and how many batch positions the largest
        one touched.
    """

    value: float
    standard_error: float
    row_part: float
    dependence_part: float
    per_round: FloatArray
    num_enumerated: int
    num_sampled: int
    largest_arity: int

    def __post_init__(self) -> None:
        """Freeze the array."""
        self.per_round.setflags(write=False)

    def __str__(self) -> str:
        """Return the value and its error in words."""
        if math.isnan(self.value):
            return "does not apply"
        error = f" (SE {self.standard_error:.2g})" if self.standard_error else ""
        return f"{self.value:.6g}{error}"

    def passes(self, threshold: float) -> bool:
        """Whether ``K + 2 SE`` is at most the threshold."""
        return self.value + 2 * self.standard_error <= threshold


class _Measure(Protocol):
    """What one law contributes: row part, dependence, its variance, counts of one batch."""

    def __call__(
        self, state: StateArray, batch: IntArray, round_index: int
    ) -> tuple[float, float, float, int, int, int]: ...


def batch_kl(
    law: ForestLaw | TableLaw,
    result: SampleResult,
    *,
    oracle: Oracle | None = None,
    draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> BatchKL:
    """Measure K along a finished run.

    Parameters
    ----------
    law : ForestLaw or TableLaw
        The target the run was meant to sample.
    result : SampleResult
    oracle : Oracle, optional
        The oracle the run used, if it was not ``law.oracle()``.
    draws : int
        Monte Carlo draws for each factor of arity above four.
    seed : int
        Evaluation seed; independent of the run's.
    """
    applies = result.stop is StopReason.COMPLETED and result.temperature == 1
    if not applies or result.used & (Need.VERIFY | Need.REMASK):
        nan = math.nan
        return BatchKL(nan, nan, nan, nan, np.empty(0), 0, 0, 0)
    expected = law.oracle().name if oracle is None else getattr(oracle, "name", None)
    if expected is not None and expected != result.oracle_name:
        raise ValueError(
            f"the run used oracle {result.oracle_name!r}, not {expected!r}; pass the one it used "
            "as oracle="
        )
    assert result.tokens is not None
    return batch_kl_of_batches(
        law, result.tokens, result.batches, given=result.given, oracle=oracle, draws=draws,
        seed=seed,
    )  # fmt: skip


def batch_kl_of_batches(
    law: ForestLaw | TableLaw,
    tokens: ArrayLike,
    batches: Sequence[ArrayLike],
    *,
    given: ArrayLike | None = None,
    oracle: Oracle | None = None,
    draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> BatchKL:
    """Measure K for any sequence of batches with the values they were committed to.

    Parameters
    ----------
    law : ForestLaw or TableLaw
    tokens : array_like of int, shape (N,)
        The committed values.
    batches : sequence of array_like of int
        In commit order.
    given : array_like of int, shape (N,), optional
        Context known before the first batch.
    oracle, draws, seed
        As in :func:`batch_kl`.
    """
    size = law.length, law.vocab_size
    values = as_states(np.asarray(tokens), *size, name="tokens")[0]
    state = as_context(given, *size)
    meter = BatchKLMeter(law, oracle=oracle, draws=draws, seed=seed)
    for k, batch in enumerate(batches):
        positions = check_batch(batch, state)
        if (values[positions] == MASK).any():
            raise ValueError(f"tokens must have a value at every committed position, round {k}")
        meter.add(state, positions)
        state[positions] = values[positions]
    return meter.total()


class BatchKLMeter:
    """K as it grows, batch by batch: for runs that are watched while they go.

    Parameters
    ----------
    law, oracle, draws, seed
        As in :func:`batch_kl`.
    """

    def __init__(
        self,
        law: ForestLaw | TableLaw,
        *,
        oracle: Oracle | None = None,
        draws: int = DEFAULT_DRAWS,
        seed: int = 0,
    ) -> None:
        if draws < 2:
            raise ValueError(f"draws must be at least 2, got {draws!r}")
        if seed < 0:
            raise ValueError(f"seed must be a non-negative integer, got {seed!r}")
        self._measure: _Measure
        if isinstance(law, ForestLaw):
            self._measure = _ForestMeasure(law, oracle, draws, seed)
        else:
            self._measure = _TableMeasure(law, oracle)
        self._per_round: list[float] = []
        self._row_part = self._dependence = self._variance = 0.0
        self._num_enumerated = self._num_sampled = self._largest = 0

    @property
    def value(self) -> float:
        """K so far."""
        return self._row_part + self._dependence

    def add(self, state: StateArray, batch: IntArray) -> None:
        """Measure one batch at the history before it.

        Parameters
        ----------
        state : ndarray of int, shape (N,)
            The history, with the batch still masked.
        batch : ndarray of int
            Distinct masked positions.
        """
        found = self._measure(state, batch, len(self._per_round))
        rows, joint, variance, enumerated, sampled, arity = found
        self._per_round.append(rows + joint)
        self._row_part += rows
        self._dependence += joint
        self._variance += variance
        self._num_enumerated += enumerated
        self._num_sampled += sampled
        self._largest = max(self._largest, arity)

    def total(self) -> BatchKL:
        """Return K of the batches so far."""
        return BatchKL(
            value=self.value,
            standard_error=math.sqrt(self._variance),
            row_part=self._row_part,
            dependence_part=self._dependence,
            per_round=np.array(self._per_round),
            num_enumerated=self._num_enumerated,
            num_sampled=self._num_sampled,
            largest_arity=self._largest,
        )


def reference_kl(law: ForestLaw) -> float:
    """Return ``L_0``: K of one product batch of all positions, enumerated edge by edge."""
    everything = np.arange(law.length)
    start = np.zeros(law.length, dtype=np.int64)
    return batch_kl_of_batches(law, start, [everything]).value


class _ForestMeasure:
    """Dependence of a batch under a forest law, by the kernels in ``pieces.py``."""

    def __init__(self, law: ForestLaw, oracle: Oracle | None, draws: int, seed: int) -> None:
        self._law = law
        self._oracle = None if isinstance(oracle, ForestOracle) and oracle.law is law else oracle
        self._exact = law.oracle()
        self._draws = draws
        self._seed = seed
        self._scratch = make_scratch(law.length, law.num_classes)
        self._pieces = make_piece_scratch(law.length, law.num_classes)

    def __call__(
        self, state: StateArray, batch: IntArray, round_index: int
    ) -> tuple[float, float, float, int, int, int]:
        """Measure one batch."""
        row_part = 0.0
        product_law = np.empty((0, self._law.num_classes))
        if self._oracle is not None:
            readouts = Readouts.same(1, batch)
            rows = self._oracle.rows(state[None, :], readouts)
            row_part = _row_part(rows, self._exact.rows(state[None, :], readouts))
            product_law = _class_masses(rows, self._law, batch)
        if len(batch) < 2:
            return row_part, 0.0, 0.0, 0, 0, 0
        # A key of 63 bits, so that it stays a plain integer for the kernel.
        key = int(mix64(mix64(np.uint64(self._seed)) ^ np.uint64(round_index))) >> 1
        batch_dependence(
            self._law.arrays,
            self._scratch,
            self._pieces,
            state,
            batch,
            product_law,
            self._oracle is None,
            self._draws,
            key,
        )
        total, variance, enumerated, sampled, arity = self._pieces.outcome
        return row_part, float(total), float(variance), int(enumerated), int(sampled), int(arity)


class _TableMeasure:
    """Dependence of a batch under a table law, by enumeration."""

    def __init__(self, law: TableLaw, oracle: Oracle | None) -> None:
        self._law = law
        self._oracle = None if isinstance(oracle, TableOracle) and oracle.law is law else oracle
        self._exact = law.oracle()

    def __call__(
        self, state: StateArray, batch: IntArray, round_index: int
    ) -> tuple[float, float, float, int, int, int]:
        """Measure one batch."""
        readouts = Readouts.same(1, batch)
        exact = self._exact.rows(state[None, :], readouts)
        rows = exact if self._oracle is None else self._oracle.rows(state[None, :], readouts)
        row_part = 0.0 if self._oracle is None else _row_part(rows, exact)
        if len(batch) < 2:
            return row_part, 0.0, 0.0, 0, 0, 0
        joint = self._law.conditional(state, batch)
        drawn, ideal = np.ones(()), np.ones(())
        for q, p in zip(to_numpy(rows.dense()), to_numpy(exact.dense()), strict=True):
            drawn, ideal = np.multiply.outer(drawn, q), np.multiply.outer(ideal, p)
        # Where the product of exact rows misses mass, the row part is infinite already.
        support = (drawn > 0) & (ideal > 0)
        with np.errstate(divide="ignore"):
            ratio = np.log(ideal[support]) - np.log(joint[support])
        return row_part, float((drawn[support] * ratio).sum()), 0.0, 1, 0, len(batch)


def _row_part(rows: Rows, exact: Rows) -> float:
    return float(to_numpy(rows.kl(exact)).sum())


def _class_masses(rows: Rows, law: ForestLaw, positions: IntArray) -> FloatArray:
    if isinstance(rows, ClassedRows) and rows.classes is law.classes:
        return rows.class_masses
    return law.classes.aggregate(positions, to_numpy(rows.dense()))
