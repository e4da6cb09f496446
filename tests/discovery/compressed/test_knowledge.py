"""Where positions stand, and what the verbs may change of it."""

import itertools

import numpy as np
import pytest

from counterprobe.discovery.compressed.knowledge import Knowledge, least_cut


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


# ----- Least cuts against the enumeration of all splits ----------------------------------------


def cut(seen, coordinates: int, count: int | None = None) -> int:
    sets = np.array(seen, dtype=np.int64)
    return least_cut(
        sets, len(sets) if count is None else count, coordinates, np.empty(64, dtype=np.int64)
    )


def plain_cut(seen, coordinates: int) -> int:
    """Try every split."""
    bits = [1 << c for c in range(40) if coordinates >> c & 1]
    least = len(seen)
    for size in range(1, len(bits)):
        for side in itertools.combinations(bits, size):
            one, other = sum(side), coordinates - sum(side)
            least = min(least, sum(1 for s in seen if s & one and s & other))
    return least


@pytest.mark.parametrize("num_coordinates", range(1, 8))
@pytest.mark.parametrize("seed", range(8))
def test_the_least_cut_is_that_of_the_worst_split(num_coordinates, seed):
    rng = np.random.default_rng([num_coordinates, seed])
    for share in (0.2, 0.5, 0.9):
        shown = rng.random((int(rng.integers(1, 25)), num_coordinates)) < share
        seen = (shown @ (1 << np.arange(num_coordinates))).tolist()
        everything = 2**num_coordinates - 1
        assert cut(seen, everything) == plain_cut(seen, everything)
        some = int(rng.integers(1, everything + 1))
        assert cut(seen, some) == plain_cut(seen, some)


def test_probes_that_show_everything_all_count():
    assert cut([0b111] * 5, 0b111) == 5
    assert cut([0b111] * 5 + [0b110] * 3, 0b111) == 5
    assert cut([0b111] * 5 + [0b110] * 3, 0b110) == 8


def test_a_row_with_all_its_mass_on_one_token_is_no_evidence_about_it():
    assert cut([0b100] * 9, 0b111) == 0
    assert cut([0b100] * 9, 0b100) == 9  # one coordinate alone cannot be moved against another


def test_two_groups_never_seen_together_have_not_been_compared():
    # Each coordinate was seen thirty times; a neighbour that favours one group would not show.
    assert cut([0b0011, 0b1100] * 30, 0b1111) == 0
    assert cut([0b0011, 0b1100] * 30 + [0b0110] * 4, 0b1111) == 4


def test_different_pairs_add_up():
    assert cut([0b011, 0b110, 0b101] * 10, 0b111) == 20


def test_nothing_seen_and_nobody_to_see():
    assert cut([], 0b111) == 0
    assert cut([], 0) == 0
    assert cut([0b1, 0b0], 0) == 2
    assert cut([0b11, 0b11, 0b01], 0b11, count=2) == 2


def test_as_many_coordinates_as_rows_are_kept_with():
    everything = 2**32 - 1
    assert cut([everything] * 3 + [everything - 2**31] * 4, everything) == 3
