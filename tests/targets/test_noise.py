import pickle

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import testing
from counterprobe.oracles import FollowsRuns
from counterprobe.radii import row_radii
from counterprobe.rows import to_numpy
from counterprobe.targets.noise import FrozenNoise

DIRECTIONS = ("random", "hide", "fake")
METRICS = ("hellinger", "kl")
RADII = {"hellinger": (1e-9, 1e-4, 0.02, 0.4), "kl": (1e-9, 1e-4, 0.05, 3.0)}


def table_law(length, vocab_size, seed):
    """Draw a strictly positive joint law without structure."""
    rng = np.random.default_rng(seed)
    return cp.TableLaw(rng.gamma(0.7, size=(vocab_size,) * length) + 1e-3)


ORACLES = {
    "path": lambda: cp.families.path(12, target_seed=1).oracle(),
    "mixed tree": lambda: cp.families.random_recursive_tree(
        14, 2, tables="random", weight=0.8
    ).oracle(),
    "table": lambda: table_law(5, 4, seed=3).oracle(),
    "hard matching": lambda: cp.families.hard_matching(10, 4).oracle(),
    "blind hard matching": lambda: cp.families.hard_matching(10, 4).frozen_oracle(),
}


@pytest.fixture(params=list(ORACLES))
def oracle(request):
    return ORACLES[request.param]()


def random_states(oracle, count, seed, masked=0.4, tokens=None):
    """Draw states; low tokens are frequent, so that every class of a family is seen."""
    rng = np.random.default_rng(seed)
    most = oracle.vocab_size if tokens is None else tokens
    low = rng.integers(min(3, most), size=(count, oracle.length))
    states = np.where(rng.random(low.shape) < 0.7, low, rng.integers(most, size=low.shape))
    return np.where(rng.random(low.shape) < masked, cp.MASK, states).astype(np.int32)


def divergence(metric, exact, noisy):
    return exact.squared_hellinger(noisy) if metric == "hellinger" else exact.kl(noisy)


def both(oracle, noisy, states):
    readouts = cp.Readouts.every_masked(states)
    return oracle.rows(states, readouts), noisy.rows(states, readouts), readouts


# ----- The radius ---------------------------------------------------------------------------


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("metric", "radius"), [(m, r) for m in METRICS for r in RADII[m]])
def test_rows_stay_within_the_radius_and_are_rows(oracle, metric, radius, direction):
    noisy = FrozenNoise(oracle, radius=radius, metric=metric, direction=direction, seed=5)
    exact, wrong, _ = both(oracle, noisy, random_states(oracle, 60, seed=6))
    assert type(wrong) is type(exact)
    assert (divergence(metric, exact, wrong) <= radius + 1e-12).all()
    assert (wrong.masses > 0).all()
    np.testing.assert_allclose(wrong.masses.sum(axis=1), 1, rtol=0, atol=1e-14)
    assert (exact.total_variation(wrong) <= noisy.total_variation_radius + 1e-14).all()


@pytest.mark.parametrize(("metric", "radius"), [(m, r) for m in METRICS for r in RADII[m]])
def test_random_noise_reaches_the_radius_unless_the_simplex_ends(oracle, metric, radius):
    noisy = FrozenNoise(oracle, radius=radius, metric=metric, seed=5)
    exact, wrong, _ = both(oracle, noisy, random_states(oracle, 60, seed=7))
    # The farthest point of the simplex is the vertex of the least likely class.
    reach = 1 - np.sqrt(exact.masses.min(axis=1)) if metric == "hellinger" else np.inf
    found = divergence(metric, exact, wrong)
    # KL is only computed to about 1e-16, which is 1e-7 of the smallest radius here.
    assert (found >= 0.98 * np.minimum(radius, reach)).all()


@pytest.mark.parametrize("metric", METRICS)
def test_fake_noise_reaches_the_radius_where_the_partner_is_revealed(oracle, metric):
    noisy = FrozenNoise(oracle, radius=1e-3, metric=metric, direction="fake", seed=8)
    states = random_states(oracle, 60, seed=9)
    exact, wrong, readouts = both(oracle, noisy, states)
    told = states[readouts.state_index, noisy.partner[readouts.position]] != cp.MASK
    assert 0 < told.sum() < len(told)
    assert (divergence(metric, exact, wrong)[told] >= 0.98e-3).all()
    np.testing.assert_array_equal(wrong.masses[~told], exact.masses[~told])


