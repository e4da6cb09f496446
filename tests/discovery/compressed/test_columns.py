"""Columns: bank tokens and tail groups, and how choices meet the coordinates of rows."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.banks import Banks
from counterprobe.discovery.compressed.columns import (
    MOST_BANK_TOKENS,
    Columns,
    default_thresholds,
)
from counterprobe.run import Preprocess


def banks_of(lists: list[list[int]], vocab_size: int) -> Banks:
    """Return banks with the given tokens; the likeliest token plays no part here."""
    start = np.concatenate([[0], np.cumsum([len(bank) for bank in lists])]).astype(np.int64)
    tokens = np.array([token for bank in lists for token in bank], dtype=np.int64)
    outside = [sorted(set(range(vocab_size)) - set(bank)) for bank in lists]
    tail = np.array([tokens[0] if tokens else 0 for tokens in outside], dtype=np.int64)
    return Banks(0.1, start, tokens, tail, np.zeros(len(lists), dtype=np.int64), vocab_size)


def dense_columns(lists: list[list[int]], vocab_size: int) -> Columns:
    rows = cp.rows.DenseRows(np.full((len(lists), vocab_size), 1 / vocab_size))
    return Columns.of(banks_of(lists, vocab_size), np.arange(len(lists)), rows)


def classed_columns(lists: list[list[int]], classes: cp.classes.TokenClasses) -> Columns:
    masses = np.full((len(lists), classes.num_classes), 1 / classes.num_classes)
    rows = cp.rows.ClassedRows(masses, classes, np.arange(len(lists)))
    return Columns.of(banks_of(lists, classes.vocab_size), np.arange(len(lists)), rows)


def random_columns(seed: int, kind: str) -> tuple[Columns, list[list[int]], np.ndarray]:
    """Return columns over random banks, the banks, and the group of every (position, token)."""
    rng = np.random.default_rng(seed)
    length, vocab_size = int(rng.integers(1, 8)), int(rng.integers(1, 9))
    lists = [
        np.flatnonzero(rng.random(vocab_size) < rng.choice([0.0, 0.3, 0.7, 1.0])).tolist()
        for _ in range(length)
    ]
    if kind == "dense":
        group = np.zeros((length, vocab_size), dtype=np.int64)
        return dense_columns(lists, vocab_size), lists, group
    num_classes = int(rng.integers(1, vocab_size + 1))
    maps = [
        rng.permutation(np.concatenate([np.arange(num_classes), extra]))
        for extra in rng.integers(0, num_classes, size=(2, vocab_size - num_classes))
    ]
    classes = cp.classes.TokenClasses.build(length, maps, kind=rng.integers(0, 2, size=length))
    group = classes.token_class[classes.kind]
    return classed_columns(lists, classes), lists, group


RANDOM = [(seed, kind) for seed in range(12) for kind in ("dense", "classed")]


# ----- By hand --------------------------------------------------------------------------------


def test_dense_rows_have_one_tail_group():
    columns = dense_columns([[1, 3], [0], []], 5)
    assert columns.num_choices.tolist() == [3, 2, 1]
    assert columns.width == 3
    assert columns.tail_group.tolist() == [[-1, -1, 0], [-1, 0, -1], [0, -1, -1]]
    # A tail of several tokens belongs to no single token of a row.
    assert columns.coordinate_of_choice.tolist() == [[1, 3, -1], [0, -1, -1], [-1, -1, -1]]
    assert columns.choice_of_coordinate.tolist() == [
        [-1, 0, -1, 1, -1],
        [0, -1, -1, -1, -1],
        [-1] * 5,
    ]


def test_classed_rows_have_a_tail_group_for_each_class_with_tokens_left():
    # Kind 0: class 0 = {0, 1}, class 1 = {2}, class 2 = {3, 4}; kind 1 turns them round.
    classes = cp.classes.TokenClasses.build(3, [[0, 0, 1, 2, 2], [2, 2, 1, 0, 0]], kind=[0, 1, 0])
    columns = classed_columns([[0, 2], [0, 1], []], classes)
    # Position 0 has its class 1 wholly in the bank, position 1 its class 2.
    assert columns.num_choices.tolist() == [4, 4, 3]
    assert columns.tail_group.tolist() == [[-1, -1, 0, 2], [-1, -1, 0, 1], [0, 1, 2, -1]]
    assert columns.coordinate_of_choice.tolist() == [[0, 1, 0, 2], [2, 2, 0, 1], [0, 1, 2, -1]]
    shown = columns.show(np.array([[2, 2, 1], [3, 3, 0]]), np.zeros((2, 3)))
    assert shown.tolist() == [[1, 3, 2], [3, 2, 0]]


def test_a_tail_of_one_token_is_that_coordinate():
    columns = dense_columns([[0, 2], [1]], 3)
    assert columns.coordinate_of_choice.tolist() == [[0, 2, 1], [1, -1, -1]]
    assert columns.choice_of_coordinate.tolist() == [[0, 2, 1], [-1, 0, -1]]


def test_a_bank_that_covers_the_vocabulary_has_no_tail():
    columns = dense_columns([[0, 1, 2]] * 2, 3)
    assert columns.num_choices.tolist() == [3, 3]
    assert (columns.tail_group == -1).all()
    assert columns.choice_of_coordinate.tolist() == [[0, 1, 2]] * 2
    choice = np.array([[0, 1], [2, 0]])
    assert columns.show(choice, np.full((2, 2), 0.9)).tolist() == choice.tolist()


@pytest.mark.parametrize("bank", [[], [0]])
def test_one_token_is_one_choice(bank):
    columns = dense_columns([bank], 1)
    assert columns.num_choices.tolist() == [1]
    assert columns.choice_of_coordinate.tolist() == [[0]]
    assert (
        columns.show(np.zeros((3, 1), dtype=np.int64), np.full((3, 1), 0.5)).tolist() == [[0]] * 3
    )


def test_empty_banks_show_the_whole_vocabulary():
    columns = dense_columns([[]], 4)
    assert columns.num_choices.tolist() == [1]
    uniforms = np.array([[0.0], [0.26], [0.74], [np.nextafter(1, 0)]])
    assert columns.show(np.zeros((4, 1), dtype=np.int64), uniforms).ravel().tolist() == [
        0,
        1,
        2,
        3,
    ]


# ----- Against a plain reading ----------------------------------------------------------------


@pytest.mark.parametrize(("seed", "kind"), RANDOM)
def test_choices_are_the_bank_and_then_the_groups_that_are_left(seed, kind):
    columns, lists, group = random_columns(seed, kind)
    for i, bank in enumerate(lists):
        left = sorted({int(group[i, v]) for v in range(group.shape[1]) if v not in bank})
        assert columns.num_choices[i] == len(bank) + len(left)
        padding = [-1] * (columns.width - columns.num_choices[i])
        assert columns.tail_group[i].tolist() == [-1] * len(bank) + left + padding


@pytest.mark.parametrize(("seed", "kind"), RANDOM)
def test_every_token_is_shown_by_one_choice(seed, kind):
    columns, lists, group = random_columns(seed, kind)
    vocab_size = group.shape[1]
    uniforms = np.tile((np.arange(4 * vocab_size) + 0.5)[:, None] / (4 * vocab_size), len(lists))
    shown: list[list[int]] = [[] for _ in lists]
    for a in range(columns.width):
        choice = np.tile(np.minimum(a, columns.num_choices - 1), (len(uniforms), 1))
        tokens = columns.show(choice, uniforms)
        for i, bank in enumerate(lists):
            if a < columns.num_choices[i]:
                seen = set(tokens[:, i].tolist())
                shown[i] += seen
                if a >= len(bank):
                    assert not seen & set(bank)
                    assert {group[i, v] for v in seen} == {columns.tail_group[i, a]}
    assert [sorted(tokens) for tokens in shown] == [list(range(vocab_size))] * len(lists)


@pytest.mark.parametrize(("seed", "kind"), RANDOM)
def test_coordinates_and_choices_are_inverse_where_defined(seed, kind):
    columns, lists, group = random_columns(seed, kind)
    num_coordinates = columns.choice_of_coordinate.shape[1]
    assert num_coordinates == (group.max() + 1 if kind == "classed" else group.shape[1])
    for i in range(len(lists)):
        coordinates = columns.coordinate_of_choice[i, : columns.num_choices[i]].tolist()
        assert (columns.coordinate_of_choice[i, columns.num_choices[i] :] == -1).all()
        for c in range(num_coordinates):
            a = columns.choice_of_coordinate[i, c]
            assert (a >= 0) == (c in coordinates)
            if a >= 0:
                assert coordinates[a] == c
        if kind == "classed":  # every choice shows one class, and every class is shown
            assert set(coordinates) == set(range(num_coordinates))


@pytest.mark.parametrize(("seed", "kind"), RANDOM)
def test_each_showing_picks_by_its_own_uniform(seed, kind):
    columns, lists, group = random_columns(seed, kind)
    rng = np.random.default_rng(seed)
    choice = rng.integers(0, columns.num_choices, size=(40, len(lists)))
    uniforms = rng.random(choice.shape)
    tokens = columns.show(choice, uniforms)
    for b, i in np.ndindex(choice.shape):
        bank, a = lists[i], choice[b, i]
        if a < len(bank):
            assert tokens[b, i] == bank[a]
        else:
            wanted = columns.tail_group[i, a]
            tail = [v for v in range(group.shape[1]) if v not in bank and group[i, v] == wanted]
            assert tokens[b, i] == tail[int(uniforms[b, i] * len(tail))]


@pytest.mark.parametrize(("seed", "kind"), RANDOM)
def test_what_a_choice_shows_belongs_to_its_coordinate(seed, kind):
    columns, lists, group = random_columns(seed, kind)
    rng = np.random.default_rng(seed)
    choice = rng.integers(0, columns.num_choices, size=(50, len(lists)))
    tokens = columns.show(choice, rng.random(choice.shape))
    where = np.arange(len(lists))
    coordinate = columns.coordinate_of_choice[where, choice]
    known = coordinate >= 0
    belongs = tokens if kind == "dense" else group[where, tokens]
    assert (belongs == coordinate)[known].all()
    assert known.all() or kind == "dense"


# ----- Fresh tail tokens ----------------------------------------------------------------------

# Bank tokens at both ends and inside a group, next to each other and apart.
TAILS = {
    "dense": ([0, 4, 5, 11], 12, None),
    "first class": ([0, 6, 7, 9, 21], 24, 0),
    "second class": ([1, 2, 10, 13], 24, 1),
}


@pytest.mark.statistical
@pytest.mark.parametrize("case", list(TAILS))
def test_tail_tokens_are_uniform_over_their_group(case, seed_of, chi_square, false_alarms):
    """20,000 draws over up to eight tokens see one shown a fifth too often."""
    bank, vocab_size, group = TAILS[case]
    classes = cp.classes.TokenClasses.build(1, np.arange(vocab_size) % 3)
    columns = (
        dense_columns([bank], vocab_size) if group is None else classed_columns([bank], classes)
    )
    choice = int(np.flatnonzero(columns.tail_group[0] == (group or 0))[0])
    rng = np.random.default_rng(seed_of(71))
    draws = 20_000
    tokens = columns.show(np.full((draws, 1), choice), rng.random((draws, 1)))
    inside = np.array(
        [v not in bank and (group is None or v % 3 == group) for v in range(vocab_size)]
    )
    counts = np.bincount(tokens[:, 0], minlength=vocab_size)
    level = false_alarms / len(TAILS)
    assert chi_square(counts, inside / inside.sum()) > level
    # The check rejects if one token takes a fifth of another's showings.
    first, second = np.flatnonzero(inside)[:2]
    moved = counts.copy()
    moved[first] += counts[second] // 5
    moved[second] -= counts[second] // 5
    assert chi_square(moved, inside / inside.sum()) < level


# ----- How many -------------------------------------------------------------------------------


def falling(vocab_size: int) -> np.ndarray:
    masses = 1.0 / np.arange(1, vocab_size + 1)
    return masses / masses.sum()


@pytest.mark.parametrize("vocab_size", [33, 300, 50_000])
@pytest.mark.parametrize("row_error", [1e-12, 1e-3, 0.1])
def test_dense_rows_have_a_bounded_number_of_columns(vocab_size, row_error):
    rows = cp.rows.DenseRows(np.tile(falling(vocab_size), (3, 1)))
    usual, threshold = default_thresholds(rows, row_error)
    assert threshold >= usual
    sizes = np.diff(rows.above(threshold - row_error)[0])
    assert 1 <= sizes.min() and sizes.max() <= MOST_BANK_TOKENS


def test_classed_rows_need_no_more_bank_tokens_than_classes():
    classes = cp.classes.TokenClasses.build(
        2, np.minimum(np.arange(50_000), 2), within=falling(50_000)
    )
    rows = cp.rows.ClassedRows(np.tile([0.2, 0.2, 0.6], (2, 1)), classes, np.arange(2))
    usual, threshold = default_thresholds(rows, 1e-12)
    assert usual == 4 / 50_000
    assert 2 <= np.diff(rows.above(threshold)[0]).max() <= 3


def test_the_candidates_of_the_hard_family_keep_their_columns():
    law = cp.families.hard_matching(16, target_seed=3)
    run = cp.run.Run(law.oracle())
    rows = run.do(Preprocess())
    usual, threshold = default_thresholds(rows, run.row_error)
    assert threshold == usual == 4 / 2048


@pytest.mark.parametrize(
    ("columns", "is_mixed"),
    [
        (dense_columns([[0, 1], [0]], 4), True),
        (dense_columns([[]], 2), True),
        (dense_columns([[0, 1], [2]], 3), True),
        (dense_columns([[0, 1, 2], [1, 2, 3]], 4), False),
        (dense_columns([[0, 1]], 2), False),
        (classed_columns([[0]], cp.classes.TokenClasses.build(1, [0, 1, 1, 1])), False),
    ],
    ids=["dense with a tail", "two tokens", "three", "a tail of one", "no tail", "classed"],
)
def test_only_dense_tails_may_hold_tokens_that_act_differently(columns, is_mixed):
    assert columns.has_mixed_tail == is_mixed
