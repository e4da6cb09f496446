"""Where positions stand, and what the verbs may change of it."""

import numpy as np
import pytest

from counterprobe.discovery.compressed.knowledge import Knowledge


def fresh(length: int = 6, settled=()) -> Knowledge:
    is_settled = np.zeros(length, dtype=np.bool_)
    is_settled[list(settled)] = True
    return Knowledge(is_settled)


def where(claim: np.ndarray) -> list[int]:
    return np.flatnonzero(claim).tolist()


def test_settled_positions_are_resolved_and_are_never_reopened():
    knowledge = fresh(settled=[1, 4])
    assert where(knowledge.is_resolved) == where(knowledge.is_settled) == [1, 4]
    knowledge.resolve(np.array([0]))
    assert where(knowledge.is_found) == [0]
    knowledge.reopen(np.arange(6))
    assert where(knowledge.is_resolved) == [1, 4]
    assert where(knowledge.is_found) == []


def test_what_is_given_up_is_neither_open_nor_resolved():
    knowledge = fresh(settled=[5])
    knowledge.resolve(np.array([0, 1]))
    assert where(knowledge.is_open) == [2, 3, 4]
    knowledge.give_up()
    assert where(knowledge.is_given_up) == [2, 3, 4]
    assert where(knowledge.is_open) == []
    # What opens later is a matter of its own.
    knowledge.reopen(np.array([1]))
    assert where(knowledge.is_open) == [1]


def test_what_is_explained_after_all_is_given_up_no_longer():
    knowledge = fresh()
    knowledge.give_up()
    knowledge.resolve(np.array([2, 3]))
    knowledge.take_back()
    assert where(knowledge.is_given_up) == [0, 1, 4, 5]
    knowledge.reopen(np.array([2]))
    assert where(knowledge.is_open) == [2]


def test_a_contradiction_reopens_a_position_once():
    knowledge = fresh()
    knowledge.resolve(np.arange(6))
    assert knowledge.retest(np.array([2, 3]))
    assert where(knowledge.is_open) == [2, 3]
    knowledge.resolve(np.array([2, 3]))
    assert knowledge.retest(np.array([3, 4]))
    assert where(knowledge.is_open) == [4]
    knowledge.resolve(np.array([4]))
    assert not knowledge.retest(np.array([2, 3, 4]))
    assert not knowledge.retest(np.empty(0, dtype=np.int64))
    assert where(knowledge.is_open) == []


@pytest.mark.parametrize("claim", ["is_settled", "is_resolved", "is_given_up"])
def test_standings_change_through_verbs_only(claim):
    given = np.zeros(3, dtype=np.bool_)
    knowledge = Knowledge(given)
    with pytest.raises(ValueError, match="read-only"):
        getattr(knowledge, claim)[0] = True
    given[0] = True  # the caller's array is no way in
    assert not getattr(knowledge, claim).any()
