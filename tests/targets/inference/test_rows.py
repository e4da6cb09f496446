"""Which positions a row makes the kernels visit, what they write there, and what they leave."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.targets import inference

SHAPES = ["isolated", "star", "path", "tree", "forest"]
# No belief or message is negative, and whatever is computed from this is another number.
UNTOUCHED = -1.0


def fresh_scratch(law):
    """Working memory in which nothing that was not written looks as if it had been."""
    scratch = inference.make_scratch(law.length, law.num_classes)
    scratch.belief[:] = scratch.up[:] = UNTOUCHED
    scratch.cls[:] = 99
    scratch.queue[:] = -1
    return scratch


def rows_of_state(law, scratch, state, positions):
    asked = np.asarray(positions, dtype=np.int64)
    out = np.full((len(asked), law.num_classes), np.nan)
    inference.rows_of_state(law.arrays, scratch, state, asked, out)
    return out


def neighbours(law, a):
    """Neighbours of a vertex, by the law's own edges."""
    position, index = law.arrays.position, law.arrays.index
    ends = [edge for edge in law.edges.tolist() if position[a] in edge]
    return {int(index[i if j == position[a] else j]) for i, j in ends}


def components_of(law, state, positions):
    """Masked vertices connected to some positions: those with a masked neighbour, and the rest."""
    masked = {int(law.arrays.index[i]) for i in np.flatnonzero(state == cp.MASK)}
    found = set()
    waiting = [int(law.arrays.index[i]) for i in positions]
    while waiting:
        a = waiting.pop()
        if a not in found:
            found.add(a)
            waiting += neighbours(law, a) & masked
    lonely = {a for a in found if not neighbours(law, a) & masked}
    return found - lonely, lonely


def ancestors(law, state, positions):
    """The vertices of some positions and their ancestors up to the first that is revealed."""
    found = set()
    for i in positions:
        a = int(law.arrays.index[i])
        while a >= 0 and state[law.arrays.position[a]] == cp.MASK:
            found.add(a)
            a = int(law.arrays.parent[a])
    return found


@pytest.fixture
def case(draw_tree_law, draw_states):
    """Draw a law of a shape and length, a state, and some masked positions in any order."""

    def draw(rng, shape, length, count, masked=0.6):
        law = draw_tree_law(rng, length, shape, 3)
        state = draw_states(rng, (1, length), 3, masked)[0]
        state[rng.permutation(length)[:count]] = cp.MASK
        return law, state, rng.permutation(np.flatnonzero(state == cp.MASK))[:count]

    return draw


# ----- What is visited ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "count", "way"),
    [
        (64, 1, "marked"), (64, 15, "marked"), (64, 16, "sweep"), (64, 64, "sweep"),
        (65, 1, "components"), (65, 2, "marked"), (65, 16, "marked"), (65, 17, "sweep"),
        (130, 2, "components"), (130, 3, "marked"), (130, 32, "marked"), (130, 33, "sweep"),
        (1, 1, "sweep"), (4, 1, "sweep"), (5, 1, "marked"),
    ],
)  # fmt: skip
def test_the_share_of_positions_read_decides_how_they_are_visited(length, count, way, case):
    rng = np.random.default_rng([41, length, count])
    law, state, positions = case(rng, "forest", length, count)
    scratch = fresh_scratch(law)
    rows_of_state(law, scratch, state, positions)
    walked = scratch.queue[0] >= 0 or scratch.stamp[0] > 0
    connected, lonely = components_of(law, state, positions)
    everything = {int(law.arrays.index[i]) for i in np.flatnonzero(state == cp.MASK)}
    visited = set(np.flatnonzero(scratch.belief[:, 0] != UNTOUCHED).tolist())
    if way == "sweep":
        assert not walked and visited == everything
    else:
        assert visited == connected | lonely
        assert scratch.stamp[0] == (way == "components"), "marks need no stamp"


