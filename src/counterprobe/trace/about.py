"""The header of a trace: what the run was, and what only its caller knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.plain import plain
from counterprobe.run.events import Opened
from counterprobe.states import MASK
from counterprobe.trace.arrays import pack
from counterprobe.version import __version__

__all__ = ["About"]

# Values of a list that a header shows; a forest that a sampler was told is no setting to read.
MOST_ITEMS = 64


@dataclass(frozen=True, slots=True)
class About:
    """What a trace says beside what the run itself knows.

    Attributes
    ----------
    title : str
        A line for people.
    family, model : str, optional
        Name of the target family, or of the model.
    tokens : sequence of str, optional
        What each of the V tokens is called.
    positions : sequence of str, optional
        What each of the N positions is called.
    stretches : sequence of (int, str), optional
        Where each unbroken piece of a chain begins, and what its chain is called.
    true_edges : array_like of int, shape (E, 2), optional
        Edges of the hidden law, for comparison; no sampler sees them.
    coordinates : array_like of float, shape (N, 3), optional
        Where positions lie in space.
    command : str, optional
        The command that makes this trace.
    count : int, optional
        Sequences that are drawn, of which this is one.
    beside : mapping from str to int, optional
        Evaluations that were spent beside the run, by what they were for.
    """

    title: str = ""
    family: str | None = None
    model: str | None = None
    tokens: Sequence[str] | None = None
    positions: Sequence[str] | None = None
    stretches: Sequence[tuple[int, str]] | None = None
    true_edges: ArrayLike | None = None
    coordinates: ArrayLike | None = None
    command: str | None = None
    count: int | None = None
    beside: Mapping[str, int] | None = None

    def header(self, opening: Opened) -> dict[str, Any]:
        """Return the header of a trace."""
        run, given = opening.run, opening.given
        return {
            "library": __version__,
            "title": self.title or f"{opening.sampler} on {run.oracle_name}",
            "task": opening.task,
            "sampler": opening.sampler,
            "settings": plain(opening.settings, most_items=MOST_ITEMS),
            "oracle": run.oracle_name,
            "family": self.family,
            "model": self.model,
            "length": run.length,
            "vocab_size": run.vocab_size,
            "row_error": plain(float(run.row_error)),
            "seeds": {
                "decision": _exact(opening.streams.decision_seed),
                "commit": _exact(opening.streams.commit_seed),
            },
            "sequence": run.sequence,
            "count": self.count,
            "temperature": run.temperature,
            "given": None if (given == MASK).all() else pack(given),
            "tokens": self._names("tokens", run.vocab_size),
            "positions": self._names("positions", run.length),
            "stretches": None if self.stretches is None else [list(one) for one in self.stretches],
            "true_edges": self._array("true_edges", 2),
            "coordinates": self._array("coordinates", 3),
            "command": self.command,
            "beside": {word: count for word, count in (self.beside or {}).items() if count},
            "thinned": [],
        }

    def _names(self, field: str, count: int) -> list[str] | None:
        names = getattr(self, field)
        if names is None:
            return None
        if len(names) != count:
            raise ValueError(f"{field} must be {count} strings, got {len(names)}")
        return [str(name) for name in names]

    def _array(self, field: str, width: int) -> Any:
        values = getattr(self, field)
        return None if values is None else pack(np.asarray(values).reshape(-1, width))


def _exact(number: int) -> int | str:
    """Return a number, as text where a browser would round it."""
    return int(number) if abs(int(number)) < 1 << 53 else str(number)
