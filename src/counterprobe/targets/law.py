"""Forest laws: hidden targets whose conditional rows are exact at any size.

A :class:`ForestLaw` is given by class weights at each position, a forest of edges, a positive pair
table on each edge, and how tokens map to classes. It answers what only the owner of a law may ask
(joint log-probability, exact joint samples, marginals, dependence) and hands out the oracle that
samplers may ask.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arguments import real_numbers
from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.classes import TokenClasses
from counterprobe.digests import content_digest
from counterprobe.graph import RootedForest, check_edges, root_forest
from counterprobe.oracles import (
    HistoryQuery,
    KeptWork,
    LawOracle,
    Readouts,
)
from counterprobe.rows import ClassedRows, Rows
from counterprobe.states import MASK, as_states
from counterprobe.targets import inference
from counterprobe.targets.inference import MAX_SPREAD, ForestArrays, Scratch
from counterprobe.targets.session import ForestSession
from counterprobe.threads import run_in_parts

__all__ = ["ForestLaw", "ForestOracle"]


class ForestLaw:
    """A strictly positive law on a forest: ``P(x) = prod unary_i(x_i) prod pair_e(x_i, x_j) / Z``.

    Parameters
    ----------
    unary : array_like of float, shape (N, C)
        Positive class weights; the mass of a class is shared among its tokens by ``classes``.
    edges : array_like of int, shape (E, 2)
        A forest on positions ``0 .. N-1``.
    pair : array_like of float, shape (E, C, C) or (C, C)
        Positive pair tables, ``pair[e, a, b]`` at ``x_i = a, x_j = b`` for ``edges[e] = (i, j)``.
    classes : TokenClasses, optional
        By default every class is one token, so V = C.
    name : str
        For results and messages.

    Examples
    --------
    >>> law = ForestLaw([[1, 1], [1, 1]], [[0, 1]], [[3, 1], [1, 3]])
    >>> law.log_prob([0, 0]).round(4)
    np.float64(-0.9808)
    """

    def __init__(
        self,
        unary: ArrayLike,
        edges: ArrayLike,
        pair: ArrayLike,
        *,
        classes: TokenClasses | None = None,
        name: str = "forest",
    ) -> None:
        weights = real_numbers("unary", unary)
        if weights.ndim != 2 or 0 in weights.shape:
            raise ValueError(
                f"unary must have shape (N, C) with N, C at least 1, got {weights.shape}"
            )
        length, num_classes = weights.shape
        self.name = name
        self.edges: IntArray = check_edges(length, edges)
        self.classes = classes or TokenClasses.identity(length, num_classes)
        if self.classes.length != length or self.classes.num_classes != num_classes:
            raise ValueError(
                f"classes must cover N = {length} positions and C = {num_classes} classes, got "
                f"{self.classes.length} and {self.classes.num_classes}"
            )
        tables = real_numbers("pair", pair)
        if len(self.edges) == 0:  # a product law: the table is never read
            tables = np.ones((num_classes, num_classes))
        shared = tables.ndim == 2
        wanted = (num_classes, num_classes) if shared else (len(self.edges),) + (num_classes,) * 2
        if tables.shape != wanted:
            raise ValueError(
                f"pair must have shape ({len(self.edges)}, {num_classes}, {num_classes}) or "
                f"({num_classes}, {num_classes}), got {tables.shape}"
            )
        _check_positive("unary", weights, axis=(1,))
        _check_positive("pair", tables, axis=(-2, -1))
        self.unary: FloatArray = weights
        self.pair: FloatArray = np.broadcast_to(
            tables, (len(self.edges), num_classes, num_classes)
        )
        self.forest: RootedForest = root_forest(length, self.edges)
        self._arrays = _arrays(self, tables, shared)
        self._freeze()

    def _freeze(self) -> None:
        for array in (self.edges, self.unary, self.pair, *self._arrays[1:]):
            array.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle; read-only arrays come back writeable, for which no kernel is compiled."""
        self.__dict__.update(state)
        self._freeze()

    @property
    def length(self) -> int:
        """Number of positions N."""
        return len(self.unary)

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return int(self.unary.shape[1])

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self.classes.vocab_size

    @property
    def content_digest(self) -> str:
        """What tells this law from others of its name and size."""
        return content_digest(*self._arrays[1:], self.classes.within)

    @property
    def arrays(self) -> ForestArrays:
        """The law in breadth-first numbering, as compiled kernels read it."""
        return self._arrays

    def __repr__(self) -> str:
        """Say what it is in one line."""
        return (
            f"ForestLaw({self.name!r}, length={self.length}, vocab_size={self.vocab_size}, "
            f"num_classes={self.num_classes}, edges={len(self.edges)})"
        )

    def oracle(self) -> ForestOracle:
        """Return the exact oracle of this law."""
        return ForestOracle(self)

    @cached_property
    def _upward(self) -> tuple[FloatArray, float]:
        """Upward beliefs (breadth-first order) and log Z."""
        scratch = inference.make_scratch(self.length, self.num_classes)
        log_partition = inference.upward_pass(self._arrays, scratch)
        log_partition += np.log(self.unary.max(axis=1)).sum()
        if len(self.edges):
            log_partition += np.log(self.pair.max(axis=(1, 2))).sum()
        return scratch.belief, float(log_partition)

    @property
    def log_partition(self) -> float:
        """Log Z."""
        return self._upward[1]

    def log_prob(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Return the joint log-probability of complete sequences, shape ``(..., N)``."""
        sequences = np.asarray(tokens)
        flat = as_states(
            sequences.reshape(-1, sequences.shape[-1]), self.length, self.vocab_size, name="tokens"
        )
        if (flat == MASK).any():
            raise ValueError("tokens must be complete: log_prob was given a masked position")
        where = np.arange(self.length)
        kinds = self.classes.kind
        total = np.empty(len(flat))
        for s, sequence in enumerate(flat):
            x = self.classes.token_class[kinds, sequence]
            total[s] = (
                np.log(self.unary[where, x]).sum()
                + np.log(self.classes.within[kinds, sequence]).sum()
                + np.log(
                    self.pair[np.arange(len(self.edges)), x[self.edges[:, 0]], x[self.edges[:, 1]]]
                ).sum()
                - self.log_partition
            )
        result: NDArray[np.float64] = total.reshape(sequences.shape[:-1])[()]
        return result

    def sample(self, count: int, rng: np.random.Generator) -> StateArray:
        """Draw joint samples: messages leaf to root, values root to leaf.

        Returns
        -------
        ndarray of int, shape (count, N)
        """
        if count < 0:
            raise ValueError(f"count must not be negative, got {count!r}")
        drawn = np.empty((count, self.length), dtype=np.int64)
        inference.draw_classes(
            self._arrays,
            self._upward[0],
            rng.random((count, self.length)),
            np.empty(self.num_classes),
            drawn,
        )
        everywhere = np.arange(self.length)
        tokens = np.empty((count, self.length), dtype=np.int32)
        for s in range(count):
            one_hot = np.eye(self.num_classes)[drawn[s]]
            rows = ClassedRows(one_hot, self.classes, everywhere)
            tokens[s] = rows.draw(rng.random(self.length))
        return tokens

    @cached_property
    def class_marginals(self) -> FloatArray:
        """Marginal class masses, shape (N, C)."""
        masses = self.oracle().rows(
            np.full((1, self.length), MASK, dtype=np.int32),
            Readouts.same(1, np.arange(self.length)),
        )
        return np.asarray(masses.masses)

    def marginals(self) -> ClassedRows:
        """Return the marginal of every position as rows."""
        return ClassedRows(self.class_marginals, self.classes, np.arange(self.length))

    @cached_property
    def pair_marginals(self) -> FloatArray:
        """Joint class law of both ends of every edge, shape (E, C, C), in edge order."""
        by_vertex = np.zeros((self.length, self.num_classes, self.num_classes))
        rows = self.class_marginals[self.forest.order]
        inference.pair_marginals(self._arrays, self._upward[0], rows, by_vertex)
        child = np.flatnonzero(self.forest.parent >= 0)
        edge = self.forest.parent_edge[child]
        joint = np.empty((len(self.edges), self.num_classes, self.num_classes))
        joint[edge] = by_vertex[child]
        # The kernel has the parent first; turn the tables whose edge lists the child first.
        flipped = edge[self.edges[edge, 0] == self.forest.order[child]]
        joint[flipped] = joint[flipped].transpose(0, 2, 1)
        return joint

    def edge_information(self) -> FloatArray:
        """Return the mutual information of the two ends of each edge, in nats, shape (E,)."""
        joint = self.pair_marginals
        # Next to a hub a class may have a mass below the smallest double: 0 log 0 = 0.
        logs = np.log(np.where(joint > 0, joint, 1.0))
        first, second = (
            np.log(np.where(mass > 0, mass, 1.0))
            for mass in (joint.sum(axis=2), joint.sum(axis=1))
        )
        ratio = logs - first[:, :, None] - second[:, None, :]
        information: FloatArray = (joint * ratio).sum(axis=(1, 2))
        return information

    def total_correlation(self) -> float:
        """Return ``sum H(X_i) - H(X)``: on a forest, the sum of the edges' informations."""
        return float(self.edge_information().sum())


@dataclass(frozen=True, slots=True)
class ForestOracle(LawOracle):
    """The exact oracle of a forest law."""

    follows_many: ClassVar[bool] = False
    depends_on_order: ClassVar[bool] = False
    law: ForestLaw
    _local: threading.local = field(default_factory=threading.local, repr=False, compare=False)
    _kept: KeptWork[ForestSession] = field(default_factory=KeptWork, repr=False, compare=False)

    def follow(self, query: HistoryQuery) -> Rows:
        """Answer; the history of one run by the rows that commits have left as they were."""
        runs = query.runs
        if runs is None or len(query.states) != 1:
            return self.rows(query.states, query.readouts)
        session = self._kept.take(runs)
        state = query.states[0]
        if session is None:
            session = ForestSession(self.law.arrays, self.law.classes, state)
        else:
            new = runs.fresh.position
            session.push(new, state[new])
        rows = session.rows(query.readouts.position)
        self._kept.put(runs, session)
        return rows

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the scratch memory of this process's threads."""
        return (ForestOracle, (self.law,))

    def scratch(self) -> Scratch:
        """Return this thread's working memory."""
        scratch: Scratch | None = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = inference.make_scratch(self.law.length, self.law.num_classes)
            self._local.scratch = scratch
        return scratch

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Return exact rows; the cost follows the masked components that are read."""
        # Kernels are compiled for writeable arrays; a read-only batch would compile them anew.
        batch = np.require(states, np.int32, ["C", "W"])
        if batch.ndim != 2 or batch.shape[1] != self.length:
            raise ValueError(f"states must have shape (B, {self.length}), got {batch.shape}")
        ordered = bool((readouts.state_index[1:] >= readouts.state_index[:-1]).all())
        order = None if ordered else np.argsort(readouts.state_index, kind="stable")
        position = readouts.position if order is None else readouts.position[order]
        position = np.require(position, np.int64, ["C", "W"])
        start = np.searchsorted(
            readouts.state_index if order is None else readouts.state_index[order],
            np.arange(len(batch) + 1),
        )
        out = np.empty((len(position), self.law.num_classes))

        def part(low: int, high: int) -> None:
            inference.rows_of_states(
                self.law.arrays, self.scratch(), batch, start, position, out, low, high
            )

        run_in_parts(part, len(batch), least=4)
        if order is not None:
            unsorted = np.empty_like(out)
            unsorted[order] = out
            out = unsorted
        return ClassedRows(out, self.law.classes, readouts.position)


def _check_positive(name: str, array: FloatArray, axis: tuple[int, ...]) -> None:
    if not np.isfinite(array).all() or not (array > 0).all():
        bad = np.argwhere(~(np.isfinite(array) & (array > 0)))[0]
        where = ", ".join(str(int(k)) for k in bad)
        raise ValueError(
            f"{name} must be positive and finite everywhere, got {array[tuple(bad)]} at "
            f"[{where}]; a forest law gives every sequence a positive probability"
        )
    with np.errstate(over="ignore"):
        spread = array.max(axis=axis) / array.min(axis=axis) if array.size else np.ones(1)
    if spread.max() > MAX_SPREAD:
        raise ValueError(
            f"{name} entries may differ by a factor of at most {MAX_SPREAD:g} within one "
            "position or edge; replace vanishing entries by larger ones"
        )


def _arrays(law: ForestLaw, tables: FloatArray, shared: bool) -> ForestArrays:
    """Bring the law into breadth-first numbering, every table with the parent's class first."""
    forest = law.forest
    order = forest.order
    unary = law.unary[order] / law.unary[order].max(axis=1, keepdims=True)
    stack = tables[None] if shared else tables
    stack = stack / stack.max(axis=(1, 2), keepdims=True)
    child = np.flatnonzero(forest.parent >= 0)
    edge = forest.parent_edge[child]
    child_first = law.edges[edge, 0] == order[child]
    table_of = np.zeros(law.length, dtype=np.int64)
    if shared:
        stack = np.concatenate([stack, stack.transpose(0, 2, 1)])
        table_of[child] = child_first
    else:
        turned = stack[edge[child_first]].transpose(0, 2, 1)
        stack[edge[child_first]] = turned
        stack = stack[edge]
        table_of[child] = np.arange(len(child))
    return ForestArrays(
        class_range=inference.class_range(law.num_classes),
        position=forest.order.astype(np.int32),
        index=forest.index.astype(np.int32),
        parent=forest.parent.astype(np.int32),
        child_start=forest.child_start.astype(np.int32),
        unary=unary,
        table_of=table_of.astype(np.int32),
        tables=np.ascontiguousarray(stack),
        kind=law.classes.kind[order].astype(np.int32),
        token_class=law.classes.token_class.astype(np.int32),
    )