def test_divergence_over_classes_is_divergence_over_tokens():
    law = cp.families.path(8)
    for metric in METRICS:
        noisy = FrozenNoise(law.oracle(), radius=1e-2, metric=metric)
        exact, wrong, _ = both(law.oracle(), noisy, random_states(law, 5, seed=1))
        tokens = divergence(
            metric, cp.rows.DenseRows(exact.dense()), cp.rows.DenseRows(wrong.dense())
        )
        assert tokens.max() <= 1e-2 + 1e-12
        assert tokens.min() >= 0.98e-2


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("metric", METRICS)
def test_declared_hellinger_and_kl_radii_hold(metric, direction):
    law = table_law(5, 4, seed=3)
    noisy = FrozenNoise(law.oracle(), radius=0.02, metric=metric, direction=direction)
    radii = row_radii(noisy)
    assert radii.squared_hellinger == (0.02 if metric == "hellinger" else 0.01)
    assert radii.kl == (None if metric == "hellinger" else 0.02)
    testing.check_oracle(noisy, law)
    # Around an oracle that errs already, roots of squared distances add up and a KL is lost.
    twice = FrozenNoise(noisy, radius=0.005, metric=metric, direction=direction, seed=1)
    own, wrapped = row_radii(FrozenNoise(law.oracle(), radius=0.005, metric=metric)), radii
    expected = (np.sqrt(own.squared_hellinger) + np.sqrt(wrapped.squared_hellinger)) ** 2
    assert row_radii(twice).squared_hellinger == pytest.approx(expected)
    assert row_radii(twice).kl is None
    testing.check_oracle(twice, law)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("metric", METRICS)
def test_declared_row_error_holds_and_is_not_idle(metric, direction):
    # A row near one half is where the bounds between the distances are nearly equalities.
    def function(states):
        first = 0.5 + 0.05 * np.where(states == cp.MASK, 0, 2 * states - 1).mean(axis=1)
        rows = np.stack([first, 1 - first], axis=1)
        return np.repeat(rows[:, None, :], states.shape[1], axis=1)

    plain = cp.CallableOracle(function, length=6, vocab_size=2, row_error=0.125)
    noisy = FrozenNoise(plain, radius=1e-5, metric=metric, direction=direction)
    assert noisy.row_error == 0.125 + noisy.total_variation_radius
    exact, wrong, _ = both(plain, noisy, random_states(plain, 100, seed=2, masked=0.5))
    moved = exact.total_variation(wrong).max()
    assert 0.97 * noisy.total_variation_radius <= moved <= noisy.total_variation_radius


def test_calibrations_of_the_paper():
    oracle = ORACLES["path"]()
    noisy = FrozenNoise.for_hellinger_radius(oracle, 0.1, direction="fake", seed=4)
    assert (noisy.metric, noisy.direction, noisy.seed) == ("hellinger", "fake", 4)
    assert noisy.radius == pytest.approx(0.01 / 24, rel=1e-14)
    assert noisy.total_variation_radius <= 0.1 / np.sqrt(12)
    assert noisy.total_variation_radius >= 0.99 * 0.1 / np.sqrt(12)
    noisy = FrozenNoise.for_kl_tolerance(oracle, 0.02, seed=4)
    assert (noisy.metric, noisy.direction, noisy.seed) == ("kl", "random", 4)
    assert noisy.radius == pytest.approx(0.02 / 24, rel=1e-14)
    # x = sqrt(kl_tolerance / 2) bounds the row error at x / sqrt(N) in this case too.
    assert noisy.total_variation_radius <= 0.1 / np.sqrt(12)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_radius_zero_returns_the_wrapped_rows(oracle, direction):
    noisy = FrozenNoise(oracle, radius=0, direction=direction)
    exact, wrong, _ = both(oracle, noisy, random_states(oracle, 5, seed=1))
    np.testing.assert_array_equal(wrong.masses, exact.masses)
    assert noisy.row_error == oracle.row_error


