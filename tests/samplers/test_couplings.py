"""Exponential races: their law, what they depend on, and how often two of them disagree."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import coupling_disagreement
from counterprobe.samplers.peers.universal_coupling import race

WORKED = ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3])
COUNT = 20_000
EVERY = np.arange(COUNT)


def noise(seed: int, length: int = COUNT) -> cp.streams.CommitNoise:
    return cp.Streams(0, seed).commit_noise(length)


def repeated(row, count: int = COUNT) -> cp.rows.DenseRows:
    return cp.rows.DenseRows(np.tile(row, (count, 1)))


def classed(masses, length: int = COUNT) -> cp.rows.ClassedRows:
    """Three classes of five tokens, uneven within."""
    classes = cp.classes.TokenClasses.build(
        length, [1, 0, 2, 0, 0], within=[1.0, 3.0, 1.0, 1.0, 2.0]
    )
    return cp.rows.ClassedRows(np.tile(masses, (length, 1)), classes, np.arange(length))


def by_definition(p, q) -> float:
    agree = 0.0
    for v in range(len(p)):
        if p[v] > 0 and q[v] > 0:
            agree += 1 / sum(max(p[w] / p[v], q[w] / q[v]) for w in range(len(p)))
    return 1 - agree


def test_the_worked_pair_disagrees_with_its_known_probability():
    assert coupling_disagreement(*WORKED) == pytest.approx(0.30645, abs=5e-6)


@pytest.mark.parametrize("seed", range(8))
def test_disagreement_is_its_formula_between_total_variation_and_its_bound(seed):
    draw = np.random.default_rng(seed)
    p, q = draw.dirichlet(np.full(2 + seed, 0.5), size=2)
    if seed % 2:
        p[0] = 0
        p /= p.sum()
    tv = np.abs(p - q).sum() / 2
    found = coupling_disagreement(p, q)
    assert found == pytest.approx(by_definition(p, q), abs=1e-12)
    assert found == pytest.approx(coupling_disagreement(q, p), abs=1e-12)
    assert tv - 1e-12 <= found <= 2 * tv / (1 + tv) + 1e-12


def test_equal_rows_never_disagree_and_disjoint_ones_always():
    assert coupling_disagreement([0.25, 0.75], [0.25, 0.75]) == pytest.approx(0, abs=1e-15)
    assert coupling_disagreement([1.0, 0.0], [0.0, 1.0]) == 1.0
    assert coupling_disagreement([1.0], [1.0]) == 0.0


@pytest.mark.parametrize(
    ("p", "q"), [([0.5, 0.4], [0.5, 0.5]), ([[1.0]], [1.0]), ([-1, 2], [1, 0])]
)
def test_what_is_no_row_of_probabilities_is_refused(p, q):
    with pytest.raises(ValueError, match="p must be one row of probabilities"):
        coupling_disagreement(p, q)
    with pytest.raises(ValueError, match="must have one length"):
        coupling_disagreement([1.0], [0.5, 0.5])


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["dense", "classed"])
def test_a_race_has_the_law_of_its_row(kind, chi_square, false_alarms, seed_of):
    rows = repeated([0.5, 0.3, 0.0, 0.2]) if kind == "dense" else classed([0.7, 0.1, 0.2])
    tokens = race(rows, EVERY, noise(seed_of(61)))
    counts = np.bincount(tokens, minlength=rows.vocab_size)
    assert chi_square(counts, rows.dense()[0]) > false_alarms / 2


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["dense", "classed"])
def test_two_races_disagree_as_often_as_the_formula_says(kind, chi_square, false_alarms, seed_of):
    make = repeated if kind == "dense" else classed
    shared = noise(seed_of(62))
    one, other = (race(make(row), EVERY, shared) for row in WORKED)
    differ = int((one != other).sum())
    chance = coupling_disagreement(*WORKED)
    # 20,000 pairs tell 0.306 from the 0.3 of a maximal coupling and the 0.46 of the bound.
    assert chi_square([differ, COUNT - differ], [chance, 1 - chance]) > false_alarms / 2


def test_a_race_is_decided_by_rows_and_noise_of_its_own_position():
    draw = np.random.default_rng(3)
    rows = cp.rows.DenseRows(draw.dirichlet(np.ones(6), size=50))
    some = noise(4, 50)
    whole = race(rows, np.arange(50), some)
    for k in (0, 17, 49):
        assert race(rows.take(np.array([k])), np.array([k]), noise(4, 50))[0] == whole[k]
    exponentials = some.exponentials(np.arange(50), 6)
    expected = [
        min(range(6), key=lambda v: e[v] / p[v])
        for e, p in zip(exponentials, rows.probabilities, strict=True)
    ]
    assert whole.tolist() == expected


def test_tokens_without_mass_never_win_and_certain_ones_always_do():
    certain = repeated([0.0, 1.0, 0.0], 200)
    assert (race(certain, np.arange(200), noise(5, 200)) == 1).all()
    assert (race(classed([0.0, 0.0, 1.0], 200), np.arange(200), noise(5, 200)) == 2).all()


def test_classed_rows_that_agree_on_the_class_agree_on_the_token():
    shared = noise(6, 500)
    first = classed([0.6, 0.2, 0.2], 500)
    one = race(first, np.arange(500), shared)
    other = race(classed([0.5, 0.3, 0.2], 500), np.arange(500), shared)
    same = first.classes.of(np.arange(500), one) == first.classes.of(np.arange(500), other)
    assert 0 < (~same).sum() < 250
    assert (one[same] == other[same]).all()


def test_single_precision_rows_race_in_double_precision():
    torch = pytest.importorskip("torch")
    row = np.array([0.125, 0.25, 0.625])
    wide = race(repeated(row, 300), np.arange(300), noise(7, 300))
    narrow = cp.rows.DenseRows(torch.tensor(np.tile(row, (300, 1)), dtype=torch.float32))
    assert race(narrow, np.arange(300), noise(7, 300)).tolist() == wide.tolist()
