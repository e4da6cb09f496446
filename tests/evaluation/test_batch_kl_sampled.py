"""The batch KL where factors are sampled, runs are long or hubs are strong."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import special, stats

import counterprobe as cp
from batch_kl_definition import Parts, asking, dense_noise, draw_parts, enumerate_kl, star
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.evaluation import batch_kl, batch_kl_of_batches, reference_kl
from counterprobe.samplers import RandomBalanced

STREAMS = cp.Streams(3, 4)


# ----- Above arity four -------------------------------------------------------------------------


def rank_one_star(leaves: int, weight: float, seed: int) -> Parts:
    """The paper's edge factor on a star, fields at random; position 0 is the hub."""
    rng = np.random.default_rng([29, seed])
    phi = np.array([1.0, -1.0, 0.0])
    edges = np.array(star(leaves))
    return Parts(
        unary=rng.dirichlet(np.full(3, 4.0), size=leaves + 1),
        edges=edges,
        pair=np.tile(1 + weight * np.outer(phi, phi), (leaves, 1, 1)),
        maps=np.arange(3)[None, :],
        within=np.ones((1, 3)),
        kind=np.zeros(leaves + 1, dtype=np.int64),
    )


def sampled_case(name: str) -> tuple[Parts, IntArray]:
    """A law and a batch whose only factor has arity above four."""
    rng = np.random.default_rng([31, *name.encode()])
    if name == "weak star":  # steady: the noise is mostly cancelled
        return rank_one_star(6, 0.1, 1), np.arange(1, 7)
    if name == "strong star":
        return draw_parts(rng, 7, star(6), 3, 3), np.arange(1, 7)
    if name == "many children":
        return draw_parts(rng, 10, star(9), 2, 2), np.arange(1, 10)
    if name == "below a batch position":
        edges = [[0, 1], *([1, k] for k in range(2, 7))]
        return draw_parts(rng, 7, edges, 3, 3), np.array([0, 2, 3, 4, 5, 6])
    assert name == "hub of hubs"
    edges = [[0, 1], [0, 2], [1, 3], [1, 4], [1, 5], [2, 6], [2, 7]]
    parts = draw_parts(rng, 8, edges, 2, 3)
    return dataclasses.replace(parts, pair=parts.pair**2), np.array([3, 4, 5, 6, 7])


SAMPLED = ["weak star", "strong star", "many children", "below a batch position", "hub of hubs"]
NUM_SEEDS = 2000


def is_mean(values: FloatArray, truth: float, level: float) -> bool:
    """Whether the mean of independent values may be the truth: a two-sided z-test."""
    error = values.std(ddof=1) / math.sqrt(len(values))
    return bool(2 * stats.norm.sf(abs(values.mean() - truth) / error) > level)


@pytest.mark.statistical
@pytest.mark.parametrize("noisy", [False, True], ids=["exact", "noisy"])
@pytest.mark.parametrize("name", SAMPLED)
def test_monte_carlo_is_unbiased_and_knows_its_error(name, noisy, seed_of, false_alarms):
    """2,000 evaluation seeds from 100 on: a bias of 0.13 of one standard error is seen."""
    parts, batch = sampled_case(name)
    law, table = parts.law, parts.table
    tokens = np.zeros(parts.length, dtype=np.int64)
    oracle = dense_noise(table) if noisy else None
    exact = enumerate_kl(table, tokens, [batch], rows=None if oracle is None else asking(oracle))
    first = seed_of(100)
    found = [
        batch_kl_of_batches(law, tokens, [batch], oracle=oracle, seed=first + k)
        for k in range(NUM_SEEDS)
    ]
    assert all(k.num_sampled == 1 and k.num_enumerated == 0 for k in found)
    values = np.array([k.value for k in found])
    errors = np.array([k.standard_error for k in found])
    level = false_alarms / (2 * len(SAMPLED))
    assert is_mean(values, exact.value, level)
    # The stated variance; the ratio has a standard deviation of about sqrt(2 / 2000) = 3%, and of
    # 4% for the weak star, whose draws are skewed: they are never negative and mostly near zero.
    assert (errors**2).mean() / values.var(ddof=1) == pytest.approx(1, abs=0.25)
    z = (values - exact.value) / errors
    assert abs(z.mean()) < 0.6
    assert 0.7 < z.var() < 2.6
    # Control: a quarter more would not pass.
    assert not is_mean(values, 1.25 * exact.value, level)


