"""Balanced choices, independent masks, sides, code words and steering."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.banks import Banks
from counterprobe.discovery.compressed.columns import Columns
from counterprobe.discovery.compressed.data import Known
from counterprobe.discovery.compressed.design import (
    balanced_choices,
    code_length,
    code_words,
    independent_masks,
    sides,
    steer,
)
from counterprobe.graph import components

NO_EDGES = np.empty((0, 2), dtype=np.int64)


def random_forest(length: int, rng: np.random.Generator, keep: float = 0.8) -> np.ndarray:
    """Return the edges of a relabelled random recursive tree, some of them removed."""
    label = rng.permutation(length)
    edges = [(label[i], label[rng.integers(i)]) for i in range(1, length) if rng.random() < keep]
    return np.array(edges, dtype=np.int64).reshape(-1, 2)


# ----- Choices --------------------------------------------------------------------------------


@pytest.mark.parametrize("num_choices", [[1], [2], [5, 5, 5], [1, 2, 3, 4, 5, 7], [8, 1, 8, 3]])
@pytest.mark.parametrize("num_probes", [0, 1, 7, 16, 33])
def test_every_choice_is_shown_in_each_run_of_k_probes(num_choices, num_probes):
    counts = np.array(num_choices)
    choices = balanced_choices(num_probes, counts, np.random.default_rng(num_probes))
    assert choices.shape == (num_probes, len(counts))
    most = counts.max()
    for low in range(0, num_probes - most + 1, most):
        for i, size in enumerate(counts):
            shown = np.bincount(choices[low : low + most, i], minlength=size)
            assert len(shown) == size  # no choice that the position does not have
            assert set(shown) <= {most // size, math.ceil(most / size)}


def test_a_last_run_cut_short_repeats_nothing():
    choices = balanced_choices(5 + 3, np.full(50, 5), np.random.default_rng(1))
    for i in range(50):
        assert len(set(choices[5:, i])) == 3


@pytest.mark.statistical
def test_orders_of_choices_are_uniform(seed_of, chi_square, false_alarms):
    """6,000 positions see an order drawn 15% too often or too rarely."""
    choices = balanced_choices(3, np.full(6000, 3), np.random.default_rng(seed_of(81)))
    orders = list(itertools.permutations(range(3)))
    counts = [int((choices.T == order).all(axis=1).sum()) for order in orders]
    assert chi_square(counts, np.full(6, 1 / 6)) > false_alarms
    # Shifts of one order only, which are balanced too, are caught.
    shifted = (np.arange(3)[:, None] + choices[0]) % 3
    counts = [int((shifted.T == order).all(axis=1).sum()) for order in orders]
    assert chi_square(counts, np.full(6, 1 / 6)) < false_alarms


# ----- Masks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_masks_are_independent_and_leave_no_urgent_position_out_for_another(seed):
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, 60))
    edges = random_forest(length, rng)
    if length > 4:  # candidate graphs need not be forests
        edges = np.vstack([edges, [[0, 1], [1, 2], [2, 0]]])
        edges = np.unique(np.sort(edges, axis=1), axis=0)
    urgent = rng.random(length) < 0.3
    masked = independent_masks(20, edges, np.ones(length), urgent, rng)
    assert not (masked[:, edges[:, 0]] & masked[:, edges[:, 1]]).any()
    for probe in masked:
        for i in np.flatnonzero(~probe):
            ends = edges[(edges == i).any(axis=1)]
            others = ends[ends != i]
            # At rate one a position is left out only for a masked neighbour, an urgent one only
            # for an urgent neighbour.
            assert probe[others].any()
            if urgent[i]:
                assert (probe[others] & urgent[others]).any()


def test_urgent_positions_go_before_their_neighbours():
    star = np.array([[0, i] for i in range(1, 30)])
    for hub_is_urgent in (True, False):
        urgent = np.zeros(30, dtype=np.bool_)
        urgent[0] = hub_is_urgent
        urgent[1:] = not hub_is_urgent
        masked = independent_masks(8, star, np.ones(30), urgent, np.random.default_rng(3))
        assert (masked == urgent).all()


def test_neighbours_that_are_equally_urgent_come_first_in_turn():
    # A path of three at rate one: the middle comes first a third of the time, or both ends.
    path = np.array([[0, 1], [1, 2]])
    for urgent in (np.zeros(3, bool), np.ones(3, bool)):
        masked = independent_masks(600, path, np.ones(3), urgent, np.random.default_rng(6))
        assert set(map(tuple, masked.tolist())) == {(True, False, True), (False, True, False)}
        assert abs(masked[:, 1].mean() - 1 / 3) < 0.08


def test_a_position_that_is_not_wanted_blocks_nobody():
    pair = np.array([[0, 1]])
    first = np.array([True, False])
    masked = independent_masks(5, pair, np.array([0.0, 1.0]), first, np.random.default_rng(4))
    assert (masked == [False, True]).all()


@pytest.mark.statistical
def test_isolated_positions_are_masked_at_their_rate(seed_of, chi_square, false_alarms):
    """4,000 probes of five positions see a rate that is off by 0.1."""
    rng = np.random.default_rng(seed_of(82))
    rate = np.array([0.1, 0.33, 0.5, 0.5, 0.85])
    urgent = np.array([True, False, True, False, False])
    counts = independent_masks(4000, NO_EDGES, rate, urgent, rng).sum(axis=0)
    level = false_alarms / len(rate)
    for count, p in zip(counts, rate, strict=True):
        assert chi_square([count, 4000 - count], [p, 1 - p]) > level
        assert chi_square([count, 4000 - count], [p + 0.1, 0.9 - p]) < level


# ----- Sides ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_sides_split_every_edge_of_a_forest(seed):
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, 80))
    edges = random_forest(length, rng)
    label, side = sides(length, edges)
    assert label.tolist() == components(length, edges).tolist()
    assert (side[edges[:, 0]] != side[edges[:, 1]]).all()
    assert side.dtype == np.bool_


def test_sides_of_nothing_and_of_isolated_positions():
    label, side = sides(3, NO_EDGES)
    assert sorted(label.tolist()) == [0, 1, 2]
    assert len(set(side.tolist())) == 1
    assert sides(0, NO_EDGES)[1].shape == (0,)


def test_sides_of_an_even_cycle_and_an_odd_one():
    square = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    assert (np.diff(sides(4, square)[1][square].astype(int), axis=1) != 0).all()
    triangle = np.array([[0, 1], [1, 2], [2, 0]])
    label, side = sides(3, triangle)
    assert label.tolist() == [0, 0, 0]
    assert (side[triangle[:, 0]] == side[triangle[:, 1]]).sum() == 1


# ----- Code words -----------------------------------------------------------------------------

# There are 1, 1, 3, 4, 10, 15, 35, 56, 126, 210, 462, 792 and 1716 words of lengths 2 to 14.
LENGTHS = {0: 2, 1: 2, 2: 4, 3: 4, 4: 5, 5: 6, 10: 6, 11: 7, 35: 8, 36: 9, 57: 10, 1000: 14}


@pytest.mark.parametrize(("count", "length"), LENGTHS.items())
def test_code_words_are_as_short_as_they_can_be(count, length):
    assert code_length(count) == length
    words = code_words(count, np.random.default_rng(count))
    assert words.shape == (count, length)
    assert words.dtype == np.bool_
    assert (words.sum(axis=1) == length // 2).all()


@pytest.mark.parametrize("count", [1, 2, 3, 10, 35, 36, 200, 1000])
@pytest.mark.parametrize("seed", range(2))
def test_any_two_words_are_told_apart_both_ways_and_so_are_complements(count, seed):
    words = code_words(count, np.random.default_rng(seed)).astype(np.int64)
    apart = ~np.eye(count, dtype=np.bool_)
    both = words @ words.T  # in how many places both have a one
    first_only = words @ (1 - words).T
    neither = (1 - words) @ (1 - words).T
    for places in (both, first_only, first_only.T, neither):
        assert (places[apart] > 0).all()


def test_all_words_of_a_length_are_used_when_they_are_needed():
    words = code_words(35, np.random.default_rng(1))
    # One of each complementary pair of the 70 words of length 8 and weight 4.
    assert len({min(tuple(word), tuple(~word)) for word in words}) == 35


# ----- Steering -------------------------------------------------------------------------------


def steering_columns(num_choices: list[int]) -> Columns:
    """Return columns over a small vocabulary with the stated numbers of choices."""
    length, vocab_size = len(num_choices), max(num_choices)
    start = vocab_size * np.arange(length + 1)
    tokens = np.tile(np.arange(vocab_size), length)
    zeros = np.zeros(length, dtype=np.int64)
    columns = Columns.of(
        Banks(0.0, start, tokens, zeros, zeros.copy(), vocab_size),
        np.arange(length),
        cp.rows.DenseRows(np.full((length, vocab_size), 1 / vocab_size)),
    )
    return dataclasses.replace(columns, num_choices=np.array(num_choices))


class Hubs:
    """Hubs 0 and 1 over two tokens; each leaf pulls its hub towards the token it shows."""

    def __init__(self, leaves: int = 20, pull: float = 1.0):
        self.length = 2 + 2 * leaves
        self.leaves = np.arange(2, self.length).reshape(2, leaves)
        self.columns = steering_columns([2] * self.length)
        terms = np.array([[pull, -pull], [-pull, pull]])
        self.known = Known(
            np.array([0, leaves, 2 * leaves]),
            self.leaves.ravel(),
            np.tile(terms, (2 * leaves, 1, 1)),
        )
        self.constant = np.zeros((2, 2))
        self.readouts = np.array([0, 1])

    def spread(self, choices: np.ndarray) -> np.ndarray:
        """Return the spread of each hub's log-row in each probe, shape (B, 2)."""
        log_rows = self.constant + np.stack(
            [
                self.known.terms[k0:k1][
                    np.arange(k1 - k0), choices[:, self.known.position[k0:k1]]
                ].sum(axis=1)
                for k0, k1 in itertools.pairwise(self.known.start)
            ],
            axis=1,
        )
        return log_rows.max(axis=2) - log_rows.min(axis=2)

    def steer(self, masked: np.ndarray, choices: np.ndarray, widest: float = 6.0, seed: int = 0):
        """Return a steered copy."""
        steered = choices.copy()
        rng = np.random.default_rng(seed)
        steer(
            masked,
            steered,
            self.readouts,
            self.known,
            self.constant,
            self.columns,
            widest,
            rng,
        )
        return steered

    def masks(self, num_probes: int) -> np.ndarray:
        masked = np.zeros((num_probes, self.length), dtype=np.bool_)
        masked[:, :2] = True
        return masked


