"""Ranked sources against plain sums, and leftovers against numpy's singular vectors."""

import numpy as np
import pytest

from counterprobe.discovery.compressed.data import Data, Known
from counterprobe.discovery.compressed.ranking import (
    MOST_CONTRASTS,
    leftovers,
    rank_sources,
    rank_sources_plain,
)


def shown_data(make_data, length, num_probes, num_choices, seed, mask_rate=0.3) -> Data:
    """Return data with random choices; rankings do not look at log-rows."""
    rng = np.random.default_rng(seed)
    counts = np.broadcast_to(np.asarray(num_choices), length)
    choices = rng.integers(0, counts[:, None], size=(length, num_probes))
    choices[rng.random(choices.shape) < mask_rate] = -1
    return make_data(choices, np.zeros((length, num_probes, 1)), counts)


def random_left(num_readouts, num_probes, seed, empty=0.3) -> np.ndarray:
    """Return unit vectors, some entries of which are zero: probes that were not clean."""
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(num_readouts, num_probes))
    left[rng.random(left.shape) < empty] = 0.0
    norm = np.linalg.norm(left, axis=1, keepdims=True)
    return (left / np.where(norm > 0, norm, 1)).astype(np.float32)


def by_sums(left, readouts, data: Data, favour, size):
    """Rank by the between-choice sum of squares, a choice at a time."""
    top = np.full((len(readouts), size), -1)
    score = np.full((len(readouts), size), -1.0)
    for r, j in enumerate(readouts):
        value = np.zeros(len(data.choices))
        for i in range(len(value)):
            shown = data.choices[i, : data.num_probes]
            for a in range(data.num_choices[i]):
                here = left[r][(shown == a) & (left[r] != 0)].astype(np.float64)
                if len(here) > 1:
                    value[i] += favour[i] * here.sum() ** 2 / len(here)
        value[j] = 0.0
        best = np.argsort(-value, kind="stable")[:size]
        best = best[value[best] > 0]
        top[r, : len(best)], score[r, : len(best)] = best, value[best]
    return top, score


def contrast_score(left, shown, num_choices) -> float:
    """Return the sum of squared correlations with centred Helmert contrasts of one source."""
    revealed = shown >= 0
    total = 0.0
    for f in range(1, num_choices):
        contrast = np.where(shown < f, 1.0, np.where(shown == f, -float(f), 0.0))[revealed]
        contrast -= contrast.mean()
        norm = np.linalg.norm(contrast)
        if norm > 1e-9:
            total += (left[revealed].astype(np.float64) @ contrast / norm) ** 2
    return total


def assert_same_ranking(fast, plain) -> None:
    """Compare scores, and sources wherever single precision can tell their scores apart."""
    np.testing.assert_allclose(fast[1], plain[1], rtol=1e-4, atol=1e-6)
    gap = np.abs(np.diff(plain[1], axis=1, append=-1.0)) > 1e-5
    clear = gap & np.concatenate([np.ones_like(gap[:, :1]), gap[:, :-1]], axis=1)
    assert (fast[0] == plain[0])[clear].all()
    # Where there are fewer sources nobody is listed.
    np.testing.assert_array_equal(fast[0] == -1, plain[1] == -1)
    np.testing.assert_array_equal(plain[0] == -1, plain[1] == -1)
    assert clear.mean() > 0.5


# ----- Matrix products ------------------------------------------------------------------------