# ----- Frozen: a function of (state, position) ----------------------------------------------


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("metric", METRICS)
def test_a_row_does_not_depend_on_what_is_asked_beside_it(oracle, metric, direction):
    noisy = FrozenNoise(oracle, radius=1e-3, metric=metric, direction=direction, seed=3)
    states = random_states(oracle, 23, seed=4)
    readouts = cp.Readouts.every_masked(states)
    together = noisy.rows(states, readouts).masses
    np.testing.assert_array_equal(noisy.rows(states, readouts).masses, together)
    order = np.random.default_rng(0).permutation(len(readouts))
    shuffled = cp.Readouts.pairs(readouts.state_index[order], readouts.position[order])
    np.testing.assert_array_equal(noisy.rows(states, shuffled).masses, together[order])
    twin = pickle.loads(pickle.dumps(noisy))
    for k in range(0, len(readouts), 7):
        b, j = readouts.state_index[k], readouts.position[k]
        alone = twin.rows(states[b : b + 1], cp.Readouts.same(1, [j]))
        np.testing.assert_array_equal(alone.masses[0], together[k])


def test_blocks_do_not_show(monkeypatch):
    oracle = ORACLES["mixed tree"]()
    states = random_states(oracle, 40, seed=4)
    noisy = FrozenNoise(oracle, radius=1e-3, seed=3)
    whole = both(oracle, noisy, states)[1].masses
    monkeypatch.setattr("counterprobe.targets.noise.BLOCK", 17)
    np.testing.assert_array_equal(both(oracle, noisy, states)[1].masses, whole)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_with_classes_noise_sees_classes_only(direction):
    law = cp.families.hard_matching(10, 4, vocab_size=64, bank_size=8)
    states = random_states(law, 30, seed=2)
    everywhere = np.broadcast_to(np.arange(10), states.shape)
    kind = law.classes.of(everywhere, np.maximum(states, 0))
    last = law.classes.sorted_tokens[:, -1][law.classes.kind]  # of the background class
    first = law.classes.sorted_tokens[:, 0][law.classes.kind]  # the trigger
    relabelled = np.where(kind == 0, first, last).astype(np.int32)
    relabelled[states == cp.MASK] = cp.MASK
    assert (relabelled != states).any()

    def same(classes):
        noisy = FrozenNoise(law.oracle(), radius=1e-4, direction=direction, classes=classes)
        rows, twins = (both(law.oracle(), noisy, s)[1].masses for s in (states, relabelled))
        return np.array_equal(rows, twins)

    assert same(law.classes)
    assert same(None) == (direction == "hide")


# ----- Hiding -------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_hidden_rows_move_towards_the_all_mask_row(oracle, metric):
    radius = 2e-3
    noisy = FrozenNoise(oracle, radius=radius, metric=metric, direction="hide")
    states = random_states(oracle, 80, seed=11)
    exact, wrong, readouts = both(oracle, noisy, states)
    blank = np.full_like(states, cp.MASK)
    reference = oracle.rows(blank, readouts)
    distance = divergence(metric, exact, reference)
    near = distance <= radius - 1e-12
    # Responses within the radius vanish completely.
    np.testing.assert_array_equal(wrong.masses[near], reference.masses[near])
    # The others shrink as a mixture does, by as much as the radius allows.
    far = np.flatnonzero(distance > radius + 1e-12)
    assert (divergence(metric, exact, wrong)[far] >= 0.98 * radius).all()
    step = wrong.masses[far] - exact.masses[far]
    way = reference.masses[far] - exact.masses[far]
    fraction = (step * way).sum(axis=1) / (way * way).sum(axis=1)
    assert ((fraction > 0) & (fraction < 1)).all()
    np.testing.assert_allclose(step, fraction[:, None] * way, atol=1e-14)
    np.testing.assert_allclose(
        wrong.total_variation(reference)[far],
        (1 - fraction) * exact.total_variation(reference)[far],
        atol=1e-14,
    )


def pairs_of_rows(oracle, noisy, seed):
    """Rows of each position at two random states, with their all-mask rows and fractions."""
    rng = np.random.default_rng(seed)
    position = rng.integers(oracle.length, size=400)
    first, second = (random_states(oracle, 400, seed=s, masked=0.3) for s in (seed, seed + 1))
    first[np.arange(400), position] = second[np.arange(400), position] = cp.MASK
    readouts = cp.Readouts.pairs(np.arange(400), position)
    reference = oracle.rows(np.full_like(first, cp.MASK), readouts)
    exact = [oracle.rows(s, readouts) for s in (first, second)]
    wrong = [noisy.rows(s, readouts) for s in (first, second)]
    fraction = []
    for p, q in zip(exact, wrong, strict=True):
        gap = p.total_variation(reference)
        left = q.total_variation(reference)
        fraction.append(1 - np.divide(left, gap, out=np.zeros_like(gap), where=gap > 0))
    return exact, wrong, reference, fraction


