"""Whether an oracle is the one that a structure was found with: the stored replies come back."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.discovery.compressed.findings import Sample
from counterprobe.discovery.compressed.keeping import pooled
from counterprobe.errors import StructureError
from counterprobe.oracles import Oracle, Readouts, as_oracle
from counterprobe.rows import to_numpy
from counterprobe.run.ledger import Ledger
from counterprobe.run.unmasking import Unmasking
from counterprobe.states import MASK

__all__ = ["SAME_ROW", "Found", "Recognisable", "no_sample", "recognise"]

# Replies of an exact oracle may differ by rounding, from machine to machine.
SAME_ROW = 1e-9


class Recognisable(Protocol):
    """A structure that stored some replies."""

    @property
    def given(self) -> StateArray:
        """The context it was found in."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        ...

    @property
    def about(self) -> dict[str, Any]:
        """Whose structure it is."""
        ...

    @property
    def sample_states(self) -> StateArray:
        """Stored probes."""
        ...

    @property
    def sample_index(self) -> IntArray:
        """Of which probe each stored row is."""
        ...

    @property
    def sample_position(self) -> IntArray:
        """Of which position each stored row is."""
        ...

    @property
    def sample_rows(self) -> FloatArray:
        """Stored rows, perhaps pooled."""
        ...

    @property
    def row_width(self) -> int:
        """Entries of a whole row."""
        ...

    @property
    def same_row(self) -> float:
        """Total variation up to which a reply counts as the stored one."""
        ...


class Found:
    """What every structure has: the context it was found in, and an oracle to be recognised."""

    __slots__ = ()
    given: StateArray

    @property
    def length(self) -> int:
        """Number of positions N."""
        return len(self.given)

    @property
    def residual(self) -> IntArray:
        """Positions that were not given."""
        return np.flatnonzero(self.given == MASK)

    def check(self: Recognisable, oracle: Oracle) -> Ledger:
        """Make sure that an oracle is the one this was found with; return what that cost.

        Raises
        ------
        StructureError
            If length or vocabulary differ, or the stored replies do not come back.
        """
        return recognise(self, oracle)


def recognise(structure: Recognisable, oracle: Oracle) -> Ledger:
    """Make sure that an oracle gives the stored replies; return what asking cost.

    Raises
    ------
    StructureError
        If length or vocabulary differ, or a reply does.
    """
    oracle = as_oracle(oracle)
    length = len(structure.given)
    if (oracle.length, oracle.vocab_size) != (length, structure.vocab_size):
        raise StructureError(
            f"this structure was found with {length} positions and {structure.vocab_size} "
            f"tokens, the oracle has {oracle.length} and {oracle.vocab_size}; discover its own"
        )
    then, now = structure.about.get("oracle_content"), oracle.digest
    if None not in (then, now) and then != now:
        raise StructureError(
            "the oracle does not give the stored replies: it is another than this structure was "
            "found with, by its weights or by what else makes its rows (letters that are allowed, "
            "temperature, backbone); discover the structure of this oracle"
        )
    if len(structure.sample_position) == 0:
        return Ledger()
    readouts = Readouts.pairs(structure.sample_index, structure.sample_position)
    run = Unmasking(oracle, given=structure.given)
    rows = run.probe(structure.sample_states, readouts)
    masses = np.asarray(to_numpy(rows.masses), dtype=np.float64)
    if masses.shape[1] != structure.row_width:
        raise StructureError(
            f"the stored replies had {structure.row_width} entries a row, this oracle's have "
            f"{masses.shape[1]}: it is not the oracle this structure was found with"
        )
    masses = pooled(masses, structure.sample_rows.shape[1])
    distance = np.abs(masses - structure.sample_rows).sum(axis=1) / 2
    allowed = structure.same_row
    if not distance.max() <= allowed:  # also when it is not a number
        k = int(np.argmax(~(distance <= allowed)))
        raise StructureError(
            f"the oracle does not give the stored replies: the row of position "
            f"{int(structure.sample_position[k])} differs by {distance[k]:.3g} in total variation "
            f"({allowed:.3g} allowed); discover the structure of this oracle"
        )
    return run.ledger


def no_sample(length: int) -> Sample:
    """Return what a screen that probed nothing keeps."""
    return Sample(
        np.empty((0, length), dtype=np.int32),
        Readouts.pairs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)),
        np.empty((0, 1)),
        1,
        0.0,
    )