@pytest.mark.parametrize("num_choices", [2, 3, MOST_CONTRASTS])
@pytest.mark.parametrize("seed", range(3))
def test_products_and_plain_sums_agree(make_data, num_choices, seed):
    data = shown_data(make_data, 40, 60, num_choices, seed)
    readouts = np.random.default_rng(seed).permutation(40)[:25]
    left = random_left(25, 60, seed)
    call = left, readouts, data, np.ones(40), 6
    assert_same_ranking(rank_sources(*call), rank_sources_plain(*call))


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_squared_correlations_with_contrasts(make_data, seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, size=12)
    data = shown_data(make_data, 12, 25, counts, seed)  # few probes: choices are not balanced
    left = random_left(12, 25, seed)
    top, score = rank_sources(left, np.arange(12), data, np.ones(12), 11)
    for j in range(12):
        wanted = {i: contrast_score(left[j], data.choices[i], counts[i]) for i in range(12)}
        assert set(top[j]) - {-1} == {i for i in wanted if wanted[i] > 0} - {j}
        for i, value in zip(top[j], score[j], strict=True):
            assert i < 0 or value == pytest.approx(wanted[i], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_positions_with_fewer_choices_and_a_favour(make_data, seed):
    rng = np.random.default_rng(seed)
    data = shown_data(make_data, 30, 50, rng.integers(1, 6, size=30), seed)
    favour = rng.choice([0.3, 1.0], size=30)
    call = random_left(30, 50, seed), np.arange(30), data, favour, 8
    assert_same_ranking(rank_sources(*call), rank_sources_plain(*call))


@pytest.mark.parametrize("num_choices", [3, MOST_CONTRASTS + 1])
def test_a_short_list_is_filled_up_and_never_holds_the_readout(make_data, num_choices):
    data = shown_data(make_data, 5, 60, num_choices, 3)
    top, score = rank_sources(random_left(5, 60, 3), np.arange(5), data, np.ones(5), 9)
    for j in range(5):
        assert sorted(top[j, :4]) == [i for i in range(5) if i != j]
        assert (top[j, 4:] == -1).all()
        assert (score[j, 4:] == -1).all()
        assert (np.diff(score[j, :4]) <= 0).all()


@pytest.mark.parametrize("num_choices", [3, MOST_CONTRASTS + 1])
def test_nothing_left_ranks_nobody(make_data, num_choices):
    data = shown_data(make_data, 6, 20, num_choices, 4)
    top, _ = rank_sources(np.zeros((2, 20), np.float32), np.array([1, 4]), data, np.ones(6), 3)
    assert (top == -1).all()


@pytest.mark.parametrize("num_choices", [3, MOST_CONTRASTS + 1])
def test_a_source_without_favour_or_never_revealed_is_not_listed(make_data, num_choices):
    data = shown_data(make_data, 6, 80, num_choices, 5)
    data.choices[2] = -1
    favour = np.ones(6)
    favour[4] = 0.0
    top, _ = rank_sources(random_left(6, 80, 5), np.arange(6), data, favour, 5)
    assert not np.isin(top, [2, 4]).any()
    assert np.isin(top, [0, 1, 3, 5]).any()


@pytest.mark.parametrize("num_choices", [2, 3, 5])
def test_a_source_that_explains_everything_scores_one(make_data, num_choices):
    # A balanced source: its contrasts are an orthonormal basis of what it can explain.
    rng = np.random.default_rng(num_choices)
    data = shown_data(make_data, 4, 12 * num_choices, num_choices, 7, mask_rate=0.0)
    data.choices[2] = rng.permuted(np.tile(np.arange(num_choices), 12))
    terms = rng.normal(size=num_choices)
    left = (terms - terms.mean())[data.choices[2]]
    left = (left / np.linalg.norm(left)).astype(np.float32)[None]
    top, score = rank_sources(left, np.array([0]), data, np.ones(4), 3)
    assert top[0, 0] == 2
    assert score[0, 0] == pytest.approx(1, rel=1e-5)
    assert (score[0, 1:] < 1).all()
    top, score = rank_sources(left, np.array([0]), data, np.array([1.0, 1.0, 0.9, 1.0]), 3)
    assert score[0][top[0] == 2] == pytest.approx(0.9, rel=1e-5)


@pytest.mark.parametrize("num_choices", [2, 4, 12])
def test_the_source_behind_what_is_left_comes_first(additive, nothing_known, num_choices):
    neighbours = {j: [(j + 7) % 40] for j in range(40)}
    made = additive(40, 400, neighbours, num_choices=num_choices, mask_rate=0.2, seed=8)
    readouts = np.arange(40)
    nobody = np.zeros((40, 1), dtype=np.int64), np.zeros(40, dtype=np.int64)
    left = leftovers(readouts, made.data, *nobody, nothing_known(40, made.data))
    top, _ = rank_sources(left, readouts, made.data, np.ones(40), 1)
    assert (top[:, 0] == (readouts + 7) % 40).mean() > 0.8


# ----- Many choices ---------------------------------------------------------------------------


@pytest.mark.parametrize("num_choices", [MOST_CONTRASTS + 1, 20])
@pytest.mark.parametrize("seed", range(3))
def test_many_choices_are_ranked_by_sums(make_data, num_choices, seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, num_choices + 1, size=25)
    counts[3] = num_choices
    data = shown_data(make_data, 25, 70, counts, seed)
    favour = rng.choice([0.3, 1.0], size=25)
    call = random_left(25, 70, seed), np.arange(25), data, favour, 6
    assert_same_ranking(rank_sources(*call), by_sums(*call))


def test_a_choice_shown_once_explains_nothing(make_data):
    data = shown_data(make_data, 3, 12, 12, 9, mask_rate=0.0)
    data.choices[1] = np.arange(12)  # every choice once
    data.choices[2] = np.arange(12) // 2
    left = random_left(1, 12, 9, empty=0.0)
    top, _ = rank_sources(left, np.array([0]), data, np.ones(3), 2)
    assert top[0].tolist() == [2, -1]


# ----- What is left ---------------------------------------------------------------------------


def plain_leftovers(data: Data, j: int, members: list[int]) -> tuple[np.ndarray, float]:
    """Return the main singular vector of weighted residuals, and how far it stands out."""
    shown = data.choices[:, : data.num_probes]
    clean = (data.weight[j] > 0) & (shown[members] >= 0).all(axis=0)
    parameters = [np.ones(clean.sum())]
    for i in members:
        parameters += [shown[i, clean] == a for a in range(1, data.num_choices[i])]
    design = np.stack(parameters, axis=1).astype(np.float64)
    root = np.sqrt(data.weight[j, clean].astype(np.float64))[:, None]
    logs = data.logs[j, clean]
    solution = np.linalg.lstsq(root * design, root * logs)[0]
    residual = root * np.sqrt(data.importance[j]) * (logs - design @ solution)
    u, s, _ = np.linalg.svd(residual, full_matrices=False)
    left = np.zeros(data.num_probes)
    left[clean] = u[:, 0]
    return left, float(s[1] / s[0])


@pytest.mark.parametrize("members", [[], [3], [5, 2]])
def test_leftovers_lie_along_the_main_direction(make_data, nothing_known, members):
    rng = np.random.default_rng(len(members))
    length, num_probes, width = 8, 70, 4
    choices = rng.integers(0, 3, size=(length, num_probes))
    choices[rng.random(choices.shape) < 0.25] = -1
    # One direction dominates the noise.
    direction = rng.normal(size=(length, 1, width))
    logs = rng.normal(size=(length, num_probes, 1)) * direction * 4
    logs += 0.3 * rng.normal(size=(length, num_probes, width))
    data = make_data(
        choices,
        logs,
        np.full(length, 3),
        weight=rng.uniform(0.1, 1.0, size=choices.shape),
        importance=rng.uniform(0.1, 1.0, size=(length, width)),
    )
    member_table = np.tile(np.array([*members, 0, 0][:2]), (length, 1))
    count = np.full(length, len(members))
    readouts = np.array([0, 7, 4])
    left = leftovers(readouts, data, member_table, count, nothing_known(3, data))
    assert left.dtype == np.float32
    for r, j in enumerate(readouts):
        plain, ratio = plain_leftovers(data, j, members)
        assert ratio < 0.5
        assert np.linalg.norm(left[r]) == pytest.approx(1, abs=1e-5)
        assert abs(left[r] @ plain) > 1 - 1e-4
        assert (left[r][plain == 0] == 0).all()


def test_known_terms_are_not_left_over(additive, nothing_known):
    made = additive(9, 400, {0: [3, 6]}, mask_rate=0.15, seed=11)
    readouts, nobody = np.array([0]), np.zeros((9, 1), dtype=np.int64)
    none = np.zeros(9, dtype=np.int64)
    known = Known(np.array([0, 1]), np.array([3]), made.terms[0, 3][None])
    unknown = leftovers(readouts, made.data, nobody, none, nothing_known(1, made.data))
    left = leftovers(readouts, made.data, nobody, none, known)
    first = rank_sources(unknown, readouts, made.data, np.ones(9), 9)
    second = rank_sources(left, readouts, made.data, np.ones(9), 9)

    def score(ranking, i):
        return ranking[1][0][ranking[0][0] == i].sum()

    assert score(second, 6) > score(first, 6)
    assert score(second, 3) < score(first, 3)
    assert second[0][0, 0] == 6


def test_where_all_is_explained_nothing_is_left(make_data, nothing_known):
    choices = np.array([[-1, -1, -1, -1], [0, 1, 0, 1]])
    data = make_data(choices, np.zeros((2, 4, 3)), [2, 2])
    nobody = np.zeros((2, 1), dtype=np.int64), np.zeros(2, dtype=np.int64)
    left = leftovers(np.array([0, 1]), data, *nobody, nothing_known(2, data))
    assert (left == 0).all()
