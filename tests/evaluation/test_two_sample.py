"""Two sets of sequences: kernels against their definitions, the level and power of the test."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from counterprobe.evaluation import diversity, frequency_difference, two_sample_test
from counterprobe.evaluation.two_sample import KERNELS, _shuffled_labels


def kernel_of(name, x, y, bandwidth):
    agreement = sum(a == b for a, b in zip(x, y, strict=True))
    if name == "hamming":
        return math.exp(-(len(x) - agreement) / bandwidth)
    return agreement if name == "sites" else math.comb(agreement, 2)


def plain_squared_mmd(name, first, second, bandwidth):
    """Means over pairs of different members, one pair at a time."""
    inside = [
        np.mean([kernel_of(name, a, b, bandwidth) for a, b in itertools.permutations(s, 2)])
        for s in (first, second)
    ]
    across = [kernel_of(name, a, b, bandwidth) for a in first for b in second]
    return sum(inside) - 2 * np.mean(across)


def plain_median(first, second):
    pooled = [*first, *second]
    pairs = itertools.combinations(pooled, 2)
    return float(np.median([sum(a != b) for a, b in pairs])) or 1.0


def sets_of(seed, n=7, m=5, length=6, vocab_size=3):
    draw = np.random.default_rng(seed)
    return draw.integers(0, vocab_size, (n, length)), draw.integers(0, vocab_size, (m, length))


@pytest.mark.parametrize("seed", range(4))
def test_statistics_and_p_values_are_those_of_the_definition(seed):
    first, second = sets_of(seed)
    found = two_sample_test(first, second, permutations=39, seed=seed)
    bandwidth = plain_median(first, second)
    assert found.bandwidth == bandwidth
    pooled = np.concatenate([first, second])
    labels = _shuffled_labels(7, 12, 39, seed).astype(bool)
    assert labels[0].tolist() == [True] * 7 + [False] * 5
    for kernel in KERNELS:
        values = [plain_squared_mmd(kernel, pooled[a], pooled[~a], bandwidth) for a in labels]
        assert found.squared_mmd[kernel] == pytest.approx(values[0], abs=1e-12)
        as_far = sum(value >= values[0] - 1e-9 for value in values[1:])
        assert found.p_value[kernel] == (1 + as_far) / 40


def test_the_kernels_of_sites_and_pairs_compare_frequency_tables():
    first, second = sets_of(0, n=400, m=300, length=3)
    found = two_sample_test(first, second, permutations=1)

    def table(sequences, where):
        counts = np.zeros((3,) * len(where))
        np.add.at(counts, tuple(sequences[:, where].T), 1 / len(sequences))
        return counts

    for kernel, size in (("sites", 1), ("pairs", 2)):
        squared = 0.0
        for where in itertools.combinations(range(3), size):
            p, q = table(first, list(where)), table(second, list(where))
            # Unbiased: a member is not compared with itself.
            squared += (400 * (p**2).sum() - 1) / 399 + (300 * (q**2).sum() - 1) / 299
            squared -= 2 * (p * q).sum()
        assert found.squared_mmd[kernel] == pytest.approx(squared, abs=1e-12)


@pytest.mark.statistical
def test_level_is_kept_where_there_is_nothing_to_find(seed_of, false_alarms):
    """600 pairs of sets from one law, 10 against 14: p <= alpha no more often than alpha."""
    draw = np.random.default_rng(seed_of(51))
    count, alphas = 600, (0.05, 0.2)
    small = {kernel: np.zeros(len(alphas), dtype=int) for kernel in KERNELS}
    for k in range(count):
        common = draw.random((24, 1)) < 0.5
        law = np.where(common, draw.integers(0, 2, (24, 5)), draw.integers(0, 4, (24, 5)))
        found = two_sample_test(law[:10], law[10:], permutations=39, seed=seed_of(52) + k)
        for kernel in KERNELS:
            small[kernel] += [found.p_value[kernel] <= alpha for alpha in alphas]
    level = false_alarms / (len(KERNELS) * len(alphas))
    for kernel in KERNELS:
        for alpha, rejected in zip(alphas, small[kernel], strict=True):
            assert stats.binom.sf(rejected - 1, count, alpha) > level
    # Control: twice as many rejections would have been noticed, and there are some.
    assert stats.binom.sf(2 * count * 0.2 - 1, count, 0.2) < level
    assert all(small[kernel][1] > 0 for kernel in KERNELS)


def test_broken_dependence_is_found_and_sites_do_not_see_it():
    """Copied bits against independent ones: the same sites, other pairs."""
    draw = np.random.default_rng(8)
    half = draw.integers(0, 2, (200, 4))
    joint, product = np.hstack([half, half]), draw.integers(0, 2, (200, 8))
    found = two_sample_test(joint, product, permutations=499, seed=1)
    assert found.p_value["pairs"] == found.p_value["hamming"] == 1 / 500
    assert found.p_value["sites"] > 0.01
    assert found.sizes == (200, 200)


def test_other_sites_are_found_by_every_kernel():
    draw = np.random.default_rng(9)
    first = (draw.random((60, 6)) < 0.2).astype(int)
    found = two_sample_test(first, draw.integers(0, 2, (50, 6)), permutations=199)
    assert set(found.p_value.values()) == {1 / 200}


def test_same_seed_same_shuffles_and_the_order_of_sequences_does_not_matter():
    first, second = sets_of(3, n=12, m=12)
    found = two_sample_test(first, second, permutations=99, seed=1)
    again = two_sample_test(first, second, permutations=99, seed=1)
    assert found == again
    turned = two_sample_test(second, first[::-1], permutations=99, seed=1)
    for kernel in KERNELS:
        assert turned.squared_mmd[kernel] == pytest.approx(found.squared_mmd[kernel], abs=1e-12)


@pytest.mark.parametrize("positions", [None, []])
def test_sets_without_any_difference_are_as_likely_as_can_be(positions):
    same = np.ones((5, 4), dtype=int)
    found = two_sample_test(same, same[:3], positions=positions, permutations=19)
    assert found.bandwidth == 1.0
    assert all(abs(value) < 1e-12 for value in found.squared_mmd.values())
    assert set(found.p_value.values()) == {1.0}


def test_only_the_positions_asked_for_are_compared():
    draw = np.random.default_rng(5)
    first, second = draw.integers(0, 3, (30, 6)), draw.integers(0, 3, (30, 6))
    second[:, 4:] = 7
    where = [0, 1, 2, 3]
    part = two_sample_test(first, second, positions=where, permutations=99)
    assert part == two_sample_test(first[:, :4], second[:, :4], permutations=99)
    assert two_sample_test(first, second, permutations=99).p_value["sites"] == 0.01
    assert diversity(second, positions=where) == diversity(second[:, :4])


# ----- Frequencies --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_frequency_differences_are_those_of_explicit_tables(seed):
    first, second = sets_of(seed, n=9, m=6, length=4, vocab_size=5)
    found = frequency_difference(first, second)
    for i, j in itertools.product(range(4), repeat=2):
        tables = np.zeros((2, 5, 5))
        for k, sequences in enumerate((first, second)):
            for x in sequences:
                tables[k, x[i], x[j]] += 1 / len(sequences)
        assert found.pair[i, j] == pytest.approx(np.abs(tables[0] - tables[1]).sum() / 2)
    assert found.site == pytest.approx(np.diagonal(found.pair))
    off = [found.pair[i, j] for i, j in itertools.permutations(range(4), 2)]
    assert found.mean_pair == pytest.approx(np.mean(off))


def test_frequencies_of_a_large_vocabulary_take_no_table_of_it():
    first = np.array([[0, 2**40], [5, 1]])
    found = frequency_difference(first, first[::-1])
    assert found.pair.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert frequency_difference(first, first + 1).site.tolist() == [1.0, 1.0]


def test_frequencies_of_nothing_are_empty():
    found = frequency_difference([[1, 2]], [[1, 3]], positions=[])
    assert found.site.shape == (0,)
    assert found.pair.shape == (0, 0)
    assert math.isnan(found.mean_pair)


# ----- Diversity ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_diversity_is_the_mean_over_pairs(seed):
    first, _ = sets_of(seed, n=8, length=3, vocab_size=2)
    found = diversity(first)
    distances = [int((a != b).sum()) for a, b in itertools.combinations(first, 2)]
    assert found.mean_distance == pytest.approx(np.mean(distances))
    assert found.num_distinct == len({tuple(x) for x in first.tolist()})
    assert (found.count, found.num_positions) == (8, 3)


def test_one_sequence_has_no_distance():
    found = diversity([[1, 2, 3]])
    assert math.isnan(found.mean_distance)
    assert (found.num_distinct, found.count) == (1, 1)
    assert diversity([[1], [2]], positions=[]).mean_distance == 0


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([[1, 2]], [[1, 2]] * 2), {}, "first must hold at least 2 sequences, got 1"),
        (([[1, 2]] * 2, [[1, 2]]), {}, "second must hold at least 2 sequences, got 1"),
        (([[1, 2]] * 2, [[1]] * 2), {}, "one length, got 2 and 1"),
        (([1, 2], [[1, 2]] * 2), {}, "first must be integers of shape"),
        (([[0.5, 2]] * 2, [[1, 2]] * 2), {}, "first must be integers of shape"),
        (([[1, 2]] * 2, [[1, 2]] * 2), {"permutations": 0}, "permutations must be at least 1"),
        (([[1, 2]] * 2, [[1, 2]] * 2), {"bandwidth": 0.0}, "bandwidth must be positive"),
        (([[1, 2]] * 2, [[1, 2]] * 2), {"positions": [2]}, r"positions must lie in 0\.\.1, got 2"),
        (([[1, 2]] * 2, [[1, 2]] * 2), {"positions": [[0]]}, "positions must be a flat list"),
    ],
)
def test_bad_input_is_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        two_sample_test(*arguments, **options)
