"""Rows around a hub, against messages in the log domain: products of few and of many factors."""

from math import fsum

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.targets import inference


def log_message(law, state, sender, receiver):
    """What a position says of its neighbour's class, everything behind it summed out."""
    for (i, j), pair in zip(law.edges.tolist(), law.pair, strict=True):
        if {i, j} == {sender, receiver}:
            table = np.log(pair if j == sender else pair.T)  # the receiver's class first
    if state[sender] != cp.MASK:
        return table[:, state[sender]]
    return np.logaddexp.reduce(log_belief(law, state, sender, receiver) + table, axis=1)


def log_belief(law, state, position, but=None):
    """Weights of a position with what its neighbours say, all of them but one."""
    said = [np.log(law.unary[position])]
    for edge in law.edges.tolist():
        for neighbour, end in (edge, edge[::-1]):
            if end == position and neighbour != but:
                said.append(log_message(law, state, neighbour, position))
    return np.array([fsum(column) for column in np.transpose(said)])


def row_of(law, state, position):
    logs = log_belief(law, state, position)
    return np.exp(logs - np.logaddexp.reduce(logs))


def hub_law(rng, num_leaves, spread, lean):
    """Position 0 is joined to 1, which has a leaf and ``num_leaves`` more; labels shuffled.

    With ``lean`` every edge speaks against the same classes of the hub, as much as it may.
    """
    parent = np.array([0, 1, *[1] * num_leaves])
    length = len(parent) + 1
    label = rng.permutation(length)
    edges = label[np.stack([parent, np.arange(1, length)], axis=1)]
    pair = 10.0 ** rng.uniform(-spread, 0, (len(edges), 3, 3))
    if lean is not None:
        pair[:] = 1.0
        pair[:, lean] = 10.0**-spread
        pair[0] = pair[0].T
    flipped = rng.random(len(edges)) < 0.5
    edges[flipped], pair[flipped] = edges[flipped, ::-1], pair[flipped].transpose(0, 2, 1)
    law = cp.ForestLaw(10.0 ** rng.uniform(-spread, 0, (length, 3)), edges, pair)
    return law, int(label[1]), int(label[0])


# A product is rescaled after eight factors: with 6 leaves the hub has 7 or 8 children, and so on.
@pytest.mark.parametrize("num_leaves", [0, 5, 6, 7, 8, 14, 15, 16, 23])
@pytest.mark.parametrize("spread", [1.0, 29.0])
def test_rows_around_a_hub_equal_log_sums(num_leaves, spread):
    for seed, lean in enumerate([None, [0], [1], [2], [1, 2], [0, 2], [0, 1]]):
        rng = np.random.default_rng([71, seed, num_leaves, int(spread)])
        law, hub, above = hub_law(rng, num_leaves, spread, lean)
        for revealed in (0.0, 0.5, 1.0):
            state = rng.integers(3, size=law.length).astype(np.int32)
            state[rng.random(law.length) >= revealed] = cp.MASK
            state[hub] = cp.MASK
            state[above] = rng.integers(-1, 3)
            scratch = inference.make_scratch(law.length, 3)
            holes = np.flatnonzero(state == cp.MASK)
            for positions in (holes, rng.permutation(holes)[:1], np.array([hub])):
                out = np.full((len(positions), 3), np.nan)
                scratch.exponent[:] = 5  # left over from before
                inference.rows_of_state(law.arrays, scratch, state, positions, out)
                expected = [row_of(law, state, int(j)) for j in positions]
                # Tiny probabilities count in a log-probability: right in relative terms too.
                np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-290)
