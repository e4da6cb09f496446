"""Which recovered components were validated as they are."""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.discovery.compressed.neighbourhoods import Neighbourhoods
from counterprobe.graph import components
from counterprobe.states import mix64

__all__ = ["Validated"]


class Validated:
    """Remembers components by a key that their positions and edges make.

    Parameters
    ----------
    found : Neighbourhoods
        As it stands whenever something is asked.
    """

    def __init__(self, found: Neighbourhoods) -> None:
        self._found = found
        self._keys: Set[int] = frozenset()

    def edges(self) -> IntArray:
        """Return the edges between positions that were not given up."""
        edges = self._found.edges()
        return edges[~self._found.knowledge.is_given_up[edges].any(axis=1)]

    def components(self) -> tuple[IntArray, list[int]]:
        """Label the components as they are, and return the key of each."""
        edges, length = self.edges(), len(self._found.count)
        label = components(length, edges)
        keys = np.zeros(int(label.max()) + 1, dtype=np.uint64)
        np.add.at(keys, label, mix64(np.arange(length)))
        hashed = mix64(edges[:, 0] * length + edges[:, 1] + length)
        np.add.at(keys, label[edges[:, 0]], hashed)
        return label, [int(key) for key in keys]

    def keys(self) -> Set[int]:
        """Return the keys of the components as they are."""
        return frozenset(self.components()[1])

    def note(self, before: Set[int]) -> None:
        """Note that components were validated; those that changed since then were not."""
        self._keys = before & self.keys()

    def forget(self) -> None:
        """Let everything be validated again."""
        self._keys = frozenset()

    def are_among(self, keys: Set[int]) -> BoolArray:
        """Say of each position whether its component is among some, shape (N,)."""
        label, mine = self.components()
        return np.array([key in keys for key in mine], dtype=np.bool_)[label]

    def pending(self) -> IntArray:
        """Return the resolved positions whose component has not been validated as it is."""
        return np.flatnonzero(self._found.knowledge.is_found & ~self.are_among(self._keys))