def test_monte_carlo_error_falls_with_the_draws():
    parts, batch = sampled_case("strong star")
    tokens = np.zeros(parts.length, dtype=np.int64)
    errors = [
        batch_kl_of_batches(parts.law, tokens, [batch], draws=draws).standard_error
        for draws in (128, 128 * 100)
    ]
    assert 7 < errors[0] / errors[1] < 14


def test_same_evaluation_seed_same_estimate():
    parts, batch = sampled_case("strong star")
    tokens = np.zeros(parts.length, dtype=np.int64)
    first, again, other = (
        batch_kl_of_batches(parts.law, tokens, [batch], seed=seed) for seed in (7, 7, 8)
    )
    assert (first.value, first.standard_error) == (again.value, again.standard_error)
    assert first.value != other.value


def test_rounds_and_evaluation_seeds_draw_apart():
    # A star that the first round leaves alone: its estimate in round r under seed s.
    parts, batch = sampled_case("strong star")
    edges = [*parts.edges, [7, 8]]
    law = cp.ForestLaw(
        np.concatenate([parts.unary, np.ones((2, 3))]),
        edges,
        np.concatenate([parts.pair, np.ones((1, 3, 3))]),
    )
    tokens = np.zeros(9, dtype=np.int64)

    def estimate(round_index: int, seed: int) -> float:
        earlier = [[7], [8]][:round_index]
        measured = batch_kl_of_batches(law, tokens, [*earlier, batch], seed=seed)
        return float(measured.per_round[round_index])

    found = {(r, s): estimate(r, s) for r in range(3) for s in range(3)}
    assert len(set(found.values())) == len(found)


def star_by_counts(hub: FloatArray, leaf: FloatArray, pair: FloatArray, leaves: int) -> float:
    """K of all leaves of a star of equal leaves under a masked hub: a sum over class counts."""
    kernel = pair * leaf / (pair @ leaf)[:, None]
    prior = np.log(hub) + leaves * np.log(pair @ leaf)
    prior -= np.logaddexp.reduce(prior)
    row = np.exp(prior) @ kernel
    counts = np.array(
        [
            (a, b, leaves - a - b)
            for a in range(leaves + 1)
            for b in (range(leaves - a + 1) if len(leaf) == 3 else [leaves - a])
        ]
    )[:, : len(leaf)]
    log_weight = special.gammaln(leaves + 1) - special.gammaln(counts + 1).sum(axis=1)
    log_weight += counts @ np.log(row)
    log_ratio = np.logaddexp.reduce(prior + counts @ np.log(kernel / row).T, axis=1)
    return float(-(np.exp(log_weight) * log_ratio).sum())