@pytest.mark.parametrize("metric", METRICS)
def test_hiding_bounds_the_response_between_two_states(oracle, metric):
    noisy = FrozenNoise(oracle, radius=2e-4, metric=metric, direction="hide")
    (p, q), (a, b), reference, (s, t) = pairs_of_rows(oracle, noisy, seed=21)
    response = a.total_variation(b)
    # a - b = (1 - s)(p - q) + (t - s)(q - r): equal fractions shrink, unequal ones may not.
    bound = (1 - s) * p.total_variation(q) + np.abs(t - s) * q.total_variation(reference)
    assert (response <= bound + 1e-14).all()
    hidden = (s == 1) & (t == 1)
    assert (response[hidden] == 0).all()


def test_hiding_shrinks_every_binary_response_across_the_reference():
    law = cp.families.hard_matching(10, 4, vocab_size=64, bank_size=8)
    noisy = FrozenNoise(law.oracle(), radius=1e-6, direction="hide")
    (p, q), (a, b), reference, _ = pairs_of_rows(law.oracle(), noisy, seed=41)
    before = [np.sign(r.masses - reference.masses)[:, 0] for r in (p, q)]
    across = (before[0] * before[1] < 0) & (p.total_variation(q) > 1e-12)
    assert across.sum() > 10
    assert (a.total_variation(b) < p.total_variation(q))[across].all()


def test_hiding_may_enlarge_a_response_between_rows_that_move_by_different_fractions():
    def function(states):
        first = np.choose(states[:, 1] + 1, [0.5, 0.99, 0.9999])
        rows = np.stack([first, 1 - first], axis=1)
        return np.repeat(rows[:, None, :], 2, axis=1)

    oracle = cp.CallableOracle(function, length=2, vocab_size=2)
    noisy = FrozenNoise(oracle, radius=1e-3, direction="hide")
    states = np.array([[-1, 0], [-1, 1]], dtype=np.int32)
    exact, wrong, _ = both(oracle, noisy, states)
    before, after = (abs(r.masses[0, 0] - r.masses[1, 0]) for r in (exact, wrong))
    assert before == pytest.approx(0.0099)
    assert after > 1.5 * before


def test_hiding_reads_the_all_mask_state_once():
    asked = []

    def function(states):
        asked.append(len(states))
        return np.full((*states.shape, 2), 0.5)

    noisy = FrozenNoise(
        cp.CallableOracle(function, length=3, vocab_size=2), radius=1e-3, direction="hide"
    )
    assert asked == []
    for _ in range(3):
        noisy.rows(np.array([[-1, 0, 1]], dtype=np.int32), cp.Readouts.same(1, [0]))
    assert len(asked) == 3 + 1


# ----- Faking -------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2, 3, 8, 50])
def test_partners_are_a_permutation_without_fixed_points(length):
    oracle = cp.families.random_recursive_tree(length).oracle()
    cycles = [FrozenNoise(oracle, radius=1e-3, direction="fake", seed=s).partner for s in range(9)]
    for partner in cycles:
        np.testing.assert_array_equal(np.sort(partner), np.arange(length))
        assert (partner != np.arange(length)).all()
    assert length == 2 or len({tuple(p) for p in cycles}) > 1


@pytest.mark.parametrize("metric", METRICS)
def test_faked_edges_respond_and_no_other_non_edge_does(metric):
    law = cp.families.path(10, target_seed=3)
    noisy = FrozenNoise(law.oracle(), radius=1e-4, metric=metric, direction="fake", seed=6)
    edges = {tuple(e) for e in law.edges.tolist()} | {tuple(e[::-1]) for e in law.edges.tolist()}
    draft = law.sample(1, np.random.default_rng(1))[0]
    counts = dict.fromkeys(["edge", "faked", "nothing"], 0)
    for j in range(10):
        for i in set(range(10)) - {j}:
            states = np.tile(draft, (2, 1)).astype(np.int32)
            states[:, i] = 0, 1
            states[:, j] = cp.MASK
            exact, wrong = (
                o.rows(states, cp.Readouts.same(2, [j])) for o in (law.oracle(), noisy)
            )
            true, seen = (
                float(r.take(np.array([0])).total_variation(r.take(np.array([1])))[0])
                for r in (exact, wrong)
            )
            if i == noisy.partner[j] and (i, j) not in edges:
                assert true == 0
                # Tokens 0 and 1 pull apart, yet never by more than a screen allows for.
                assert 0.5 * noisy.total_variation_radius < seen <= 2 * noisy.row_error
                counts["faked"] += 1
            elif (i, j) in edges:
                assert true > 0.01
                assert abs(true - seen) <= 2 * noisy.row_error
                counts["edge"] += 1
            else:
                assert true == seen == 0
                counts["nothing"] += 1
    assert min(counts.values()) >= 5


