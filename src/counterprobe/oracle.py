"""Oracles: what answers a masked state with rows.

An oracle takes a batch of states and what to read: one readout set shared by all of them, or flat
(state index, position) pairs when each state masks its own set. Each state is one submission,
whatever is read from it. Oracles are frozen: the same (state, position) gives the same row
whatever else is asked beside it, and readouts must be masked.

Samplers never call an oracle themselves; they go through :class:`counterprobe.Unmasking`, which
counts. To plug in a model, wrap a function in :class:`CallableOracle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.compiled import kernel
from counterprobe.errors import OracleError
from counterprobe.rows import DenseRows, Rows, concatenate
from counterprobe.states import MASK, as_states

__all__ = [
    "AttentiveOracle",
    "BatchIncrementalOracle",
    "CallableOracle",
    "IncrementalOracle",
    "LawOracle",
    "Oracle",
    "OrderedOracle",
    "Readouts",
    "Session",
    "Sessions",
    "StreamingOracle",
    "offers_attention",
]


# An exact oracle still rounds: below this a difference between two rows means nothing.
NUMERICAL_FLOOR = 1e-12


def _flat_integers(name: str, values: ArrayLike) -> IntArray:
    """Return a flat integer array; a boolean mask or a float is a mistake, not a position."""
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            f"{name} must be a flat list of integers, got shape {np.shape(values)} and dtype "
            f"{array.dtype}"
        )
    return array.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Readouts:
    """Which rows to read from a batch of states, as flat (state index, position) pairs.

    Attributes
    ----------
    state_index, position : ndarray of int, shape (R,)
        Rows come back in this order.
    shared : ndarray of int, shape (S,) or None
        The common readout set when every state reads the same positions (state-major order).
    """

    state_index: IntArray
    position: IntArray
    shared: IntArray | None = None

    def __len__(self) -> int:
        """Return the number of rows asked for."""
        return len(self.position)

    @classmethod
    def same(cls, num_states: int, positions: ArrayLike) -> Readouts:
        """Read the same positions from every state."""
        shared = _flat_integers("readout positions", positions)
        index = np.repeat(np.arange(num_states), len(shared))
        return cls(index, np.tile(shared, num_states), shared)

    @classmethod
    def pairs(cls, state_index: ArrayLike, position: ArrayLike) -> Readouts:
        """Read one position from one state, pair by pair."""
        index = _flat_integers("state_index", state_index)
        where = _flat_integers("position", position)
        if index.shape != where.shape:
            raise ValueError(
                f"state_index and position must have one length, got {len(index)} and {len(where)}"
            )
        return cls(index, where)

    @classmethod
    def every_masked(cls, states: StateArray) -> Readouts:
        """Read every masked position of every state."""
        index, where = np.nonzero(states == MASK)
        return cls(index.astype(np.int64), where.astype(np.int64))

    def check(self, states: StateArray) -> None:
        """Refuse readouts that are out of range or not masked."""
        num_states, length = states.shape
        if not len(self) or not _has_bad_readout(states, self.state_index, self.position):
            return
        if self.state_index.min() < 0 or self.state_index.max() >= num_states:
            raise ValueError(
                f"readout state indices must lie in 0..{num_states - 1}, got "
                f"{int(self.state_index.min())}..{int(self.state_index.max())}"
            )
        if self.position.min() < 0 or self.position.max() >= length:
            raise ValueError(
                f"readout positions must lie in 0..{length - 1}, got "
                f"{int(self.position.min())}..{int(self.position.max())}"
            )
        seen = states[self.state_index, self.position] != MASK
        if seen.any():
            k = int(np.argmax(seen))
            raise ValueError(
                f"readouts must be masked: position {int(self.position[k])} is revealed in "
                f"state {int(self.state_index[k])}; mask it or do not read it"
            )


@kernel
def _has_bad_readout(states: StateArray, state_index: IntArray, position: IntArray) -> bool:
    """Whether some readout is out of range or revealed."""
    num_states, length = states.shape
    for k in range(len(position)):
        b, j = state_index[k], position[k]
        if b < 0 or b >= num_states or j < 0 or j >= length or states[b, j] >= 0:
            return True
    return False


@runtime_checkable
class Oracle(Protocol):
    """A frozen conditional oracle.

    Attributes
    ----------
    length, vocab_size : int
        N and V.
    row_error : float
        Total-variation radius of its rows around the exact ones; an exact oracle declares a
        numerical floor (about 1e-12), so that rounding never becomes a vote.
    trusted : bool
        Whether ``Unmasking`` may skip checking what it returns.

    Notes
    -----
    An oracle may also declare ``row_hellinger_radius`` and ``row_kl_radius``, uniform bounds on
    the squared Hellinger distance and the forward KL of its rows; see ``radii.py``. It may declare
    ``content_digest``, a string that tells it from others of its name and size: a checkpoint or a
    structure of another one is then refused before anything is asked.
    """

    @property
    def length(self) -> int:
        """Number of positions N."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        ...

    @property
    def row_error(self) -> float:
        """Total-variation radius of its rows."""
        ...

    @property
    def trusted(self) -> bool:
        """Whether its replies need no check."""
        ...

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Return one row per readout, in order; ``states`` must be left as they are."""
        ...


class LawOracle:
    """What every oracle of a law has in common: its size and its name are the law's.

    It is exact, rounding aside, unless a subclass says otherwise.
    """

    __slots__ = ()
    law: Any

    @property
    def name(self) -> str:
        """The law's name."""
        return f"exact {self.law.name}"

    @property
    def length(self) -> int:
        """Number of positions N."""
        length: int = self.law.length
        return length

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        vocab_size: int = self.law.vocab_size
        return vocab_size

    @property
    def content_digest(self) -> str:
        """What tells the law from others of its name and size."""
        digest: str = self.law.content_digest
        return digest

    @property
    def row_hellinger_radius(self) -> float:
        """Bound on the squared Hellinger distance of its rows from the exact ones."""
        return 0.0

    @property
    def row_kl_radius(self) -> float:
        """Bound on ``KL(exact || row)``."""
        return 0.0


