"""Neighbourhoods chosen from short lists, on additive data whose truth is known."""

import math

import numpy as np
import pytest

from counterprobe.discovery.compressed.data import Data, Known
from counterprobe.discovery.compressed.fitting import (
    CLEAN,
    RANK,
    SQUARES,
    fit,
    list_probes,
    new_scratch,
)
from counterprobe.discovery.compressed.search import PAIR_LIST, search_neighbourhoods

TOLERANCE = 1e-6
MOST = 8


class Searched:
    """What a search leaves for some readouts; members beyond the count are not looked at."""

    def __init__(
        self,
        data: Data,
        shortlist,
        known: Known,
        *,
        price: float | np.ndarray = 9.0,
        readouts=(0,),
        tolerance: float = TOLERANCE,
        spare: int = 8,
        most: int = MOST,
    ):
        listed = np.atleast_2d(np.array(shortlist, dtype=np.int64))
        self.members = np.full((len(data.choices), most), -7)
        self.count = np.full(len(data.choices), -7)
        self.explained = search_neighbourhoods(
            np.array(readouts),
            data,
            listed,
            np.broadcast_to(np.float64(price), listed.shape).copy(),
            known,
            np.full(len(readouts), tolerance),
            spare,
            self.members,
            self.count,
        )
        assert self.explained.dtype == np.bool_ and len(self.explained) == len(readouts)

    def found(self, j: int = 0) -> list[int]:
        return sorted(self.members[j, : self.count[j]].tolist())


def everyone(length: int, j: int = 0) -> list[int]:
    return [i for i in range(length) if i != j]


def gain_of(data: Data, j: int, sources: list[int], tolerance: float = TOLERANCE) -> float:
    """Return the log-likelihood that sources gain over none, on the probes that show them."""
    scratch = new_scratch(data.num_probes, data.logs.shape[2])
    nobody = np.empty(0, dtype=np.int64)
    terms = np.empty((0, int(data.num_choices.max()), data.logs.shape[2]))
    list_probes(data, j, scratch)
    more = np.array(sources, dtype=np.int64)
    fit(data, j, more, nobody, nobody, terms, False, scratch)
    spare = scratch.outcome[CLEAN] - scratch.outcome[RANK]
    floor = (0.1 * tolerance) ** 2
    after = max(scratch.outcome[SQUARES] / spare, floor)
    fit(data, j, nobody, more, nobody, terms, False, scratch)
    before = scratch.outcome[SQUARES] / (scratch.outcome[CLEAN] - scratch.outcome[RANK])
    return 0.5 * spare * math.log(max(before, floor) / after)


# ----- Finding --------------------------------------------------------------------------------


@pytest.mark.parametrize("truth", [[], [4], [2, 7], [1, 5, 8]])
@pytest.mark.parametrize("num_choices", [2, 3, 5])
def test_the_true_neighbours_are_found(additive, nothing_known, truth, num_choices):
    made = additive(10, 400, {0: truth}, num_choices=num_choices, seed=len(truth))
    searched = Searched(made.data, everyone(10), nothing_known(1, made.data))
    assert searched.explained.tolist() == [True]
    assert searched.found() == truth


def test_positions_with_different_numbers_of_choices(additive, nothing_known):
    made = additive(6, 300, {0: [1, 3, 4]}, num_choices=[3, 6, 2, 2, 4, 3], seed=2)
    searched = Searched(made.data, everyone(6), nothing_known(1, made.data))
    assert searched.explained[0]
    assert searched.found() == [1, 3, 4]


def test_noise_below_the_tolerance_is_explained_and_noise_above_is_not(additive, nothing_known):
    made = additive(6, 150, {0: [2, 3]}, noise=1e-4, seed=3)
    for tolerance, explained in ((1e-3, True), (1e-6, False)):
        searched = Searched(
            made.data, everyone(6), nothing_known(1, made.data), tolerance=tolerance
        )
        assert searched.explained[0] == explained
        assert {2, 3} <= set(searched.found())


def test_an_isolated_readout_is_explained_by_nobody(additive, nothing_known):
    made = additive(6, 60, {}, seed=4)
    searched = Searched(made.data, everyone(6), nothing_known(1, made.data))
    assert searched.explained[0]
    assert searched.count[0] == 0


def test_a_neighbour_that_is_not_listed_is_not_found(additive, nothing_known):
    made = additive(6, 150, {0: [2, 3]}, seed=5)
    searched = Searched(made.data, [3, 4, -1, 5], nothing_known(1, made.data))
    assert not searched.explained[0]
    assert 2 not in searched.found()