def test_steering_narrows_a_saturated_hub_and_stops_there():
    hubs = Hubs()
    choices = np.zeros((4, hubs.length), dtype=np.int64)  # all leaves at one token: spread 40
    steered = hubs.steer(hubs.masks(4), choices)
    assert (hubs.spread(choices) == 40).all()
    # Each leaf that turns takes 4 off: nine of them do.
    assert (hubs.spread(steered) == 4).all()
    assert ((steered != choices).sum(axis=1) == 2 * 9).all()


@pytest.mark.parametrize("seed", range(4))
def test_steering_leaves_everything_else_alone(seed):
    hubs = Hubs()
    rng = np.random.default_rng(seed)
    choices = rng.integers(0, 2, size=(40, hubs.length))
    choices[:20, hubs.leaves[0]] = 0
    masked = hubs.masks(40)
    masked[::2, 1] = False
    steered = hubs.steer(masked, choices, widest=10.0)
    assert (steered[:, :2] == choices[:, :2]).all()  # the hubs' own
    wide = hubs.spread(choices) > 10
    assert (hubs.spread(steered)[masked[:, :2]] <= 10).all()
    for h in range(2):
        changed = (steered != choices)[:, hubs.leaves[h]].any(axis=1)
        assert (changed == (wide[:, h] & masked[:, h])).all()
    assert wide[:20, 0].all()
    assert not wide[20:, 0].all()