@pytest.mark.parametrize("shape", SHAPES)
def test_only_components_that_are_read_are_computed_in_the_order_that_messages_need(shape, case):
    for seed in range(8):
        rng = np.random.default_rng([42, seed, *shape.encode()])
        for length, count in [(200, 3), (200, 20), (70, 1), (66, 9)]:
            law, state, positions = case(rng, shape, length, count)
            scratch = fresh_scratch(law)
            rows_of_state(law, scratch, state, positions)
            connected, lonely = components_of(law, state, positions)
            queue = scratch.queue[: len(connected)].tolist()
            assert set(queue) == connected and (scratch.queue[len(connected) :] == -1).all()
            rank = {a: k for k, a in enumerate(queue)}
            parent = law.arrays.parent
            assert all(rank[int(parent[a])] < rank[a] for a in queue if int(parent[a]) in rank)
            visited = np.flatnonzero(scratch.belief[:, 0] != UNTOUCHED)
            assert set(visited.tolist()) == connected | lonely
            senders = {a for a in connected if int(parent[a]) in rank}
            assert set(np.flatnonzero(scratch.up[:, 0] != UNTOUCHED).tolist()) == senders
            np.testing.assert_allclose(scratch.up[sorted(senders)].max(axis=1, initial=1), 1)
            # Every class that was looked up is that of the state.
            looked_up = np.flatnonzero(scratch.cls != 99)
            np.testing.assert_array_equal(
                scratch.cls[looked_up], state[law.arrays.position[looked_up]]
            )
            if 64 * count < length:
                needed = ancestors(law, state, positions)
                sums = scratch.belief[visited].sum(axis=1)
                assert set(visited[np.abs(sums - 1) < 1e-12].tolist()) == needed
            else:
                assert queue == sorted(queue), "memory order"
                np.testing.assert_allclose(scratch.belief[visited].sum(axis=1), 1, rtol=1e-12)
            assert not scratch.marks.any(), "clean for the next state"


# ----- What is written ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_classes", [2, 3])
def test_one_memory_serves_state_after_state_to_the_last_bit(
    shape, num_classes, draw_tree_law, draw_states, walk_all_positions
):
    rng = np.random.default_rng([43, num_classes, *shape.encode()])
    for length in (1, 2, 63, 64, 65, 140):
        law = draw_tree_law(rng, length, shape, num_classes)
        scratch = fresh_scratch(law)
        for masked in (0.1, 0.5, 0.9, 1.0):
            state = draw_states(rng, (1, length), num_classes, masked)
            holes = np.flatnonzero(state[0] == cp.MASK)
            for share in (1.0, 0.15, 0.02):
                count = min(len(holes), int(np.ceil(share * length)))
                positions = rng.permutation(holes)[:count]
                if count > 1 and rng.random() < 0.5:
                    positions[-1] = positions[0]  # asked twice
                rows = rows_of_state(law, scratch, state[0], positions)
                expected = walk_all_positions(law, state, cp.Readouts.same(1, positions))
                np.testing.assert_array_equal(rows, expected)
                assert not scratch.marks.any()


@pytest.mark.parametrize("kernel", [inference.rows_of_states, inference.rows_all_positions])
@pytest.mark.parametrize(("low", "high"), [(0, 5), (1, 3), (4, 5), (2, 2)])
def test_only_rows_of_the_states_in_a_range_are_written(kernel, low, high, draw_small_law):
    rng = np.random.default_rng([44, low, high])
    small = draw_small_law(rng, 3, "tree")
    law = small.law
    states = rng.integers(law.vocab_size, size=(5, law.length)).astype(np.int32)
    states[rng.random(states.shape) < 0.6] = cp.MASK
    readouts = cp.Readouts.every_masked(states)
    start = np.searchsorted(readouts.state_index, np.arange(6))
    out = np.full((len(readouts), 3), np.nan)
    kernel(law.arrays, fresh_scratch(law), states, start, readouts.position, out, low, high)
    inside = (readouts.state_index >= low) & (readouts.state_index < high)
    assert np.isnan(out[~inside]).all()
    expected = [
        np.bincount(small.class_of[j], small.row(states[b], j), minlength=3)
        for b, j in zip(readouts.state_index, readouts.position, strict=True)
    ]
    np.testing.assert_allclose(out[inside], np.reshape(expected, out.shape)[inside], atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_for_any_number_of_classes_give_the_bits_of_those_for_few(shape, case):
    rng = np.random.default_rng([44, *shape.encode()])
    for length, count in ((65, 1), (65, 9), (65, 40)):
        law, state, positions = case(rng, shape, length, count)
        shared = law.arrays._replace(class_range=np.arange(3, dtype=np.int32))
        found = []
        for arrays in (law.arrays, shared):
            scratch = fresh_scratch(law)
            rows = np.full((len(positions), 3), np.nan)
            inference.rows_of_state(arrays, scratch, state, positions, rows)
            pairs = np.full((length, 3, 3), np.nan)
            log_partition = inference.upward_pass(arrays, scratch)
            above = law.class_marginals[arrays.position]
            inference.pair_marginals(arrays, scratch.belief, above, pairs)
            found.append((rows, log_partition, scratch.belief, pairs))
        for few, any_number in zip(*found, strict=True):
            np.testing.assert_array_equal(few, any_number)