@pytest.mark.parametrize("shortlist", [[-1, -1, -1], [-1]])
def test_an_empty_list_leaves_a_neighbour_unexplained(additive, nothing_known, shortlist):
    made = additive(4, 60, {0: [2]}, seed=6)
    searched = Searched(made.data, shortlist, nothing_known(1, made.data))
    assert not searched.explained[0]
    assert searched.count[0] == 0


def test_known_neighbours_are_not_named_again(additive, nothing_known):
    made = additive(7, 200, {0: [2, 4, 5]}, seed=8)
    terms = np.stack([made.terms[0, 4], made.terms[0, 2]])
    known = Known(np.array([0, 2]), np.array([4, 2]), terms)
    searched = Searched(made.data, everyone(7), known)
    assert searched.explained[0]
    assert searched.found() == [5]
    wrong = Searched(made.data, [1, 3, 5, 6], known._replace(terms=terms[::-1].copy()))
    assert not wrong.explained[0]


# ----- Pairs ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_pair_of_which_neither_helps_alone_is_found(additive, nothing_known):
    made = additive(8, 90, {0: [3, 6]}, num_choices=2, seed=9)
    price = 40.0
    assert max(gain_of(made.data, 0, [i]) for i in everyone(8)) < price
    assert gain_of(made.data, 0, [3, 6]) > 2 * price
    searched = Searched(made.data, everyone(8), nothing_known(1, made.data), price=price)
    assert searched.explained[0]
    assert searched.found() == [3, 6]


def test_pairs_are_tried_among_the_first_of_the_list_only(additive, nothing_known):
    length = PAIR_LIST + 4
    made = additive(length, 90, {0: [1, 2]}, num_choices=2, seed=10)
    price = 40.0
    assert max(gain_of(made.data, 0, [i]) for i in everyone(length)) < price
    assert gain_of(made.data, 0, [1, 2]) > 2 * price
    others = list(range(3, PAIR_LIST + 2))
    late = Searched(made.data, [1, *others, 2], nothing_known(1, made.data), price=price)
    early = Searched(made.data, [1, *others[:-1], 2], nothing_known(1, made.data), price=price)
    assert not late.explained[0]
    assert early.explained[0]
    assert early.found() == [1, 2]


def test_of_three_that_only_help_together_none_is_taken(additive, nothing_known):
    made = additive(6, 120, {0: [1, 2, 3]}, num_choices=2, mask_rate=0.2, seed=11)
    price = 60.0
    pairs = [[1, 2], [1, 3], [2, 3]]
    assert max(gain_of(made.data, 0, pair) for pair in pairs) < 2 * price
    searched = Searched(made.data, everyone(6), nothing_known(1, made.data), price=price)
    assert not searched.explained[0]
    assert searched.found() == []


# ----- Prices, room and spare -----------------------------------------------------------------


@pytest.mark.parametrize(("share", "taken"), [(0.999, True), (1.001, False)])
def test_a_source_is_taken_when_it_gains_its_price(additive, nothing_known, share, taken):
    made = additive(4, 120, {0: [1, 2]}, seed=12)
    gain = gain_of(made.data, 0, [1])
    assert gain > 1
    searched = Searched(made.data, [1], nothing_known(1, made.data), price=share * gain)
    assert searched.found() == ([1] if taken else [])
    assert not searched.explained[0]


def test_too_few_spare_probes_explain_nothing(additive, nothing_known):
    made = additive(3, 100, {0: [1]}, num_choices=3, seed=13)
    clean = int(((made.data.weight[0] > 0) & (made.data.choices[1] >= 0)).sum())
    known = nothing_known(1, made.data)
    enough = Searched(made.data, [1, 2], known, price=2.0, spare=clean - 3)
    too_few = Searched(made.data, [1, 2], known, price=2.0, spare=clean - 2)
    assert enough.explained[0]
    assert enough.found() == [1]
    assert not too_few.explained[0]


def test_saturated_rows_are_no_spare_probes(additive, make_data, nothing_known):
    made = additive(3, 60, {0: [1]}, seed=14)
    dim = np.full((3, 60), 1e-6)
    data = make_data(
        made.data.choices, made.data.logs, made.data.num_choices, weight=dim, least_weight=1e-4
    )
    assert Searched(made.data, [1, 2], nothing_known(1, made.data)).explained[0]
    assert not Searched(data, [1, 2], nothing_known(1, data)).explained[0]


