"""The exact output law of any sampler on a small law, by forced replay.

For one decision seed a sampler's decisions are a function of the committed values. Replaying it
with its commits forced to a sequence x gives the batches and rows along x's path, and so the exact
probability that the sampler outputs x. The tree of histories is walked with every node remembered:
a screen runs once per distinct history, and a replay only where a history is new.

Everything is over classes: the law's tokens within a class are exchangeable, and so must be the
oracle's rows (``FrozenNoise(..., classes=law.classes)``). From the same tree come the paper's
identities: the joint-reference decomposition of the KL, and the exact-commit hybrid.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.errors import CounterprobeError
from counterprobe.oracles import Oracle, Readouts, as_oracle
from counterprobe.rows import ClassedRows, Rows, to_numpy
from counterprobe.run.driver import Shared
from counterprobe.run.ledger import Need
from counterprobe.run.results import StopReason
from counterprobe.run.run import Run
from counterprobe.samplers.base import Sampler
from counterprobe.states import MASK
from counterprobe.streams import Streams
from counterprobe.targets.curves import forest_table
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.table import TableLaw

__all__ = [
    "OutputLaw",
    "RiskEstimate",
    "class_table",
    "draw_tree_law",
    "exact_output_law",
    "seed_averaged_risk",
]

T = TypeVar("T")

MAX_SEQUENCES = 1 << 16
Draws = tuple[tuple[int, ...], ...]
MAX_REPLAYS = 1 << 16


def class_table(law: ForestLaw | TableLaw) -> TableLaw:
    """Return the joint table over class sequences, shape ``(C,) * N``."""
    if isinstance(law, TableLaw):
        return law
    if law.num_classes**law.length > MAX_SEQUENCES:
        raise ValueError(
            f"the exact output law needs at most {MAX_SEQUENCES} class sequences, got "
            f"{law.num_classes}^{law.length}; choose a smaller law"
        )
    return forest_table(law)


@dataclass(frozen=True)
class _Node:
    """A reached history: the batch chosen there, the rows it is drawn from, and the exact law."""

    batch: IntArray
    rows: FloatArray
    exact: FloatArray
    joint: FloatArray

    @cached_property
    def affinity(self) -> float:
        """Hellinger affinity between the batch's exact joint law and the product of its rows."""
        return float(np.sqrt(self.joint * _product(self.rows)).sum())

    @cached_property
    def product_gap(self) -> float:
        """TV between the batch's exact joint law and the product of its exact rows."""
        return float(np.abs(_product(self.exact) - self.joint).sum() / 2)


@dataclass(frozen=True, slots=True)
class _ForcedDraw:
    """Draws a given sequence of classes, and notes every commit it passes."""

    walk: _Walk
    classes: IntArray

    def __call__(self, state: StateArray, positions: IntArray, rows: Rows, index: int) -> IntArray:
        self.walk.visit(state, positions, rows)
        return self.walk.tokens(positions, self.classes[positions])


class _Walk:
    """The tree of histories of one decision seed."""

    def __init__(
        self, law: ForestLaw | TableLaw, oracle: Oracle, sampler: Sampler, decision_seed: int
    ) -> None:
        self.law = law
        self.table = class_table(law)
        self.oracle = oracle
        self.exact = law.oracle()
        self.sampler = sampler
        self.seed = decision_seed
        self.shared = Shared(most=None)
        self.nodes: dict[bytes, _Node] = {}
        self.diagnostics: list[object] = []
        self.infeasible = False

    def tokens(self, positions: IntArray, classes: IntArray) -> IntArray:
        """Return one token of each class."""
        if isinstance(self.law, TableLaw):
            return classes
        kinds = self.law.classes.kind[positions]
        return self.law.classes.class_top_token[kinds, classes]

    def class_state(self, state: NDArray[np.int32]) -> NDArray[np.int32]:
        """Turn tokens into classes."""
        if isinstance(self.law, TableLaw):
            return state
        kinds = self.law.classes.kind
        classes = self.law.classes.token_class[kinds, np.maximum(state, 0)]
        return np.where(state == MASK, MASK, classes).astype(np.int32)

    def masses(self, rows: Rows, positions: IntArray) -> FloatArray:
        """Return class masses of rows."""
        if isinstance(self.law, TableLaw):
            return np.asarray(to_numpy(rows.dense()), dtype=np.float64)
        if isinstance(rows, ClassedRows) and rows.classes is self.law.classes:
            return rows.class_masses
        return self.law.classes.aggregate(positions, to_numpy(rows.dense()))

    def visit(self, state: NDArray[np.int32], batch: IntArray, rows: Rows) -> None:
        """Note a commit."""
        classes = self.class_state(state)
        exact = self.exact.rows(state[None, :], Readouts.same(1, batch))
        self.nodes[classes.tobytes()] = _Node(
            batch,
            self.masses(rows, batch),
            self.masses(exact, batch),
            self.table.conditional(classes, batch),
        )

    def replay(self, sequence: IntArray) -> None:
        """Run the sampler with its commits forced to one class sequence."""
        run = Run(
            self.oracle,
            allowed=Need.SELECT,
            draw=_ForcedDraw(self, sequence),
            shared=self.shared,
        )
        result = self.sampler(run, Streams(self.seed, 0))
        self.diagnostics.append(result.diagnostics)
        self.infeasible = result.stop is StopReason.INFEASIBLE