def test_the_fake_depends_on_the_partners_token_alone():
    law = cp.ForestLaw(np.random.default_rng(0).uniform(1, 2, (6, 3)), [], np.ones((3, 3)))
    noisy = FrozenNoise(law.oracle(), radius=1e-3, direction="fake", seed=2)
    states = random_states(law, 300, seed=3, masked=0.3)
    _, rows, readouts = both(law.oracle(), noisy, states)
    token = states[readouts.state_index, noisy.partner[readouts.position]]
    groups = {}
    for k, key in enumerate(zip(readouts.position.tolist(), token.tolist(), strict=True)):
        groups.setdefault(key, set()).add(rows.masses[k].tobytes())
    assert len(groups) == 6 * 4
    assert all(len(found) == 1 for found in groups.values())
    assert len({next(iter(found)) for found in groups.values()}) == len(groups)


# ----- Corners ------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("direction", ["random", "fake"])
def test_a_tilt_keeps_impossible_tokens_impossible(metric, direction):
    parity = cp.TableLaw(1 - np.indices((2, 2, 2)).sum(axis=0) % 2)
    noisy = FrozenNoise(parity.oracle(), radius=0.01, metric=metric, direction=direction)
    states = np.array([[-1, 0, 1], [-1, 1, 1], [-1, -1, 1], [-1, 0, -1]], dtype=np.int32)
    exact, wrong, _ = both(parity.oracle(), noisy, states)
    np.testing.assert_array_equal(wrong.masses == 0, exact.masses == 0)
    np.testing.assert_array_equal(wrong.masses[:2], exact.masses[:2])
    assert (divergence(metric, exact, wrong) <= 0.01).all()
    with pytest.warns(cp.errors.ZeroProbabilityWarning):
        for seed in range(5):
            result = cp.samplers.Sequential()(cp.run.Run(noisy), cp.Streams.from_seed(seed))
            assert np.isfinite(parity.log_prob(result.tokens))


@pytest.mark.parametrize(("metric", "radius"), [("hellinger", 0.5), ("kl", 2.0)])
def test_a_tilt_beside_impossible_tokens_still_reaches_the_radius(metric, radius):
    law = cp.TableLaw(np.multiply.outer([0.9, 0.1, 0.0], [0.3, 0.3, 0.4]))
    noisy = FrozenNoise(law.oracle(), radius=radius, metric=metric)
    states = np.array([[-1, 0], [-1, 1], [-1, 2]], dtype=np.int32)
    exact, wrong, _ = both(law.oracle(), noisy, states)
    assert (divergence(metric, exact, wrong) <= radius + 1e-12).all()
    assert (divergence(metric, exact, wrong) >= 0.98 * radius).all()


def test_hiding_mixes_mass_into_impossible_tokens_within_the_radius():
    parity = cp.TableLaw(1 - np.indices((2, 2, 2)).sum(axis=0) % 2)
    noisy = FrozenNoise(parity.oracle(), radius=0.01, metric="kl", direction="hide")
    exact, wrong, _ = both(parity.oracle(), noisy, np.array([[-1, 0, 1]], dtype=np.int32))
    assert (wrong.masses > 0).all()
    assert 0.98e-2 <= exact.kl(wrong)[0] <= 1e-2


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_low_precision_rows_come_back_as_good_doubles(framework, direction):
    logits = np.random.default_rng(5).normal(size=(4, 50)).astype(np.float32)

    def function(states):
        shift = (states.sum(axis=1) % 5).astype(np.float32)[:, None, None]
        rows = np.exp(logits[None] * (1 + shift / 10))
        rows /= rows.sum(axis=-1, keepdims=True)
        return pytest.importorskip("torch").asarray(rows) if framework == "torch" else rows

    oracle = cp.CallableOracle(function, length=4, vocab_size=50)
    noisy = FrozenNoise(oracle, radius=1e-4, direction=direction)
    states = random_states(oracle, 20, seed=3)
    exact, wrong, _ = both(oracle, noisy, states)
    assert isinstance(wrong.masses, np.ndarray) and wrong.masses.dtype == np.float64
    np.testing.assert_allclose(wrong.masses.sum(axis=1), 1, rtol=0, atol=1e-12)
    plain = to_numpy(exact.masses).astype(np.float64)
    moved = cp.rows.DenseRows(plain / plain.sum(axis=1, keepdims=True)).squared_hellinger(wrong)
    assert moved.max() <= 1e-4 + 1e-12
    assert moved.max() >= 0.98e-4
    result = cp.samplers.Sequential()(cp.run.Run(noisy), cp.Streams(1, 2))
    assert result.tokens is not None