@runtime_checkable
class Session(Protocol):
    """An oracle held at one growing history: push committed values, ask for rows."""

    def push(self, positions: IntArray, tokens: IntArray) -> None:
        """Reveal committed values."""
        ...

    def rows(self, positions: IntArray) -> Rows:
        """Return the same rows the oracle gives for the state pushed so far."""
        ...


@runtime_checkable
class IncrementalOracle(Oracle, Protocol):
    """An oracle that can follow a long run of commits without starting over each time."""

    def session(self, state: StateArray) -> Session:
        """Open a session at a state of shape ``(N,)``."""
        ...


@runtime_checkable
class Sessions(Protocol):
    """Many growing histories held at once; each pair names a sequence and a position."""

    def push(self, committed: Readouts, tokens: IntArray) -> None:
        """Reveal committed values, one token a pair."""
        ...

    def rows(self, readouts: Readouts) -> Rows:
        """Return one row a pair, given what was pushed to its sequence so far."""
        ...


@runtime_checkable
class BatchIncrementalOracle(IncrementalOracle, Protocol):
    """An oracle that can follow many runs at once, whatever each of them commits."""

    def sessions(self, states: StateArray) -> Sessions:
        """Open sessions at states of shape ``(B, N)``."""
        ...


@runtime_checkable
class OrderedOracle(BatchIncrementalOracle, Protocol):
    """An oracle whose rows depend on the order of commits: it follows runs and is not probed.

    Values that are known beforehand can be read in one pass, whatever the order.
    """

    def rows_in_order(self, states: StateArray, ranks: IntArray, readouts: Readouts) -> Rows:
        """Return the rows of revealed positions, each given what was committed before it.

        Parameters
        ----------
        states : ndarray of int, shape (B, N)
        ranks : ndarray of int, shape (B, N)
            In which order positions were committed, one after another; given ones come first.
        readouts : Readouts
            Of revealed positions.
        """
        ...


@runtime_checkable
class AttentiveOracle(Oracle, Protocol):
    """An oracle whose network can say, beside its rows, where it looked for them.

    Attention belongs to the submission whose rows it comes with: nothing is evaluated for it
    alone, and nothing twice.
    """

    @property
    def offers_attention(self) -> bool:
        """Whether the network behind it gives attention."""
        ...

    def attended_rows(
        self, states: StateArray, readouts: Readouts, num_layers: int
    ) -> tuple[Rows, FloatArray]:
        """Return the rows, and for each state how much each position attends to each.

        Parameters
        ----------
        states, readouts
            As in :meth:`Oracle.rows`.
        num_layers : int
            Weights are averaged over all heads of the last so many layers.

        Returns
        -------
        rows : Rows
        attention : ndarray of float, shape (B, N, N)
            Entry ``[b, i, j]``: the share of what predicts position i that is looked for at
            position j. What special tokens receive is missing from the sums over j.
        """
        ...


