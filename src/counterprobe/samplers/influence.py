"""How much revealing one position moves the rows of others, found by probing.

Each source is revealed alone, at one or several of its values, and the rows of the targets are
compared with what they were. All of it is one stage: for c sources at one value each, c
submissions and one unit of depth, whatever the number of targets.

For rows that are exact, the mean over a source's own row of the total variation is the distance
between the joint law of source and target and the product of their marginals; so it is alike in
both directions, and zero if and only if they are independent given the history.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.oracle import Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.unmasking import Request, Unmasking

__all__ = ["probed_influence", "spread_values"]

# Numbers in the states, and in the readouts, of one request: a stage is asked in pieces.
PIECE = 1 << 18


def probed_influence(
    run: Unmasking, rows: Rows, sources: IntArray, values: IntArray, targets: IntArray
) -> FloatArray:
    """Reveal sources one by one; return how far the rows of targets moved.

    Parameters
    ----------
    run : Unmasking
    rows : Rows
        Of every residual position at the run's history, in increasing order.
    sources : ndarray of int, shape (c,)
        Residual positions.
    values : ndarray of int, shape (c, K)
        What each is revealed as; a value that is repeated counts as often and is asked once.
    targets : ndarray of int, shape (t,)
        Residual positions to read.

    Returns
    -------
    ndarray of float, shape (c, t)
        Mean total variation between the target's row beside the source and its row alone. What
        the declared row error explains is no movement; nothing moves itself.
    """
    state, slots = run.state, np.searchsorted(run.residual, targets)
    moved = np.zeros((len(sources), len(targets)))
    pairs, repeats = np.unique(
        np.stack([np.repeat(np.arange(len(sources)), values.shape[1]), values.ravel()], axis=1),
        axis=0,
        return_counts=True,
    )
    source, token = pairs.T

    def requests() -> Iterator[Request]:
        step = max(1, PIECE // max(run.length, len(targets)))
        for low in range(0, len(source), step):
            which = np.arange(low, min(low + step, len(source)))
            states = np.tile(state, (len(which), 1))
            states[np.arange(len(which)), sources[source[which]]] = token[which]
            index, column = np.nonzero(targets != sources[source[which]][:, None])
            if len(index):
                readouts = Readouts.pairs(index, targets[column])
                yield Request(states, readouts, label=(which[index], column))

    def compare(request: Request, replies: Rows) -> None:
        which, column = request.label
        far = np.asarray(to_numpy(replies.total_variation(rows.take(slots[column]))), np.float64)
        far[far <= 2 * run.row_error] = 0  # both rows may be off by as much
        np.add.at(moved, (source[which], column), far * repeats[which] / values.shape[1])

    run.transcript.announce("influence")
    run.stage(requests(), compare)
    return moved


def spread_values(rows: Rows, count: int, generator: np.random.Generator) -> IntArray:
    """Draw values from each row, spread evenly over its distribution function.

    One uniform number a row is shifted by whole steps of ``1 / count``, so that every value comes
    up as often as its probability says, up to one; the mean of anything over them is unbiased.

    Parameters
    ----------
    rows : Rows
        Of c positions.
    count : int
        Values of each.
    generator : Generator
        Of the decision stream: no value that is committed is looked at.

    Returns
    -------
    ndarray of int, shape (c, count)
    """
    uniforms = (generator.random((len(rows), 1)) + np.arange(count)) / count
    every = rows.take(np.repeat(np.arange(len(rows)), count))
    return np.asarray(every.draw(uniforms.ravel())).reshape(len(rows), count)
