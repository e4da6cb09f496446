"""Whether an oracle is the one that a structure was found with.

The stored replies must come back. They were read at arbitrary tokens, and another oracle may give
the same ones and differ under the law: so a certified structure is also *rehearsed*, which
compares rows with what it implies where sequences live, before its first commit.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import StateArray
from counterprobe.discovery.compressed.certify import LayeredRehearsal
from counterprobe.discovery.compressed.implied import allowed_misfit
from counterprobe.discovery.compressed.keeping import pooled
from counterprobe.discovery.compressed.watch import CommitWatch
from counterprobe.discovery.structure import Structure
from counterprobe.errors import StructureError
from counterprobe.oracles import Oracle, Readouts, as_oracle
from counterprobe.rows import to_numpy
from counterprobe.run import Preprocess, Probe
from counterprobe.run.ledger import Ledger
from counterprobe.run.run import Run
from counterprobe.states import MASK
from counterprobe.streams import keyed_generator

__all__ = ["check_oracle", "context_for", "recognise", "rehearsed"]

# Chance that a dependence at one scale is missed; discovery itself has looked harder.
BEFORE_USE = 0.05


def check_oracle(structure: Structure, oracle: Oracle) -> Ledger:
    """Make sure that an oracle is the one a structure was found with; return what that cost.

    The stored probes are asked again. Of a certified structure a short rehearsal then compares
    rows with what it implies where sequences live: an oracle may differ from another only there.

    Raises
    ------
    StructureError
        If length or vocabulary differ, the stored replies do not come back, or a row is not what
        the structure implies.
    """
    return recognise(structure, oracle) + rehearsed(structure, oracle)


def context_for(structure: Structure, oracle: Oracle) -> StateArray:
    """Return the context of a structure, if an oracle has as many positions and tokens."""
    if (oracle.length, oracle.vocab_size) != (structure.length, structure.vocab_size):
        raise StructureError(
            f"this structure was found with {structure.length} positions and "
            f"{structure.vocab_size} tokens, the oracle has {oracle.length} and "
            f"{oracle.vocab_size}; discover its own"
        )
    return structure.given


def recognise(structure: Structure, oracle: Oracle) -> Ledger:
    """Make sure that an oracle gives the stored replies; return what asking cost.

    Raises
    ------
    StructureError
        If length or vocabulary differ, or a reply does.
    """
    oracle = as_oracle(oracle)
    context_for(structure, oracle)
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
    run = Run(oracle, given=structure.given)
    rows = run.do(Probe(structure.sample_states, readouts)).rows
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


def rehearsed(structure: Structure, oracle: Oracle) -> Ledger:
    """Make sure that an oracle's rows are what a certificate implies; return what asking cost.

    Raises
    ------
    StructureError
        If a row is not.
    """
    if structure.certificate is None:
        return Ledger()
    order = structure.order
    if sum(len(layer) for layer in order.layers) < 2:
        return Ledger()
    run = Run(oracle, given=structure.given)
    # Another state for another structure, the same one for the same.
    rng = keyed_generator(len(structure.edges), "rehearsal", len(structure.residual))
    rows = run.do(Preprocess())
    state = np.array(structure.given, dtype=np.int32)
    state[structure.residual] = rows.draw(rng.random(len(structure.residual)))
    if structure.terms is None:
        allowed = allowed_misfit(structure.certificate.tolerance)
        layered = LayeredRehearsal(structure.edges, order.layers, BEFORE_USE, allowed)
        rehearsing = layered(state, rng)
    else:
        state[np.concatenate(order.layers)] = MASK
        watch = CommitWatch(structure.terms, order.alone)
        rehearsing = watch.rehearse(state, order.layers, rows, BEFORE_USE, rng)
    has_moved = run.alone(run.follow(rehearsing))
    if has_moved.any():
        raise StructureError(
            f"the oracle does not give the rows that this structure implies: position "
            f"{int(np.argmax(has_moved))} depends on what it should not, in a sequence drawn as "
            "the structure says; discover the structure of this oracle"
        )
    return run.ledger
