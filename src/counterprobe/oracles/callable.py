"""Any Python function as an oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterprobe.arrays import StateArray
from counterprobe.errors import OracleError
from counterprobe.oracles.oracle import NUMERICAL_FLOOR, Oracle, OracleInfo
from counterprobe.oracles.query import Query, Reply
from counterprobe.rows import DenseRows, concatenate
from counterprobe.states import as_states

__all__ = ["CallableOracle"]


@dataclass(frozen=True, slots=True)
class CallableOracle(Oracle):
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
    >>> run = cp.run.Run(cp.CallableOracle(uniform, length=3, vocab_size=4))
    >>> cp.samplers.OneBatch()(run, cp.Streams(1, 2)).ledger.evaluations
    1
    """

    function: Callable[[StateArray], Any]
    # Fields, though without a default: the base class has properties of these names.
    length: int = field()
    vocab_size: int = field()
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

    @property
    def info(self) -> OracleInfo:
        """What it is."""
        return OracleInfo(
            self.name,
            self.length,
            self.vocab_size,
            self.row_error,
            self.trusted,
            self.row_hellinger_radius,
            self.row_kl_radius,
        )

    def ask(self, query: Query) -> Reply:
        """Call the function and pick the rows asked for."""
        states, readouts = as_states(query.states, self.length, self.vocab_size), query.readouts
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
            return Reply(parts[0])
        rows = concatenate(parts).take(np.argsort(np.concatenate(order), kind="stable"))
        return Reply(rows)
