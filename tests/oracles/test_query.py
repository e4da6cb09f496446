"""What is asked and what comes back: readouts, queries, and replies that may be late."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Query, Readouts
from counterprobe.oracles import AttentionQuery, HistoryQuery, RunKey, Runs, join

MASK = cp.MASK


# ----- Readouts -----------------------------------------------------------------------------


def test_same_readouts_are_state_major():
    readouts = Readouts.same(2, [4, 1])
    assert readouts.state_index.tolist() == [0, 0, 1, 1]
    assert readouts.position.tolist() == [4, 1, 4, 1]
    assert readouts.shared.tolist() == [4, 1]
    assert len(readouts) == 4
    assert Readouts.same(1, 3).position.tolist() == [3]


def test_pairs_are_kept_in_their_order():
    readouts = Readouts.pairs([1, 0, 1], [2, 0, 1])
    assert readouts.state_index.tolist() == [1, 0, 1]
    assert readouts.position.tolist() == [2, 0, 1]
    assert readouts.shared is None
    with pytest.raises(ValueError, match="must have one length, got 2 and 1"):
        Readouts.pairs([0, 1], [0])


def test_every_masked_position_is_listed():
    states = np.array([[MASK, 0, MASK], [1, 1, 1], [0, 0, MASK]], dtype=np.int32)
    readouts = Readouts.every_masked(states)
    assert readouts.state_index.tolist() == [0, 0, 2]
    assert readouts.position.tolist() == [0, 2, 2]
    readouts.check(states)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Readouts.same(1, [True, False, True]),
        lambda: Readouts.same(1, [0.0, 1.0]),
        lambda: Readouts.same(1, [[0, 1]]),
        lambda: Readouts.pairs([0.0], [0]),
        lambda: Readouts.pairs([0], [True]),
    ],
)
def test_a_boolean_mask_or_a_float_is_no_list_of_positions(make):
    with pytest.raises(ValueError, match="must be a flat list of integers"):
        make()


@pytest.mark.parametrize(
    ("readouts", "message"),
    [
        (Readouts.pairs([2], [0]), r"state indices must lie in 0\.\.1, got 2\.\.2"),
        (Readouts.pairs([1, -1], [1, 0]), r"state indices must lie in 0\.\.1, got -1\.\.1"),
        (Readouts.pairs([0], [3]), r"positions must lie in 0\.\.2, got 3\.\.3"),
        (Readouts.pairs([0], [-1]), r"positions must lie in 0\.\.2, got -1"),
        (Readouts.pairs([0, 1], [0, 2]), "position 2 is revealed in state 1"),
        (Readouts.same(2, [0, 2]), "position 2 is revealed in state 1; mask it or do not"),
    ],
)
def test_readouts_must_be_in_range_and_masked(readouts, message):
    states = np.array([[MASK, MASK, MASK], [MASK, MASK, 0]], dtype=np.int32)
    with pytest.raises(ValueError, match=message):
        readouts.check(states)
    Readouts.pairs([0, 1, 1], [2, 1, 0]).check(states)
    Readouts.same(2, []).check(states)


# ----- Queries ------------------------------------------------------------------------------


def random_query(draw, *, shared: bool = False, ranks: bool = False) -> Query:
    """Some states of four positions, perhaps none, with the last two masked in all of them."""
    states = draw.integers(-1, 2, size=(draw.integers(0, 4), 4)).astype(np.int32)
    states[:, -2:] = MASK
    rounds = np.where(states == MASK, -2, draw.integers(-1, 3, size=states.shape))
    if shared:
        readouts = Readouts.same(len(states), [3, 2])
    else:
        every = Readouts.every_masked(states)
        chosen = draw.permutation(len(every))[: draw.integers(0, len(every) + 1)]
        readouts = Readouts.pairs(every.state_index[chosen], every.position[chosen])
    return HistoryQuery(states, readouts, rounds) if ranks else Query(states, readouts)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_queries_joined_are_the_rows_of_each_in_order(table_law, shared, seed):
    draw = np.random.default_rng([75, seed])
    parts = [random_query(draw, shared=shared, ranks=k == 1) for k in range(4)]
    whole = join(parts)
    oracle = table_law.oracle()
    expected = [oracle.rows(one.states, one.readouts).dense() for one in parts]
    rows = oracle.rows(whole.states, whole.readouts)
    assert np.array_equal(rows.dense(), np.concatenate(expected))
    assert (whole.readouts.shared is not None) == shared
    low, high = len(parts[0].states), len(parts[0].states) + len(parts[1].states)
    assert np.array_equal(whole.ranks[low:high], parts[1].ranks)
    assert (np.delete(whole.ranks, np.s_[low:high], axis=0) == -1).all()
    assert type(join([parts[0], parts[2]])) is Query


@pytest.mark.parametrize("readouts", [
    Readouts.pairs([2, 0, 1, 2], [1, 3, 2, 2]), Readouts.same(3, [1, 2]),
], ids=["pairs", "shared"])  # fmt: skip
def test_a_part_of_a_query_has_the_rows_of_its_states(table_law, readouts):
    states = np.array([[0, MASK, MASK, MASK], [1, MASK, MASK, 2], [2, MASK, MASK, 0]])
    states = states.astype(np.int32)
    runs = Runs(RunKey(), np.zeros(3, dtype=int), 3, Readouts.same(3, [0]))
    which = np.array([0, 2])
    rows = table_law.oracle().rows(states, readouts).dense()
    mine = np.isin(readouts.state_index, which)
    for query in (
        Query(states, readouts), HistoryQuery(states, readouts, states * 2, runs),
        AttentionQuery(states, readouts, 3),
    ):  # fmt: skip
        part = query.part(which)
        assert type(part) is type(query) and part.states.tolist() == states[which].tolist()
        found = table_law.oracle().rows(part.states, part.readouts).dense()
        assert np.array_equal(found, rows[mine])
        if isinstance(part, HistoryQuery):
            assert part.ranks.tolist() == (2 * states[which]).tolist() and part.runs is None
        if isinstance(part, AttentionQuery):
            assert part.layers == 3


# ----- Replies ------------------------------------------------------------------------------
