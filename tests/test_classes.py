"""Token classes against their definitions, written out token by token."""

import math

import numpy as np
import pytest

from counterprobe.classes import TokenClasses

LENGTH, NUM_KINDS, NUM_CLASSES, VOCAB_SIZE = 6, 3, 4, 11


def random_classes(seed: int) -> tuple[TokenClasses, np.ndarray, np.ndarray]:
    """Return classes together with the map and the weights they were built from."""
    draw = np.random.default_rng(seed)
    rest = draw.integers(NUM_CLASSES, size=(NUM_KINDS, VOCAB_SIZE - NUM_CLASSES))
    every = np.tile(np.arange(NUM_CLASSES), (NUM_KINDS, 1))
    maps = draw.permuted(np.concatenate([every, rest], axis=1), axis=1)
    weights = draw.uniform(0.1, 5.0, size=maps.shape)
    kind = draw.integers(NUM_KINDS, size=LENGTH)
    return TokenClasses.build(LENGTH, maps, within=weights, kind=kind), maps, weights


@pytest.mark.parametrize("seed", range(4))
def test_every_field_matches_its_definition(seed):
    classes, maps, weights = random_classes(seed)
    for k in range(NUM_KINDS):
        listed = []
        for c in range(NUM_CLASSES):
            members = [v for v in range(VOCAB_SIZE) if maps[k, v] == c]
            law = [weights[k, v] / sum(weights[k, members]) for v in members]
            assert classes.within[k, members] == pytest.approx(law, abs=1e-15)
            low, high = classes.class_start[k, c], classes.class_start[k, c + 1]
            assert classes.sorted_tokens[k, low:high].tolist() == members
            assert classes.cumulative[k, low:high] == pytest.approx(np.cumsum(law), abs=1e-14)
            entropy = -sum(p * math.log(p) for p in law)
            assert classes.class_entropy[k, c] == pytest.approx(entropy, abs=1e-14)
            ranked = sorted([*law, 0.0], reverse=True)
            assert classes.class_top[k, c] == pytest.approx(ranked[0], abs=1e-15)
            assert classes.class_second[k, c] == pytest.approx(ranked[1], abs=1e-15)
            assert classes.class_top_token[k, c] == members[int(np.argmax(law))]
            listed += members
        assert sorted(listed) == list(range(VOCAB_SIZE))


def test_identity_gives_each_token_its_own_class():
    classes = TokenClasses.identity(2, 3)
    assert classes.token_class.tolist() == [[0, 1, 2]]
    assert classes.within.tolist() == [[1.0, 1.0, 1.0]]
    assert classes.class_entropy.tolist() == [[0.0, 0.0, 0.0]]
    assert classes.class_second.tolist() == [[0.0, 0.0, 0.0]]


def test_a_tie_within_a_class_goes_to_the_smallest_token():
    assert TokenClasses.build(1, [1, 0, 1, 1]).class_top_token.tolist() == [[1, 0]]


@pytest.mark.parametrize("seed", range(4))
def test_spread_shares_a_class_among_its_tokens_and_aggregate_sums_it_up(seed):
    classes, maps, _ = random_classes(seed)
    draw = np.random.default_rng(seed + 100)
    positions = draw.integers(LENGTH, size=9)
    masses = draw.dirichlet(np.ones(NUM_CLASSES), size=9)
    dense = classes.spread(positions, masses)
    for r, i in enumerate(positions):
        k = classes.kind[i]
        expected = [masses[r, maps[k, v]] * classes.within[k, v] for v in range(VOCAB_SIZE)]
        assert dense[r] == pytest.approx(expected, abs=1e-16)
    assert dense.sum(axis=1) == pytest.approx(np.ones(9), abs=1e-14)
    assert classes.aggregate(positions, dense) == pytest.approx(masses, abs=1e-14)


def test_aggregate_sums_rows_that_were_not_spread():
    classes = TokenClasses.build(2, [[0, 1, 0], [1, 1, 0]], kind=[0, 1])
    dense = np.array([[0.1, 0.2, 0.7], [0.1, 0.2, 0.7]])
    masses = classes.aggregate(np.array([0, 1]), dense)
    assert masses == pytest.approx(np.array([[0.8, 0.2], [0.7, 0.3]]), abs=1e-15)


def test_arrays_are_frozen_and_cut_loose_from_the_arguments():
    maps, kind = np.array([0, 1]), np.zeros(2, dtype=np.int64)
    classes = TokenClasses.build(2, maps, kind=kind)
    maps[0] = 1
    kind[0] = 9
    assert classes.token_class.tolist() == [[0, 1]]
    assert classes.kind.tolist() == [0, 0]
    for name in classes.__dataclass_fields__:
        assert not getattr(classes, name).flags.writeable


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"token_class": [[[0]]]}, "non-empty integer array"),
        ({"token_class": []}, "non-empty integer array"),
        ({"token_class": [0.0, 1.0]}, "dtype float64"),
        ({"token_class": [-1, 0]}, "must not be negative, got -1"),
        ({"token_class": [0, 2]}, "class 1 is empty in kind 0"),
        ({"token_class": [0, 2**60]}, "class 1 is empty in kind 0"),
        ({"token_class": [[0, 1], [0, 2**60]]}, "class 2 is empty in kind 0"),
        ({"token_class": [[0, 1], [1, 1]]}, "class 0 is empty in kind 1"),
        ({"within": [1.0]}, r"within must have shape \(1, 2\), got \(1, 1\)"),
        ({"within": [1.0, 0.0]}, "within must be positive and finite"),
        ({"within": [1.0, np.nan]}, "within must be positive and finite"),
        ({"kind": [0]}, r"kind must be integers of shape \(2,\), got \(1,\)"),
        ({"kind": [0.0, 0.0]}, "kind must be integers"),
        ({"kind": [0, 1]}, r"kind must lie in 0\.\.0, got 0\.\.1"),
        ({"kind": [-1, 0]}, r"kind must lie in 0\.\.0, got -1\.\.0"),
    ],
)
def test_what_is_not_a_class_map_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        TokenClasses.build(2, **{"token_class": [0, 1], **arguments})
