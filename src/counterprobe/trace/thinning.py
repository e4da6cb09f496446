"""Thinner traces: leave details out until a trace fits, and say which."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from counterprobe.trace.document import Trace, compact

__all__ = ["thin"]

# What may go, in this order: the event, its fields, and the words for it.
DETAILS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("candidates", ("positions", "tokens"), "candidates"),
    ("probe", ("shown", "unit", "read", "response", "reference"), "what the states of probes "
     "showed and how rows moved"),
    ("commit", ("top", "mass"), "likeliest tokens of commits"),
    ("probe", ("screen",), "colorings and responses of packed screens"),
    ("votes", ("pairs", "votes", "kept"), "vote totals"),
    ("preprocess", ("top", "mass", "entropy"), "rows of the first readout"),
    ("commit", ("entropy", "prob"), "entropies of commits"),
    ("tests", ("kept", "dropped"), "what tests decided"),
    ("verify", ("positions", "accepted"), "which drafts were kept"),
)  # fmt: skip


def thin(trace: Trace, max_bytes: int) -> Trace:
    """Return a trace of at most so many bytes, and in its header what was left out.

    What a viewer misses least goes first, and of each kind the largest; commits, edges and the
    ledger stay.

    Parameters
    ----------
    trace : Trace
    max_bytes : int

    Raises
    ------
    ValueError
        If what must stay is larger.
    """
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, got {max_bytes!r}")
    events = [dict(event) for event in trace.events]
    size = sum(map(len, trace.lines()))
    left_out: Counter[str] = Counter()
    room = max_bytes - 120 * len(DETAILS) if size > max_bytes else max_bytes  # for the sentences
    for kind, fields, words in DETAILS:
        if size <= room:
            break
        for saved, k in _by_size(events, kind, fields):
            if size <= room:
                break
            for field in fields:
                events[k].pop(field, None)
            size -= saved
            left_out[words] += 1
    said = [f"thinned to {max_bytes:,} bytes: {words}, in {n:,} events"
            for words, n in left_out.items()]  # fmt: skip
    before = trace.header.get("thinned")
    notes = [*(before if isinstance(before, list) else []), *said]
    header = {**trace.header, "thinned": notes}
    thinned = replace(trace, header=header, events=events)
    size = sum(map(len, thinned.lines()))
    if size > max_bytes:
        raise ValueError(
            f"this trace cannot be thinned to {max_bytes:,} bytes: its commits, edges and ledger "
            f"alone take {size:,}"
        )
    return thinned


def _by_size(
    events: list[dict[str, Any]], kind: str, fields: tuple[str, ...]
) -> list[tuple[int, int]]:
    """Return what leaving fields out would save, and where, largest first."""
    found = []
    for k, event in enumerate(events):
        if event["type"] == kind:
            there = {field: event[field] for field in fields if field in event}
            if there:
                found.append((len(compact(there)) - 1, k))
    return sorted(found, key=lambda one: -one[0])
