"""A law outside every structured sampler's assumptions: pairs that share a hidden topic.

Probes that show arbitrary tokens settle the topic at once, and then see nothing but pairs; with
everything masked the topic couples all positions. A sampler that commits pairs together because
probes found them independent breaks this law by an amount that grows with N.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import NUMERICAL_FLOOR, Readouts
from counterprobe.rows import DenseRows, Rows
from counterprobe.targets.table import TableLaw

__all__ = ["HiddenTopic"]


class HiddenTopic:
    """The oracle of a mixture of two laws, each a product of pairs (2k, 2k + 1).

    Parameters
    ----------
    tables : ndarray of float, shape (2, N / 2, V, V)
        Joint law of every pair under each topic; the topics are equally likely.
    """

    name = "hidden-topic"
    row_error = NUMERICAL_FLOOR
    trusted = False

    def __init__(self, tables: FloatArray) -> None:
        self.tables = tables
        self.length, self.vocab_size = 2 * tables.shape[1], tables.shape[2]

    @classmethod
    def concentrated(cls, length: int, seed: int, mass: float = 0.97) -> HiddenTopic:
        """Four tokens; under one topic every pair has one value almost surely."""
        draw = np.random.default_rng(seed)
        tables = np.empty((2, length // 2, 4, 4))
        tables[0] = (1 - mass) / 15
        for k in range(length // 2):
            tables[0, k, draw.integers(4), draw.integers(4)] = mass
        tables[1] = draw.dirichlet(np.full(16, 3.0), size=length // 2).reshape(-1, 4, 4)
        return cls(tables)

    @classmethod
    def with_equal_marginals(cls, length: int, mass: float = 0.97) -> HiddenTopic:
        """Uniform single positions under both topics; pairs agree under one, not the other."""
        agree = np.full((4, 4), (1 - mass) / 12)
        np.fill_diagonal(agree, mass / 4)
        either = np.full((4, 4), 1 / 16)
        return cls(np.repeat(np.stack([agree, either])[:, None], length // 2, axis=1))

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Return exact rows."""
        states = np.asarray(states)
        out = np.empty((len(readouts), self.vocab_size))
        for b in range(len(states)):
            mine = np.flatnonzero(readouts.state_index == b)
            out[mine] = self._rows_of(states[b].reshape(-1, 2), readouts.position[mine])
        return DenseRows(out)

    def _rows_of(self, shown: StateArray, position: IntArray) -> FloatArray:
        # What each pair's evidence leaves of its table, both topics.
        left = self.tables.copy()
        for side in (0, 1):
            known = shown[:, side] >= 0
            keep = np.eye(self.vocab_size)[np.maximum(shown[:, side], 0)] + ~known[:, None]
            shape = (1, -1, self.vocab_size, 1) if side == 0 else (1, -1, 1, self.vocab_size)
            left *= np.minimum(keep, 1.0).reshape(shape)
        log_evidence = np.log(left.sum(axis=(2, 3)))
        total = log_evidence.sum(axis=1)
        pair = position // 2
        by_token = np.where(
            (position % 2 == 0)[None, :, None],
            left[:, pair].sum(axis=3),
            left[:, pair].sum(axis=2),
        )
        others = total[:, None] - log_evidence[:, pair]
        weight = np.exp(others - others.max(axis=0))
        masses = (weight[:, :, None] * by_token).sum(axis=0)
        rows: FloatArray = masses / masses.sum(axis=1, keepdims=True)
        return rows

    def table_law(self) -> TableLaw:
        """Return the same law as a joint table, for a few positions."""
        joint = np.zeros((self.vocab_size,) * self.length)
        for topic in self.tables:
            whole = np.ones(())
            for table in topic:
                whole = np.multiply.outer(whole, table)
            joint += whole
        return TableLaw(joint)