# Leaves, hub weights, leaf weights, pair table.
LARGE_STARS = {
    "weak, 60 leaves": (60, [1, 2, 1], [2, 1, 1], [[1.01, 0.99, 1], [0.99, 1.01, 1], [1, 1, 1]]),
    "strong, 60 leaves": (60, [1, 1, 1], [1, 1, 1], [[1.5, 0.5, 1], [0.5, 1.5, 1], [1, 1, 1]]),
    "uneven, 40 leaves": (40, [3, 1, 2], [1, 2, 4], [[3, 1, 2], [1, 1, 1], [2, 5, 1]]),
    "weak, 3000 leaves": (3000, [1, 1], [1, 1], [[1.0002, 0.9998], [0.9998, 1.0002]]),
    "strong, 3000 leaves": (3000, [1, 1], [1, 1], [[1.1, 0.9], [0.9, 1.1]]),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", LARGE_STARS)
def test_large_stars_match_a_sum_over_counts(name, seed_of, false_alarms):
    """Mean over 60 evaluation seeds from 500 on: sees a bias of 0.6 of the stated error."""
    leaves, *factors = LARGE_STARS[name]
    hub, leaf, pair = (np.array(values, dtype=float) for values in factors)
    law = cp.ForestLaw(np.stack([hub, *[leaf] * leaves]), star(leaves), pair)
    truth = star_by_counts(hub, leaf, pair, leaves)
    first = seed_of(500)
    found = [
        batch_kl_of_batches(law, np.zeros(leaves + 1, int), [np.arange(1, leaves + 1)], seed=seed)
        for seed in range(first, first + 60)
    ]
    assert all(k.largest_arity == leaves and k.num_sampled == 1 for k in found)
    values = np.array([k.value for k in found])
    error = math.sqrt(np.mean([k.standard_error**2 for k in found]) / len(found))
    limit = stats.norm.isf(false_alarms / len(LARGE_STARS) / 2)
    assert abs(values.mean() - truth) < limit * error
    assert abs(values.mean() - 1.5 * truth) > limit * error  # control


# ----- Long runs --------------------------------------------------------------------------------


def tree_run(seed: int, shape: str) -> tuple[cp.ForestLaw, cp.SampleResult]:
    """A tree of 200 positions with random tables, unmasked in twenty batches."""
    options = {"classes": 3, "tables": "random", "weight": 0.8}
    law = cp.families.build(shape, 200, seed, **options)
    result = RandomBalanced(20)(cp.run.Run(law.oracle()), cp.Streams(seed, seed + 1))
    return law, result


@pytest.mark.parametrize("shape", ["random-recursive-tree", "caterpillar", "binary-tree"])
@pytest.mark.parametrize("seed", range(4))
def test_a_round_does_not_depend_on_the_rounds_before_it(seed, shape):
    # Working memory is shared by the rounds of one evaluation: nothing may stay behind.
    law, result = tree_run(seed, shape)
    running = batch_kl(law, result, draws=2000)
    assert len(running.per_round) == 20
    state = np.array(result.given)
    for k, batch in enumerate(result.batches):
        fresh = batch_kl_of_batches(law, result.tokens, [batch], given=state, draws=2000)
        slack = 6 * math.sqrt(2) * fresh.standard_error + 1e-12
        assert abs(fresh.value - running.per_round[k]) <= slack
        state[batch] = result.tokens[batch]
    assert running.num_enumerated > 10
    assert running.value > 0.01


def path_kl(
    unary: FloatArray, pair: FloatArray, tokens: IntArray, batches: Sequence[IntArray]
) -> list[float]:
    """On a path only neighbours within the batch matter: one matrix product a stretch."""
    length = len(unary)
    state = np.full(length, cp.MASK)
    totals = []
    for batch in batches:
        evidence = unary.copy()
        for i in np.flatnonzero(state != cp.MASK):
            evidence[i] = np.where(np.arange(unary.shape[1]) == state[i], unary[i], 0)
        left, right = np.ones_like(unary), np.ones_like(unary)
        for i in range(1, length):
            left[i] = (left[i - 1] * evidence[i - 1]) @ pair[i - 1]
            left[i] /= left[i].sum()
        for i in range(length - 2, -1, -1):
            right[i] = pair[i] @ (right[i + 1] * evidence[i + 1])
            right[i] /= right[i].sum()
        total = 0.0
        ordered = np.sort(batch)
        for i, j in itertools.pairwise(ordered):
            if (state[i:j] != cp.MASK).any():
                continue  # cut off from each other
            between = np.diag(left[i] * evidence[i])
            for k in range(i, j):
                between = between @ pair[k] * evidence[k + 1]
                between /= between.sum()
            joint = between * right[j]
            joint /= joint.sum()
            ideal = np.outer(joint.sum(axis=1), joint.sum(axis=0))
            total += float((ideal * np.log(ideal / joint)).sum())
        totals.append(total)
        state[batch] = tokens[batch]
    return totals


@pytest.mark.parametrize("num_batches", [1, 5, 40])
def test_a_long_path_matches_transfer_matrices(num_batches):
    rng = np.random.default_rng([37, num_batches])
    unary = rng.uniform(0.3, 2.0, (200, 3))
    pair = np.exp(rng.uniform(-1, 1, (199, 3, 3)))
    law = cp.ForestLaw(unary, [[i, i + 1] for i in range(199)], pair)
    result = RandomBalanced(num_batches)(cp.run.Run(law.oracle()), STREAMS)
    measured = batch_kl(law, result)
    expected = path_kl(unary, pair, result.tokens, result.batches)
    assert measured.num_sampled == 0
    assert measured.per_round == pytest.approx(expected, rel=1e-10, abs=1e-12)
    assert measured.value > 0.1


# ----- Strong hubs ------------------------------------------------------------------------------


def strong_star(leaves: int, field: FloatArray) -> cp.ForestLaw:
    phi = np.array([1.0, -1.0, 0.0])
    unary = np.stack([0.4 * np.exp(field), 0.4 * np.exp(-field), np.full(len(field), 0.2)], axis=1)
    return cp.ForestLaw(unary, star(leaves), 1 + 0.9 * np.outer(phi, phi))


@pytest.mark.parametrize("field", [0.0, 1.0, -1.0, None], ids=["none", "up", "down", "random"])
def test_a_hub_of_three_thousand_strong_edges_stays_finite(field):
    leaves = 3000
    fields = np.random.default_rng(41).uniform(-1, 1, leaves + 1)
    law = strong_star(leaves, fields if field is None else np.full(leaves + 1, field))
    everything = np.arange(leaves + 1)
    tokens = law.sample(1, np.random.default_rng(2))[0]
    for batches in (
        [everything],
        [everything[1:]],
        [everything[1::2], everything[::2]],
        np.array_split(np.random.default_rng(3).permutation(everything), 40),
        [everything[2000:], everything[:2000]],
    ):
        measured = batch_kl_of_batches(law, tokens, batches)
        assert np.isfinite(measured.per_round).all()
        assert np.isfinite(measured.standard_error)
        assert measured.value >= -1e-9
    if field == 0.0:
        # Values drawn without the hub exclude both of its signs; the third has mass 1/5.
        measured = batch_kl_of_batches(law, tokens, [everything[1:]])
        assert measured.value == pytest.approx(math.log(5), abs=1e-9)
        assert reference_kl(law) > 1000


@pytest.mark.parametrize("revealed", range(236, 262))
def test_a_hub_at_the_edge_of_underflow_stays_finite(revealed):
    # About 252 leaves of the same sign leave a class a mass of some 1e-322, whose ratios are of
    # numbers with few digits. The hub is in the batch, its neighbour is the root or below it.
    phi = np.array([1.0, -1.0, 0.0])
    leaves = 4 + np.arange(revealed)
    edges = np.concatenate([[[0, 1], [0, 2], [2, 3]], np.stack([np.ones_like(leaves), leaves], 1)])
    law = cp.ForestLaw(np.ones((revealed + 4, 3)), edges, 1 + 0.9 * np.outer(phi, phi))
    given = np.full(revealed + 4, cp.MASK)
    given[leaves] = 0
    for batch in ([0, 1], [1, 2], [1, 3], [0, 1, 3], [0, 1, 2, 3]):
        measured = batch_kl_of_batches(law, np.zeros(len(given), int), [batch], given=given)
        # The hub is certain, so what is left is the dependence between the others.
        rest = [i for i in batch if i != 1]
        certain = np.where(np.arange(len(given)) == 1, 0, given)
        alone = batch_kl_of_batches(law, np.zeros(len(given), int), [rest], given=certain)
        assert measured.value == pytest.approx(alone.value, abs=1e-12)