@dataclass(frozen=True, slots=True)
class OutputLaw:
    """The output law of one decision seed, against the target.

    Attributes
    ----------
    target, output, hybrid : ndarray of float, shape (C,) * N
        The target, the sampler's output law, and that of the exact-commit hybrid (same decisions,
        exact rows at commits).
    midpoint, affinity : ndarray of float, shape (C,) * N
        The law of the same decisions with every batch drawn from the normalised geometric mean of
        its exact law and the sampler's, and the product of the affinities along each path. The
        mean of the second under the first is ``1 - squared_hellinger``, for every rule (the
        adaptive midpoint identity).
    total_correlation, row_kl : float
        The two parts of the joint-reference decomposition: their sum is ``KL(target || output)``.
    is_safe : bool
        Whether every batch was conditionally independent under the target.
    num_histories : int
        Distinct histories visited.
    diagnostics : tuple
        What the sampler reported of each replay; together they pass through every history.
    """

    target: FloatArray
    output: FloatArray
    hybrid: FloatArray
    midpoint: FloatArray
    affinity: FloatArray
    total_correlation: float
    row_kl: float
    is_safe: bool
    num_histories: int
    diagnostics: tuple[object, ...]

    @property
    def total_variation(self) -> float:
        """TV between target and output."""
        return float(np.abs(self.target - self.output).sum() / 2)

    @property
    def kl(self) -> float:
        """``KL(target || output)``, infinite where the output misses mass."""
        seen = self.target > 0
        with np.errstate(divide="ignore"):
            logs = np.log(self.target[seen]) - np.log(self.output[seen])
        return float((self.target[seen] * logs).sum())

    @property
    def squared_hellinger(self) -> float:
        """Squared Hellinger distance between target and output."""
        return float(((np.sqrt(self.target) - np.sqrt(self.output)) ** 2).sum() / 2)

    @property
    def hybrid_hellinger(self) -> float:
        """Squared Hellinger distance between hybrid and output."""
        return float(((np.sqrt(self.hybrid) - np.sqrt(self.output)) ** 2).sum() / 2)

    @property
    def hybrid_total_variation(self) -> float:
        """TV between target and hybrid; zero for safe rules."""
        return float(np.abs(self.target - self.hybrid).sum() / 2)


def exact_output_law(
    law: ForestLaw | TableLaw,
    sampler: Sampler,
    *,
    oracle: Oracle | None = None,
    decision_seed: int = 0,
) -> OutputLaw | None:
    """Compute the output law of one decision seed; None when the sampler is infeasible.

    Parameters
    ----------
    law : ForestLaw or TableLaw
        At most 2^16 class sequences.
    sampler : Sampler
        Any that draws its commits from rows; not one that verifies or commits candidates.
    oracle : Oracle, optional
        ``law.oracle()`` by default; its rows must not tell tokens of one class apart.
    decision_seed : int
    """
    forbidden = Need.VERIFY | Need.REMASK | Need.CANDIDATES
    if sampler.needs & forbidden:
        raise ValueError(
            f"sampler {sampler.name!r} does not draw its commits from rows alone; its output law "
            "cannot be replayed (draw_tree_law follows candidates on a very small law)"
        )
    walk = _Walk(law, oracle or law.oracle(), sampler, decision_seed)
    target = walk.table.table
    output, hybrid = np.ones(target.shape), np.ones(target.shape)
    midpoint, affinity = np.ones(target.shape), np.ones(target.shape)
    correlation = np.zeros(target.shape)
    row_kl = np.zeros(target.shape)
    for sequence in itertools.product(range(target.shape[0]), repeat=target.ndim):
        x = np.array(sequence)
        state = np.full(law.length, MASK, dtype=np.int32)
        while (state == MASK).any():
            node = walk.nodes.get(state.tobytes())
            if node is None:
                walk.replay(x)
                if walk.infeasible:
                    return None
                node = walk.nodes.get(state.tobytes())
                if node is None:
                    raise CounterprobeError(
                        f"sampler {sampler.name!r} did not repeat itself on the same history; its "
                        "decisions must be a function of the seed and the committed values"
                    )
            slots = np.arange(len(node.batch))
            mine = x[node.batch]
            drawn, ideal = node.rows[slots, mine], node.exact[slots, mine]
            output[sequence] *= drawn.prod()
            hybrid[sequence] *= ideal.prod()
            joint = node.joint[tuple(mine)]
            midpoint[sequence] *= np.sqrt(joint * drawn.prod()) / node.affinity
            affinity[sequence] *= node.affinity
            with np.errstate(divide="ignore", invalid="ignore"):  # impossible x: weight zero
                correlation[sequence] += np.log(joint) - np.log(ideal).sum()
                row_kl[sequence] += (np.log(ideal) - np.log(drawn)).sum()
            state[node.batch] = mine
    seen = target > 0
    product_gap = max(node.product_gap for node in walk.nodes.values())
    return OutputLaw(
        target=target,
        output=output,
        hybrid=hybrid,
        midpoint=midpoint,
        affinity=affinity,
        total_correlation=float((target[seen] * correlation[seen]).sum()),
        row_kl=float((target[seen] * row_kl[seen]).sum()),
        is_safe=product_gap < 1e-12,
        num_histories=len(walk.nodes),
        diagnostics=tuple(walk.diagnostics),
    )


