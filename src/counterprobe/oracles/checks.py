"""What the door checks of an oracle's reply.

A row must be finite, non-negative and sum to one, over exactly V tokens: the mask is not a token
and gets no mass. A zero probability is legal but outside the paper's class, so it warns once a
run.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np

from counterprobe.arrays import FloatArray
from counterprobe.errors import OracleError, ZeroProbabilityWarning
from counterprobe.oracles.abilities import AttentionQuery, Drawing, Drawn
from counterprobe.oracles.query import Query, Readouts, Reply
from counterprobe.rows import ClassedRows, DenseRows, Rows, to_numpy, widened

if TYPE_CHECKING:
    from counterprobe.oracles.oracle import OracleInfo

__all__ = [
    "ReplyCheck",
    "check_attention",
    "check_count",
    "check_drawn",
    "check_rows",
    "own_rows",
    "parted",
]

# Rows of a half-precision model sum to one within about this, also when widened afterwards.
SUM_TOLERANCE = 1e-3
# Rows in double precision must do better, unless all their numbers were single before.
SUM_TOLERANCE_DOUBLE = 1e-8
LOGITS = "if these are logits or log-probabilities, return their softmax"


def _sum_tolerance(masses: Any) -> float:
    """Return how far from one the rows of a model in this precision may sum."""
    xp = array_api_compat.array_namespace(masses)
    if not xp.isdtype(masses.dtype, "real floating"):
        return SUM_TOLERANCE_DOUBLE
    epsilon = float(xp.finfo(masses.dtype).eps)
    # Rounding moves each entry, and so the sum, by at most epsilon / 2 of itself (bfloat16: 0.4%).
    return SUM_TOLERANCE_DOUBLE if epsilon < 1e-12 else max(SUM_TOLERANCE, epsilon / 2)


def _was_single(masses: Any) -> bool:
    """Whether every number is one of single precision: a softmax that was widened afterwards."""
    xp = array_api_compat.array_namespace(masses)
    if not xp.isdtype(masses.dtype, "real floating"):
        return False
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is not the same
        return bool(xp.all(xp.astype(xp.astype(masses, xp.float32), masses.dtype) == masses))


def check_count(rows: object, readouts: Readouts, name: str) -> Rows:
    """Return a reply that is one row per readout; raise ``OracleError`` for any other.

    Parameters
    ----------
    rows : object
        What the oracle returned.
    readouts : Readouts
        What it was asked for.
    name : str
        The oracle's name.
    """
    if not isinstance(rows, Rows):
        raise OracleError(f"oracle {name!r} must return Rows, got {type(rows).__name__}")
    shape = tuple(rows.masses.shape)
    if len(shape) != 2:
        raise OracleError(f"oracle {name!r} must return rows of shape (n, V), got {shape}")
    if len(rows) != len(readouts):
        raise OracleError(
            f"oracle {name!r} must return one row per readout: {len(readouts)} asked, "
            f"{len(rows)} returned"
        )
    return rows


def check_rows(
    reply: object, readouts: Readouts, vocab_size: int, name: str, *, warn_on_zero: bool
) -> bool:
    """Raise ``OracleError`` if a reply is not a batch of rows; return whether it has a zero.

    Parameters
    ----------
    reply : object
        What the oracle returned.
    readouts : Readouts
        What it was asked for; errors name the state and the position.
    vocab_size : int
    name : str
        The oracle's name.
    warn_on_zero : bool
        Whether to warn if some probability is zero.
    """
    rows = check_count(reply, readouts, name)
    if rows.vocab_size != vocab_size:
        hint = (
            "; one too many: leave the mask token out" if rows.vocab_size == vocab_size + 1 else ""
        )
        raise OracleError(
            f"oracle {name!r} must return rows over {vocab_size} tokens, got "
            f"{rows.vocab_size}{hint}"
        )
    masses = rows.masses
    xp = array_api_compat.array_namespace(masses)
    if not xp.isdtype(masses.dtype, ("real floating", "integral", "bool")):
        raise OracleError(
            f"oracle {name!r} must return rows of real numbers, got dtype {masses.dtype}"
        )
    if len(rows) == 0:
        return False
    with np.errstate(invalid="ignore", over="ignore"):  # infinities: reported below
        total = to_numpy(xp.sum(widened(masses), axis=1)).astype(np.float64)
    least = to_numpy(xp.min(masses, axis=1)).astype(np.float64)
    tolerance = _sum_tolerance(masses)
    is_row = np.isfinite(total) & (least >= 0)
    wrong = ~(is_row & (np.abs(total - 1) <= tolerance))
    if wrong.any() and tolerance < SUM_TOLERANCE and _was_single(masses):
        wrong = ~(is_row & (np.abs(total - 1) <= SUM_TOLERANCE))
    if wrong.any():
        k = int(np.argmax(wrong))
        where = f"state {int(readouts.state_index[k])}, position {int(readouts.position[k])}"
        if not np.isfinite(total[k]):
            problem = "holds a value that is not finite"
        elif least[k] < 0:
            problem = f"holds a negative probability {least[k]:g}; {LOGITS}"
        else:
            problem = f"sums to {total[k]:.9g} instead of 1; normalise it, or {LOGITS}"
        raise OracleError(f"oracle {name!r}: the row at {where} {problem}")
    has_zero = bool((least == 0).any())
    if has_zero and warn_on_zero:
        k = int(np.argmax(least == 0))
        warnings.warn(
            f"oracle {name!r} gives some token probability zero (first at state "
            f"{int(readouts.state_index[k])}, position {int(readouts.position[k])}); the "
            "guarantees assume positive rows. This is said once a run.",
            ZeroProbabilityWarning,
            stacklevel=4,
        )
    return has_zero


def check_attention(attention: object, num_states: int, length: int, name: str) -> FloatArray:
    """Return attention as numbers, or raise ``OracleError`` if it is none.

    Parameters
    ----------
    attention : object
        What the oracle returned beside its rows.
    num_states, length : int
        B and N.
    name : str
        The oracle's name.
    """
    weights = np.asarray(attention)
    expected = (num_states, length, length)
    if weights.shape != expected or weights.dtype.kind != "f":
        raise OracleError(
            f"oracle {name!r} must return attention as real numbers of shape {expected}, got "
            f"shape {weights.shape} and dtype {weights.dtype}"
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise OracleError(
            f"oracle {name!r} returned attention that is negative or not finite; return weights "
            "after their softmax"
        )
    return weights


def own_rows(rows: Rows) -> Rows:
    """Return rows in memory of their own: an oracle may return a buffer that it writes to again.

    Kinds of rows that their own oracle makes new each time, such as those of torch models, are
    returned as they are.
    """
    if type(rows) in (DenseRows, ClassedRows):
        xp = array_api_compat.array_namespace(rows.masses)
        return rows.with_masses(xp.asarray(rows.masses, copy=True))
    return rows


def check_drawn(drawn: Drawn, drawing: Drawing, vocab_size: int, name: str) -> Drawn:
    """Return what an oracle drew by itself: a token, of some probability, wherever it was to."""
    is_due = drawing.rounds >= 0
    is_token = (drawn.tokens >= 0) & (drawn.tokens < vocab_size)
    if ((is_token != is_due) | (~np.isfinite(drawn.log_probs) & is_due)).any():
        raise OracleError(
            f"oracle {name!r} drew what is no token; check the weights, or load them in a wider "
            "precision"
        )
    return drawn


class ReplyCheck:
    """Checks replies; a zero probability warns once for all who share the check.

    Parameters
    ----------
    info : OracleInfo
        Of the oracle that replies.
    """

    def __init__(self, info: OracleInfo) -> None:
        self.name, self._length, self._vocab_size = info.name, info.length, info.vocab_size
        self._is_trusted = info.trusted
        self._zero_seen = False

    def __call__(self, reply: Reply, query: Query) -> Reply:
        """Return a reply that has come, or raise ``OracleError``."""
        if not isinstance(reply, Reply):
            raise OracleError(
                f"oracle {self.name!r} must return a Reply, got {type(reply).__name__}"
            )
        if isinstance(query, AttentionQuery):
            check_attention(reply.attention, len(query.states), self._length, self.name)
        if self._is_trusted:
            return reply
        rows = reply.rows
        self._zero_seen |= check_rows(
            rows, query.readouts, self._vocab_size, self.name, warn_on_zero=not self._zero_seen
        )
        return Reply(own_rows(rows), reply.attention)  # the oracle may write over its rows


def parted(reply: Reply, whole: Query, queries: Sequence[Query], name: str) -> list[Reply]:
    """Return the replies to queries that were asked as one, joined."""
    readouts = [one.readouts for one in queries]
    rows = check_count(reply.rows, whole.readouts, name)
    ends = np.cumsum([len(one) for one in readouts])
    shares = [
        rows.take(np.arange(high - len(one), high))
        for one, high in zip(readouts, ends, strict=True)
    ]
    if reply.attention is None:
        return [Reply(share) for share in shares]
    last = np.cumsum([len(one.states) for one in queries])
    weights = np.split(np.array(reply.attention), last[:-1])
    return [Reply(*pair) for pair in zip(shares, weights, strict=True)]