def test_no_more_members_than_there_is_room_for(additive, nothing_known):
    made = additive(6, 400, {0: [1, 2, 3]}, num_choices=2, seed=16)
    known = nothing_known(1, made.data)
    narrow = Searched(made.data, everyone(6), known, most=2)
    assert not narrow.explained[0]
    assert narrow.count[0] == 2
    assert Searched(made.data, everyone(6), known, most=3).explained[0]


def test_no_pair_is_taken_where_there_is_room_for_one(additive, nothing_known):
    # One neighbour helps by itself; the other two only together.
    made = additive(6, 160, {0: [1, 2, 3]}, num_choices=2, mask_rate=0.2, seed=21)
    known = nothing_known(1, made.data)
    price = np.array([[1.0, 60.0, 60.0]])
    roomy = Searched(made.data, [1, 2, 3], known, price=price, most=3)
    assert roomy.explained[0]
    assert roomy.found() == [1, 2, 3]
    assert max(gain_of(made.data, 0, [1, i]) for i in (2, 3)) < 60
    narrow = Searched(made.data, [1, 2, 3], known, price=price, most=2)
    assert not narrow.explained[0]
    assert narrow.found() == [1]


def test_more_parameters_than_a_fit_holds_are_not_tried(additive, nothing_known):
    made = additive(4, 500, {0: [1, 2]}, num_choices=[2, 130, 130, 2], mask_rate=0.1, seed=17)
    searched = Searched(made.data, [1, 2, 3], nothing_known(1, made.data), price=1.0)
    assert not searched.explained[0]
    assert len({1, 2} & set(searched.found())) <= 1


# ----- Idle members ---------------------------------------------------------------------------


def test_a_stand_in_is_dropped_once_the_true_neighbours_are_in(make_data, nothing_known):
    rng = np.random.default_rng(18)
    num_probes = 120
    choices = rng.integers(0, 2, size=(5, num_probes))
    # Position 3 mostly shows how many of 1 and 2 show choice 1: alone it tells more than either.
    is_right = rng.random(num_probes) < 0.8
    choices[3] = np.where(is_right, choices[1] + choices[2], rng.integers(0, 3, size=num_probes))
    choices[0] = -1
    logs = np.zeros((5, num_probes, 2))
    logs[0, :, 0] = choices[1] + 1.01 * choices[2]
    data = make_data(choices, logs, [2, 2, 2, 3, 2])
    assert gain_of(data, 0, [3]) - 5 > max(gain_of(data, 0, [1]), gain_of(data, 0, [2]))
    searched = Searched(data, [1, 2, 3, 4], nothing_known(1, data), price=1.0)
    assert searched.explained[0]
    assert searched.found() == [1, 2]


@pytest.mark.parametrize(("effect", "found"), [(1e-4, [1, 2]), (1e-2, [1, 2, 3])])
def test_only_what_the_tolerance_needs_stays(make_data, nothing_known, effect, found):
    rng = np.random.default_rng(19)
    choices = rng.integers(0, 2, size=(5, 80))
    choices[0] = -1
    logs = np.zeros((5, 80, 2))
    logs[0, :, 0] = choices[1] - 0.7 * choices[2] + effect * choices[3]
    data = make_data(choices, logs, np.full(5, 2))
    searched = Searched(data, [3, 4, 1, 2], nothing_known(1, data), tolerance=1e-3)
    assert searched.explained[0]
    assert searched.found() == found


# ----- Many readouts --------------------------------------------------------------------------


def test_many_readouts_are_searched_apart(additive, nothing_known, thread_limit):
    rng = np.random.default_rng(20)
    neighbours = {
        j: sorted(rng.choice(everyone(24, j), size=j % 4, replace=False).tolist())
        for j in range(24)
    }
    made = additive(24, 500, neighbours, mask_rate=0.2, seed=20)
    readouts = rng.permutation(24)[:20]
    lists = np.array([rng.permutation(everyone(24, j)) for j in readouts])
    known = nothing_known(20, made.data)
    searched = Searched(made.data, lists, known, readouts=readouts)
    assert searched.explained.all()
    for j in readouts:
        assert searched.found(j) == neighbours[j]
    left_out = np.setdiff1d(np.arange(24), readouts)
    assert (searched.count[left_out] == -7).all()
    assert (searched.members[left_out] == -7).all()
    thread_limit(1)
    alone = Searched(made.data, lists, known, readouts=readouts)
    np.testing.assert_array_equal(searched.members, alone.members)
    np.testing.assert_array_equal(searched.count, alone.count)
