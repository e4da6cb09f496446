"""Follow a trace from its context to its end: what was committed, and what it had cost by then."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import IntArray, StateArray
from counterprobe.states import all_masked
from counterprobe.trace.arrays import unpack
from counterprobe.trace.document import Trace

__all__ = ["Replay", "replay", "summary"]

COUNTS = ("preprocessing", "probes", "commits", "stages", "rows_read")


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What following a trace ends in.

    Attributes
    ----------
    tokens : ndarray of int, shape (N,)
        ``MASK`` where nothing was committed.
    round_of_position : ndarray of int, shape (N,)
        Commit round of each position: -1 for given context, -2 if uncommitted.
    ledger : dict of str to int
        The account after the last event that was charged.
    edges : ndarray of int, shape (E, 2)
        What was last known of the graph, gone edges left out.
    num_events : dict of str to int
        Events by type.
    """

    tokens: StateArray
    round_of_position: IntArray
    ledger: dict[str, int]
    edges: IntArray
    num_events: dict[str, int]


def replay(trace: Trace) -> Replay:
    """Follow a trace; one that contradicts itself is refused.

    Parameters
    ----------
    trace : Trace
    """
    length, vocab_size = trace.header["length"], trace.header["vocab_size"]
    tokens = all_masked(length)
    if trace.header.get("given") is not None:
        given = _whole(trace.header["given"], "given", -1, vocab_size)
        if given.shape != (length,):
            raise ValueError(f"given must have shape ({length},), got {given.shape}")
        tokens[:] = given
    round_of = np.where(tokens >= 0, -1, -2).astype(np.int64)
    ledger = dict.fromkeys(COUNTS, 0)
    edges: dict[tuple[int, int], int] = {}
    rounds = 0
    for k, event in enumerate(trace.events):
        kind = event["type"]
        if kind == "commit":
            where, drawn = _commit(event, k, length, vocab_size)
            if (tokens[where] >= 0).any():
                raise ValueError(f"event {k} commits a position that is known already")
            tokens[where], round_of[where] = drawn, rounds
            rounds += 1
        elif kind == "remask":
            where = _whole(event.get("positions"), f"positions of event {k}", 0, length)
            tokens[where], round_of[where] = -1, -2
        elif kind == "graph" and "pairs" in event:
            _change(edges, event, k, length)
        account = event.get("ledger")
        if isinstance(account, list):
            ledger = _account(account, k)
    left = np.array([pair for pair, status in edges.items() if status], dtype=np.int64)
    counted = dict(Counter(event["type"] for event in trace.events))
    return Replay(tokens, round_of, ledger, left.reshape(-1, 2), counted)


def summary(trace: Trace) -> dict[str, Any]:
    """Return what a trace says in a few plain values: sizes, the ledger, how it ended.

    Parameters
    ----------
    trace : Trace
        Whatever its header and end hold that is not of the right kind is left out.
    """
    header, end = trace.header, trace.end or {}
    followed = replay(trace)
    sequence, count = header.get("sequence"), header.get("count")
    is_one_of_many = type(sequence) is int and type(count) is int and 0 <= sequence < count > 1
    parts = [one for one in (header.get("beside"), end.get("beside")) if isinstance(one, dict)]
    said = [part for part in (header.get("thinned"), end.get("thinned")) if isinstance(part, list)]
    return {
        "sampler": header.get("sampler"),
        "sequence": sequence if is_one_of_many else None,
        "count": count if is_one_of_many else None,
        "n": header["length"],
        "vocab": header["vocab_size"],
        **followed.ledger,
        "evaluations": sum(followed.ledger[key] for key in ("preprocessing", "probes", "commits")),
        "beside": {k: n for part in parts for k, n in part.items() if type(n) is int},
        "edges": len(followed.edges),
        "committed": int((followed.round_of_position >= 0).sum()),
        "events": followed.num_events,
        "stop": end.get("stop"),
        "truncated": trace.is_truncated,
        "thinned": [one for part in said for one in part if isinstance(one, str)],
    }


def _commit(event: dict[str, Any], k: int, length: int, vocab_size: int) -> tuple[IntArray, Any]:
    """Return what one event commits."""
    where = _whole(event.get("positions"), f"positions of event {k}", 0, length)
    drawn = _whole(event.get("tokens"), f"tokens of event {k}", 0, vocab_size)
    if where.ndim != 1 or where.shape != drawn.shape or len(np.unique(where)) != len(where):
        raise ValueError(f"event {k} must commit one token at each of some distinct positions")
    return where, drawn


def _change(edges: dict[tuple[int, int], int], event: dict[str, Any], k: int, length: int) -> None:
    pairs = _whole(event["pairs"], f"pairs of event {k}", 0, length)
    status = _whole(event.get("status"), f"status of event {k}", 0, 256)
    if pairs.ndim != 2 or pairs.shape != (len(status), 2):
        raise ValueError(f"event {k} must give one status for each of its pairs")
    for (i, j), value in zip(pairs.tolist(), status.tolist(), strict=True):
        edges[i, j] = value


def _account(account: list[Any], k: int) -> dict[str, int]:
    if len(account) != len(COUNTS) or not all(type(count) is int for count in account):
        raise ValueError(f"event {k} must have a ledger of {len(COUNTS)} counts")
    return dict(zip(COUNTS, account, strict=True))


def _whole(value: Any, name: str, low: int, high: int) -> NDArray[Any]:
    """Return whole numbers from ``low`` to below ``high``, or refuse them."""
    array = unpack(value, name)
    if array.dtype.kind not in "iu" or (
        array.size and not (low <= array.min() <= array.max() < high)
    ):
        raise ValueError(f"{name} must hold whole numbers in {low}..{high - 1}")
    return array.astype(np.int64)
