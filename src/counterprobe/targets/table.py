"""Any small joint law as a table: the test bench of everything.

Zeros are allowed (parity, copied bits, loops), so an impossible history can be asked about; that
is an error, not a row of NaNs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.arguments import real_numbers
from counterprobe.arrays import FloatArray, StateArray
from counterprobe.digests import content_digest
from counterprobe.errors import ImpossibleState
from counterprobe.oracles import LawOracle, OracleInfo, Readouts
from counterprobe.rows import DenseRows, Rows
from counterprobe.states import MASK, as_states

__all__ = ["TableLaw", "TableOracle"]


# 2^26 doubles are half a gigabyte; a law that large has better forms.
MAX_CELLS = 1 << 26


class TableLaw:
    """A joint law given by its table.

    Parameters
    ----------
    table : array_like of float, shape (V,) * N
        Non-negative weights of complete sequences; normalised here.
    name : str
        For results and messages.

    Examples
    --------
    >>> parity = TableLaw(1 - np.indices((2, 2, 2)).sum(axis=0) % 2)
    >>> float(parity.table[0, 1, 1])
    0.25
    """

    def __init__(self, table: ArrayLike, *, name: str = "table") -> None:
        weights = real_numbers("table", table)
        if weights.ndim < 1 or len(set(weights.shape)) != 1 or weights.size > MAX_CELLS:
            raise ValueError(
                f"table must have shape (V,) * N with at most {MAX_CELLS} cells, got "
                f"{weights.shape}"
            )
        if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
            raise ValueError("table must be finite, non-negative and not all zero")
        self.name = name
        weights /= weights.max()  # the sum of large weights may overflow
        self.table: FloatArray = weights / weights.sum()
        self.table.setflags(write=False)

    @property
    def length(self) -> int:
        """Number of positions N."""
        return self.table.ndim

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return len(self.table)

    @property
    def content_digest(self) -> str:
        """What tells this law from others of its name and size."""
        return content_digest(self.table)

    def __repr__(self) -> str:
        """Say what it is in one line."""
        return f"TableLaw({self.name!r}, length={self.length}, vocab_size={self.vocab_size})"

    def oracle(self) -> TableOracle:
        """Return the exact oracle of this law."""
        return TableOracle(self)

    def conditional(self, state: StateArray, positions: ArrayLike) -> FloatArray:
        """Return the joint law of some masked positions given a state, shape ``(V,) * n``.

        Parameters
        ----------
        state : ndarray of int, shape (N,)
        positions : array_like of int
            Masked positions; the axes of the result, in this order.
        """
        known = as_states(state, self.length, self.vocab_size, name="state")[0]
        where = [int(k) for k in np.atleast_1d(np.asarray(positions))]
        masked = [int(i) for i in np.flatnonzero(known == MASK)]
        if len(set(where)) != len(where) or not set(where) <= set(masked):
            raise ValueError(f"positions must be distinct and masked, got {where}")
        picked = self.table[tuple(slice(None) if t == MASK else int(t) for t in known)]
        total = picked.sum()
        if total <= 0:
            shown = ", ".join(f"x{i}={int(t)}" for i, t in enumerate(known) if t != MASK)
            raise ImpossibleState(
                f"law {self.name!r} was conditioned on an impossible event: {shown} has "
                "probability zero"
            )
        axes = tuple(k for k, i in enumerate(masked) if i not in where)
        kept = [i for i in masked if i in where]
        joint: FloatArray = picked.sum(axis=axes) / total
        return joint.transpose([kept.index(i) for i in where])

    def log_prob(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Return the joint log-probability of complete sequences, shape ``(..., N)``."""
        sequences = np.asarray(tokens)
        flat = as_states(
            sequences.reshape(-1, sequences.shape[-1]), self.length, self.vocab_size, name="tokens"
        )
        if (flat == MASK).any():
            raise ValueError("tokens must be complete: log_prob was given a masked position")
        with np.errstate(divide="ignore"):
            logs = np.log(self.table[tuple(flat.T)])
        result: NDArray[np.float64] = logs.reshape(sequences.shape[:-1])[()]
        return result

    def sample(self, count: int, rng: np.random.Generator) -> StateArray:
        """Draw joint samples, shape ``(count, N)``."""
        flat = rng.choice(self.table.size, size=count, p=self.table.ravel())
        return np.stack(np.unravel_index(flat, self.table.shape), axis=1).astype(np.int32)

    def total_correlation(self) -> float:
        """Return ``sum H(X_i) - H(X)``."""
        everything = tuple(range(self.length))
        marginals = [
            self.table.sum(axis=tuple(k for k in everything if k != i)) for i in everything
        ]
        entropies = [DenseRows(p[None, :]).entropy()[0] for p in marginals]
        return float(sum(entropies) - DenseRows(self.table.reshape(1, -1)).entropy()[0])


@dataclass(frozen=True, slots=True)
class TableOracle(LawOracle):
    """The exact oracle of a table law."""

    law: TableLaw

    @property
    def info(self) -> OracleInfo:
        """What it is; a table may have zeros, of which a run warns."""
        return self.info_with(trusted=False)

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Condition the table, one readout at a time."""
        batch = as_states(states, self.length, self.vocab_size)
        rows = np.empty((len(readouts), self.vocab_size))
        for k, (b, j) in enumerate(zip(readouts.state_index, readouts.position, strict=True)):
            rows[k] = self.law.conditional(batch[b], [j])
        return DenseRows(rows)