def _product(rows: FloatArray) -> FloatArray:
    """Return the joint law of independent rows, shape ``(C,) * n``."""
    product = np.ones(())
    for row in rows:
        product = np.multiply.outer(product, row)
    return product


@dataclass(frozen=True, slots=True)
class RiskEstimate:
    """Mean of per-seed divergences, never the divergence of the mixture.

    Attributes
    ----------
    total_variation, kl : float
    total_variation_se, kl_se : float
        Standard errors over seeds.
    seeds : int
    """

    total_variation: float
    total_variation_se: float
    kl: float
    kl_se: float
    seeds: int


def seed_averaged_risk(laws: Sequence[OutputLaw]) -> RiskEstimate:
    """Average the divergences of several seeds."""
    if not laws:
        raise ValueError("seed_averaged_risk needs at least one output law")
    distance = np.array([law.total_variation for law in laws])
    divergence = np.array([law.kl for law in laws])
    root = np.sqrt(len(laws))

    def spread(values: FloatArray) -> float:
        return float(values.std(ddof=1) / root) if len(values) > 1 else 0.0

    return RiskEstimate(
        total_variation=float(distance.mean()),
        total_variation_se=spread(distance),
        kl=float(divergence.mean()),
        kl_se=spread(divergence),
        seeds=len(laws),
    )


# ----- Rules that commit candidates --------------------------------------------------------


class _MoreDraws(Exception):
    """The script of draws ended: here are the rows of the next one."""

    def __init__(self, masses: FloatArray) -> None:
        super().__init__()
        self.masses = masses


class _ScriptedDraw:
    """Draws what is given beforehand."""

    def __init__(self, draws: Draws) -> None:
        self._draws: Iterator[tuple[int, ...]] = iter(draws)

    def __call__(self, state: StateArray, positions: IntArray, rows: Rows, index: int) -> IntArray:
        drawn = next(self._draws, None)
        if drawn is None:
            raise _MoreDraws(np.asarray(to_numpy(rows.dense()), dtype=np.float64))
        return np.array(drawn, dtype=np.int64)


def draw_tree_law(
    law: ForestLaw | TableLaw,
    sampler: Sampler,
    *,
    oracle: Oracle | None = None,
    decision_seed: int = 0,
) -> FloatArray | None:
    """Return the probability of every output, shape ``(V,) * N``; None when infeasible.

    Where candidates are drawn and some thrown away, commits cannot be forced: every vector
    of draws is followed instead, with its probability. That is dear, but needs nothing from the
    rule except that its decisions follow from the seed and what it has seen.

    Parameters
    ----------
    law : ForestLaw or TableLaw
        Small: the draws of a run may have at most 2^16 joint values.
    sampler : Sampler
        Any whose only commit randomness is what it draws from rows.
    oracle : Oracle, optional
        ``law.oracle()`` by default.
    decision_seed : int
    """
    if sampler.needs & (Need.VERIFY | Need.REMASK):
        raise ValueError(f"sampler {sampler.name!r} rejects or masks again what it drew")
    asked = as_oracle(oracle or law.oracle())
    output = np.zeros((law.vocab_size,) * law.length)
    waiting: list[tuple[Draws, float]] = [((), 1.0)]
    replays = 0
    while waiting:
        draws, weight = waiting.pop()
        replays += 1
        if replays > MAX_REPLAYS:
            raise ValueError(
                f"sampler {sampler.name!r} has more than {MAX_REPLAYS} ways to draw on "
                f"{law!r}; choose a smaller law"
            )
        try:
            run = Run(asked.declaring(trusted=True), draw=_ScriptedDraw(draws))
            result = sampler(run, Streams(decision_seed, 0))
        except _MoreDraws as more:
            tokens = [np.flatnonzero(row).tolist() for row in more.masses]
            for values in itertools.product(*tokens):
                chance = float(np.prod(more.masses[np.arange(len(values)), list(values)]))
                waiting.append(((*draws, values), weight * chance))
            continue
        if result.stop is not StopReason.COMPLETED:
            return None
        output[tuple(result.tokens)] += weight  # type: ignore[arg-type]
    return output