def test_a_bad_reply_is_not_normalised_away():
    oracle = cp.CallableOracle(lambda s: np.full((*s.shape, 2), 0.6), length=3, vocab_size=2)
    for direction in DIRECTIONS:
        noisy = FrozenNoise(oracle, radius=1e-3, direction=direction)
        with pytest.raises(cp.OracleError, match=r"sums to 1\.2"):
            noisy.rows(np.array([[-1, 0, 1]], dtype=np.int32), cp.Readouts.same(1, [0]))


def test_it_is_an_oracle_and_wraps_itself():
    oracle = ORACLES["path"]()
    once = FrozenNoise(oracle, radius=1e-4, seed=1)
    twice = FrozenNoise(once, radius=1e-4, direction="fake", seed=2)
    assert isinstance(twice, cp.Oracle)
    # Kept work would have to hash the whole state at every commit.
    assert twice.ability(FollowsRuns) is None
    assert (twice.length, twice.vocab_size, twice.info.trusted) == (12, 2048, True)
    assert twice.name == "exact path with random noise with fake noise"
    assert twice.row_error == pytest.approx(oracle.row_error + 2 * once.total_variation_radius)
    exact, wrong, _ = both(oracle, twice, random_states(oracle, 30, seed=1))
    moved = exact.total_variation(wrong).max()
    assert once.total_variation_radius / 2 < moved <= twice.row_error
    run = cp.run.Run(twice)
    result = cp.samplers.Sequential()(run, cp.Streams(1, 2))
    assert result.ledger.evaluations == 12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"radius": -1e-9}, r"radius must lie in \[0, 1\).*got -1e-09; it bounds 1 - sum"),
        ({"radius": 1.0}, r"radius must lie in \[0, 1\)"),
        ({"radius": float("nan")}, r"radius must lie in \[0, 1\).*nan"),
        ({"radius": -1, "metric": "kl"}, r"radius must be finite and not negative, got -1; it"),
        ({"radius": np.inf, "metric": "kl"}, r"radius must be finite"),
        ({"radius": 0.1, "metric": "tv"}, r"metric must be 'hellinger' or 'kl', got 'tv'"),
        ({"radius": 0.1, "direction": "up"}, r"direction must be 'random', .*got 'up'"),
        ({"radius": 0.1, "seed": -1}, r"seed must be a non-negative integer, got -1"),
        ({"radius": 0.1, "seed": 1.5}, r"seed must be a non-negative integer, got 1.5"),
        (
            {"radius": 0.1, "classes": cp.classes.TokenClasses.identity(3, 2)},
            r"classes must cover the oracle's 12 positions and 2048 tokens, got 3 and 2; pass",
        ),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        FrozenNoise(ORACLES["path"](), **settings)


def test_other_bad_arguments_are_refused():
    oracle = ORACLES["path"]()
    with pytest.raises(ValueError, match=r"oracle must have length.*call law\.oracle\(\)"):
        FrozenNoise(cp.families.path(4), radius=0.1)
    with pytest.raises(ValueError, match=r"hellinger_radius must lie in \[0, 1\], got -0\.1"):
        FrozenNoise.for_hellinger_radius(oracle, -0.1)
    with pytest.raises(ValueError, match=r"kl_tolerance must be finite and not negative, got -1"):
        FrozenNoise.for_kl_tolerance(oracle, -1)
    lone = cp.TableLaw([0.5, 0.5]).oracle()
    with pytest.raises(ValueError, match="length must be at least 2 for direction 'fake', got 1"):
        FrozenNoise(lone, radius=0.1, direction="fake")
