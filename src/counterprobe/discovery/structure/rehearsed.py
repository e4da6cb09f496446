"""Rehearse a structure before it is used: rows of an oracle, where sequences live.

Stored replies were read at arbitrary tokens. Another oracle may give the same ones and differ
under the law, so a structure also compares rows with what it implies, before its first commit.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.discovery.compressed.findings import Terms
from counterprobe.discovery.compressed.implied import allowed_misfit
from counterprobe.discovery.compressed.layered import LayeredRehearsal
from counterprobe.discovery.structure.watch import CommitWatch
from counterprobe.errors import StructureError
from counterprobe.oracles import Oracle
from counterprobe.planning.order import CommitOrder
from counterprobe.run.ledger import Ledger
from counterprobe.run.unmasking import Unmasking
from counterprobe.states import MASK
from counterprobe.streams import keyed_generator

__all__ = ["rehearsed"]

# Chance that a dependence at one scale is missed; discovery itself has looked harder.
BEFORE_USE = 0.05


class Rehearsable(Protocol):
    """What is rehearsed."""

    @property
    def given(self) -> StateArray:
        """The context it was found in."""
        ...

    @property
    def residual(self) -> IntArray:
        """Positions that were not given."""
        ...

    @property
    def edges(self) -> IntArray:
        """Pairs that depend on each other."""
        ...

    @property
    def order(self) -> CommitOrder:
        """In which batches a sample is committed."""
        ...

    @property
    def terms(self) -> Terms | None:
        """What rows are compared with."""
        ...

    @property
    def tolerance(self) -> float:
        """Total variation that counted as explained."""
        ...


def rehearsed(structure: Rehearsable, oracle: Oracle) -> Ledger:
    """Make sure that an oracle's rows are what a structure implies; return what asking cost.

    Raises
    ------
    StructureError
        If a row is not.
    """
    order = structure.order
    if sum(len(layer) for layer in order.layers) < 2:
        return Ledger()
    run = Unmasking(oracle, given=structure.given)
    # Another state for another structure, the same one for the same.
    rng = keyed_generator(len(structure.edges), "rehearsal", len(structure.residual))
    rows = run.preprocess()
    drawn = rows.draw(rng.random(len(structure.residual)))
    state = np.array(structure.given, dtype=np.int32)
    state[structure.residual] = drawn
    if structure.terms is None:
        allowed = allowed_misfit(structure.tolerance)
        layered = LayeredRehearsal(structure.edges, order.layers, BEFORE_USE, allowed)
        has_moved = layered(run, state, rng)
    else:
        state[np.concatenate(order.layers)] = MASK
        watch = CommitWatch(structure.terms, order.alone)
        has_moved = watch.rehearse(run, state, order.layers, rows, BEFORE_USE, rng)
    if has_moved.any():
        raise StructureError(
            f"the oracle does not give the rows that this structure implies: position "
            f"{int(np.argmax(has_moved))} depends on what it should not, in a sequence drawn as "
            "the structure says; discover the structure of this oracle"
        )
    return run.ledger