@runtime_checkable
class StreamingOracle(Oracle, Protocol):
    """An oracle that answers several requests at once, such as one with many replicas."""

    def stream(self, requests: Iterable[tuple[StateArray, Readouts]]) -> Iterator[Rows]:
        """Answer requests in their order, reading some ahead; errors come in their turn."""
        ...


def offers_attention(oracle: object) -> bool:
    """Whether attention can be asked for together with an oracle's rows."""
    return isinstance(oracle, AttentiveOracle) and oracle.offers_attention


def require_oracle(oracle: object) -> None:
    """Refuse what is not an oracle, such as a plain function or a law."""
    if not isinstance(oracle, Oracle):
        raise ValueError(
            f"oracle must have length, vocab_size, row_error, trusted and rows(); got "
            f"{oracle!r}. Wrap a function in counterprobe.CallableOracle, or call law.oracle()"
        )


@dataclass(frozen=True, slots=True)
class CallableOracle:
    """Any Python function as an oracle: the ten-line way to plug in a model.

    Parameters
    ----------
    function : callable
        Takes states of shape ``(B, N)`` (``MASK = -1`` where masked) and returns probabilities of
        shape ``(B, N, V)``: a NumPy array, or a torch tensor on any device. Rows of revealed
        positions are ignored. It must be deterministic and must not mix states of one batch.
    length, vocab_size : int
        N and V, the mask not counted.
    row_error : float
        Total-variation radius around the exact rows, if you know one.
    row_hellinger_radius, row_kl_radius : float, optional
        Uniform bounds on their squared Hellinger distance and forward KL, if you know them; the
        guarantees of ``packed-theory`` ask for them.
    batch_size : int, optional
        At most this many states are handed to ``function`` at once.
    name : str
        For error messages and results.

    Examples
    --------
    >>> import numpy as np, counterprobe as cp
    >>> uniform = lambda states: np.full((*states.shape, 4), 0.25)
    >>> run = cp.Unmasking(cp.CallableOracle(uniform, length=3, vocab_size=4))
    >>> cp.samplers.OneBatch()(run, cp.Streams(1, 2)).ledger.total
    1
    """

    function: Callable[[StateArray], Any]
    length: int
    vocab_size: int
    row_error: float = NUMERICAL_FLOOR
    batch_size: int | None = None
    name: str = "callable"
    trusted: bool = False
    row_hellinger_radius: float | None = None
    row_kl_radius: float | None = None

    def __post_init__(self) -> None:
        """Check the sizes."""
        for label, value in (("length", self.length), ("vocab_size", self.vocab_size)):
            if value < 1:
                raise ValueError(f"{label} must be at least 1, got {value!r}")
        if not 0 <= self.row_error <= 1:
            raise ValueError(f"row_error must lie in [0, 1], got {self.row_error!r}")
        for label in ("row_hellinger_radius", "row_kl_radius"):
            radius = getattr(self, label)
            if radius is not None and not radius >= 0:
                raise ValueError(f"{label} must not be negative, got {radius!r}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size!r}")

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Call the function and pick the rows asked for."""
        states = as_states(states, self.length, self.vocab_size)
        step = self.batch_size or max(1, len(states))
        parts = []
        order = []
        for low in range(0, max(1, len(states)), step):
            # A copy: functions often write their own mask token over MASK in place.
            chunk = states[low : low + step].copy()
            reply = self.function(chunk)
            expected = (len(chunk), self.length, self.vocab_size)
            shape = tuple(getattr(reply, "shape", ()))
            if shape != expected:
                hint = (
                    "; the last axis is one too long: leave the mask token out of the rows"
                    if shape == (*expected[:2], self.vocab_size + 1)
                    else ""
                )
                raise OracleError(
                    f"oracle {self.name!r} must return an array of shape {expected} for states "
                    f"of shape {chunk.shape}, got {shape or type(reply).__name__}{hint}"
                )
            chosen = np.flatnonzero(
                (readouts.state_index >= low) & (readouts.state_index < low + step)
            )
            order.append(chosen)
            where = readouts.state_index[chosen] - low, readouts.position[chosen]
            parts.append(DenseRows(reply[where]))
        if len(parts) == 1:
            return parts[0]
        return concatenate(parts).take(np.argsort(np.concatenate(order), kind="stable"))
