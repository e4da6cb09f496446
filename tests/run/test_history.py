"""A history counts what it knows, and its fingerprint is that of its state."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Readouts
from counterprobe.run.history import Histories, History
from counterprobe.states import fingerprint

MASK = cp.MASK


def check(history: History) -> None:
    """Compare what a history keeps with what its state says."""
    assert history.num_known == int((history.state != MASK).sum())
    assert history.residual.tolist() == np.flatnonzero(history.state == MASK).tolist()
    assert history.fingerprint == fingerprint(history.state)[0]
    assert ((history.round_of == -2) == (history.state == MASK)).all()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_committed_and_taken_back_is_what_the_state_says(seed):
    draw = np.random.default_rng([71, seed])
    given = np.where(draw.random(9) < 0.3, draw.integers(0, 5, 9), MASK)
    history = History(given.copy())
    context = np.flatnonzero(given != MASK)
    check(history)
    for round_index in range(8):
        free = history.residual
        if len(free):
            batch = draw.permutation(free)[: draw.integers(1, len(free) + 1)]
            tokens = draw.integers(0, 5, len(batch))
            history.advance(batch, tokens, round_index)
            assert (history.state[batch] == tokens).all()
            assert (history.round_of[batch] == round_index).all()
        check(history)
        mine = np.flatnonzero(history.round_of >= 0)
        back = draw.permutation(mine)[: draw.integers(1, len(mine) + 1)]
        had = history.state[back].tolist()
        tokens = history.retreat(back)
        assert (tokens.tolist(), tokens.dtype) == (had, np.int64)
        check(history)
    assert (history.round_of[context] == -1).all()
    assert (history.state[context] == given[context]).all()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([1, 0], "undo needs positions that this run committed; 0 is given context, which stays"),
        ([1, 2], "undo needs positions that this run committed; 2 is not committed"),
        ([1, 1], "must not name a position twice"),
        ([3], r"must lie in 0\.\.2, got 3\.\.3"),
    ],
)
def test_only_what_the_run_committed_can_be_taken_back(batch, message):
    history = History(np.array([1, MASK, MASK]))
    history.advance(np.array([1]), np.array([2]), 0)
    assert history.check_committed("undo", [1]).tolist() == [1]
    with pytest.raises(ValueError, match=message):
        history.check_committed("undo", batch)


def test_a_probe_state_may_differ_where_nothing_is_committed_and_nowhere_else():
    history = History(np.array([1, MASK, MASK]))
    history.check_kept(np.array([[1, 0, MASK], [1, MASK, 3]], dtype=np.int32))
    with pytest.raises(ValueError, match="position 0 is committed to 1 but state 1 has 2 there"):
        history.check_kept(np.array([[1, 0, 0], [2, 0, 0]], dtype=np.int32))
    with pytest.raises(ValueError, match="position 0 is committed to 1 but state 0 has -1 there"):
        history.check_kept(np.array([[MASK, 0, 0], [1, 0, 0]], dtype=np.int32))


def told(runs) -> tuple[list[int], list[tuple[int, int]]]:
    """What a query says of who asks: which of the runs, and what is new in each."""
    fresh = zip(runs.fresh.state_index.tolist(), runs.fresh.position.tolist(), strict=True)
    return runs.members.tolist(), sorted(fresh)


def test_each_query_says_what_was_committed_since_the_last_and_nothing_twice():
    history = History(np.array([1, *[MASK] * 5]))
    first = history.next_runs()
    assert told(first) == ([0], [])
    history.advance(np.array([3, 1]), np.array([0, 2]), 0)
    history.advance(np.array([4]), np.array([3]), 1)
    second = history.next_runs()
    assert told(second) == ([0], [(0, 1), (0, 3), (0, 4)])
    assert told(history.next_runs()) == ([0], [])
    history.advance(np.array([2]), np.array([3]), 2)
    fourth = history.next_runs()
    assert told(fourth) == ([0], [(0, 2)])
    assert [runs.serial for runs in (first, second, fourth)] == [0, 1, 3]
    assert first.key is second.key is fourth.key
    assert history.ranks.tolist() == [-1, 0, 2, 0, 1, -2]


def test_after_a_retreat_a_history_is_asked_about_as_a_new_run_whose_context_is_what_is_left():
    history = History(np.full(4, MASK))
    history.advance(np.array([0, 2]), np.array([1, 1]), 0)
    before = history.next_runs()
    history.advance(np.array([1]), np.array([1]), 1)
    history.retreat(np.array([2]))
    assert history.ranks.tolist() == [-1, -1, -2, -2]
    after = history.next_runs()
    assert after.key is not before.key
    assert (after.serial, *told(after)) == (0, [0], [])
    history.advance(np.array([3]), np.array([0]), 2)
    again = history.next_runs()
    assert again.key is after.key
    assert (again.serial, *told(again)) == (1, [0], [(0, 3)])
    assert history.ranks.tolist() == [-1, -1, -2, 2]


def test_histories_side_by_side_each_hear_of_their_own_commits_when_they_are_asked_next():
    states = np.full((3, 4), MASK, dtype=np.int32)
    states[:, 0] = 1
    histories = Histories(states)

    def commit(members: list[int], positions: list[int], round_index: int) -> None:
        states[members, positions] = 2
        histories.commit(np.array(members), np.array(positions), round_index)

    def ask(members: list[int]) -> cp.Query:
        chosen = np.array(members)
        return histories.query(chosen, Readouts.every_masked(states[chosen]))

    first = ask([0, 1, 2])
    assert told(first.runs) == ([0, 1, 2], [])
    assert first.ranks.tolist() == [[-1, -2, -2, -2]] * 3
    commit([0, 2, 2], [1, 1, 3], 0)
    second = ask([2])
    assert told(second.runs) == ([2], [(0, 1), (0, 3)])  # counted in what is asked
    assert second.readouts.position.tolist() == [2]
    assert second.states.tolist() == [[1, 2, MASK, 2]]
    assert second.ranks.tolist() == [[-1, 0, -2, 0]]
    commit([1], [2], 5)
    third = ask([2, 1, 0])
    assert told(third.runs) == ([2, 1, 0], [(1, 2), (2, 1)])
    assert third.ranks.tolist() == [[-1, 0, -2, 0], [-1, -2, 5, -2], [-1, 0, -2, -2]]
    assert [query.runs.serial for query in (first, second, third)] == [0, 1, 2]
    assert first.runs.key is second.runs.key is third.runs.key
    assert told(ask([0, 1, 2]).runs) == ([0, 1, 2], [])