def test_steering_counts_the_constant_of_a_row():
    hubs = Hubs(leaves=6)
    balanced = np.tile(np.arange(hubs.length) % 2, (3, 1))
    assert (hubs.steer(hubs.masks(3), balanced) == balanced).all()
    hubs.constant = np.array([[0.0, 0.0], [5.0, -5.0]])
    steered = hubs.steer(hubs.masks(3), balanced)
    assert (steered[:, hubs.leaves[0]] == balanced[:, hubs.leaves[0]]).all()
    assert (hubs.spread(steered)[:, 1] <= 6).all()
    # What pulls against the constant is what more leaves show now.
    assert (steered[:, hubs.leaves[1]] == 1).sum() > (balanced[:, hubs.leaves[1]] == 1).sum()


def test_what_cannot_be_narrowed_is_narrowed_as_far_as_possible():
    hubs = Hubs(leaves=3)
    hubs.constant = np.array([[20.0, -20.0], [0.0, 0.0]])
    choices = np.zeros((2, hubs.length), dtype=np.int64)
    steered = hubs.steer(hubs.masks(2), choices)
    assert (steered[:, hubs.leaves[0]] == 1).all()
    assert (hubs.spread(steered)[:, 0] == 40 - 6).all()


def test_steering_only_uses_choices_that_a_position_has():
    # Leaf 1 has one choice; leaf 2 would do best with a third, which it has not.
    terms = np.array([[[9.0, -9.0], [8.0, -8.0], [-9.0, 9.0]]] * 2)
    choices = np.zeros((1, 3), dtype=np.int64)
    steer(
        np.array([[True, False, False]]),
        choices,
        np.array([0]),
        Known(np.array([0, 2]), np.array([1, 2]), terms),
        np.zeros((1, 2)),
        steering_columns([3, 1, 2]),
        1.0,
        np.random.default_rng(0),
    )
    assert choices.tolist() == [[0, 0, 1]]


def test_nothing_known_is_nothing_to_steer():
    columns = steering_columns([2, 2])
    choices = np.array([[0, 1]])
    known = Known(np.zeros(2, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty((0, 2, 2)))
    steer(
        np.ones((1, 2), dtype=np.bool_),
        choices,
        np.array([0]),
        known,
        np.full((1, 2), [50.0, -50.0]),
        columns,
        6.0,
        np.random.default_rng(0),
    )
    assert choices.tolist() == [[0, 1]]
