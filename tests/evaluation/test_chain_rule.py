"""The batch KL without a known law: unbiased, charged, and refused where it does not apply."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

import counterprobe as cp
from counterprobe import models
from counterprobe.evaluation import batch_kl_of_batches, plan_kl, run_kl
from counterprobe.oracles import Readouts
from counterprobe.planning import random_plan
from counterprobe.streams import keyed_generator
from counterprobe.testing import CountingOracle

PLAN = [[2, 0], [1, 3]]
SAMPLES = 2000


def is_mean(kl, truth, level):
    """Whether an estimate may have this expectation: a two-sided z-test."""
    return 2 * stats.norm.sf(abs(kl.value - truth) / kl.standard_error) > level


def expected_product(law, plan, given=None):
    """K of a plan in expectation, by enumerating the values of every batch."""
    oracle, total = law.oracle(), 0.0
    start = np.full(law.length, cp.MASK, dtype=np.int32) if given is None else given
    waiting = [(1.0, start)]
    for batch in plan:
        following = []
        for weight, state in waiting:
            filled = np.where(state == cp.MASK, 0, state)
            here = batch_kl_of_batches(law, filled, [batch], given=state).value
            total += weight * here
            rows = oracle.rows(state[None, :], Readouts.same(1, batch)).dense()
            for values in itertools.product(range(law.vocab_size), repeat=len(batch)):
                after = state.copy()
                after[batch] = values
                chance = np.prod([rows[r, v] for r, v in enumerate(values)])
                following.append((weight * chance, after))
        waiting = following
    return total


def expected_joint(law, plan):
    """Sum of the total correlations of the batches given what came before, under the law."""
    everything = np.full(law.length, cp.MASK, dtype=np.int32)
    joint = law.conditional(everything, np.arange(law.length))
    total, known = 0.0, []

    def entropy(positions):
        axes = tuple(i for i in range(law.length) if i not in positions)
        p = joint.sum(axis=axes).ravel()
        return float(-(p[p > 0] * np.log(p[p > 0])).sum())

    for batch in plan:
        singles = sum(entropy([*known, i]) - entropy(known) for i in batch)
        total += singles - (entropy([*known, *batch]) - entropy(known))
        known += batch
    return total


def oracle_of(law, kind):
    """The oracle of a law, as it is or as a torch model."""
    if kind == "law":
        return law.oracle()

    def probabilities(states):
        readouts = Readouts.every_masked(states)
        table = np.full((*states.shape, law.vocab_size), 1 / law.vocab_size)
        table[readouts.state_index, readouts.position] = (
            law.oracle().rows(states, readouts).dense()
        )
        return torch.from_numpy(table)

    if kind == "callable":
        return cp.CallableOracle(probabilities, law.length, law.vocab_size)

    def logits(ids):
        states = np.where(ids.numpy() == law.vocab_size, cp.MASK, ids.numpy())
        return probabilities(states.astype(np.int32)).log()

    return models.TorchOracle(logits, length=law.length, mask_id=law.vocab_size, row_error=1e-9)


# ----- Plans --------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("terms", [None, 1])
@pytest.mark.parametrize("plan", [PLAN, [[0, 1, 2, 3]], [[3], [0, 1, 2]]], ids=str)
def test_product_price_is_unbiased(table_law, plan, terms, seed_of, false_alarms):
    """2,000 samples; control: three tenths more, ten standard errors or so, is refused."""
    truth = expected_product(table_law, plan)
    oracle = table_law.oracle()
    kl = plan_kl(oracle, plan, samples=SAMPLES, terms=terms, seed=seed_of(31))
    assert is_mean(kl, truth, false_alarms / 6)
    assert not is_mean(kl, 1.3 * truth, false_alarms / 6)
    assert kl.per_round.sum() == pytest.approx(kl.value)
    assert (kl.per_sample >= -1e-12).all()


@pytest.mark.statistical
@pytest.mark.parametrize("plan", [PLAN, [[0, 1, 2, 3]]], ids=str)
def test_joint_price_is_the_total_correlation(table_law, plan, seed_of, false_alarms):
    """2,000 samples; control: three tenths more and the other direction are refused."""
    truth = expected_joint(table_law, plan)
    kl = plan_kl(table_law.oracle(), plan, samples=SAMPLES, direction="joint", seed=seed_of(32))
    assert is_mean(kl, truth, false_alarms / 2)
    assert not is_mean(kl, 1.3 * truth, false_alarms / 2)
    assert not is_mean(kl, expected_product(table_law, plan), false_alarms / 2)
    assert kl.direction == "joint"


@pytest.mark.statistical
def test_context_and_several_plans_share_the_samples(table_law, seed_of, false_alarms):
    given = np.array([1, -1, -1, -1], dtype=np.int32)
    plans = [[[1, 2], [3]], [[3, 1, 2]]]
    kl = plan_kl(table_law.oracle(), plans, samples=SAMPLES, given=given, seed=seed_of(33))
    truths = [expected_product(table_law, plan, given) for plan in plans]
    assert is_mean(kl, np.mean(truths), false_alarms / 3)
    for k, truth in enumerate(truths):
        values = kl.per_sample[k::2]
        error = values.std(ddof=1) / math.sqrt(len(values))
        assert 2 * stats.norm.sf(abs(values.mean() - truth) / error) > false_alarms / 3
    assert truths[1] > 1.5 * truths[0]


@pytest.mark.parametrize("direction", ["product", "joint"])
def test_a_sample_is_the_same_whatever_is_asked_at_once(law, direction):
    oracle = law.oracle()
    plans = [[[0, 1, 2], [3]], [[3, 2], [1, 0]]]
    options = {"direction": direction, "seed": 4}
    whole = plan_kl(oracle, plans, samples=7, **options)
    for at_once in (1, 2, 5):
        again = plan_kl(oracle, plans, samples=7, at_once=at_once, **options)
        assert again.per_sample == pytest.approx(whole.per_sample, abs=1e-12)
        assert again.ledger.evaluations == whole.ledger.evaluations
        assert again.ledger.rows_read == whole.ledger.rows_read
    fewer = plan_kl(oracle, plans, samples=3, **options)
    assert fewer.per_sample == pytest.approx(whole.per_sample[:3], abs=1e-12)
    other = plan_kl(oracle, plans, samples=7, direction=direction, seed=5)
    assert not np.allclose(other.per_sample, whole.per_sample)


@pytest.mark.parametrize("kind", ["callable", "torch"])
@pytest.mark.parametrize("direction", ["product", "joint"])
def test_rows_of_a_torch_model_give_the_same_price(table_law, direction, kind):
    options = {"samples": 20, "direction": direction, "seed": 1}
    exact = plan_kl(table_law.oracle(), PLAN, **options)
    found = plan_kl(oracle_of(table_law, kind), PLAN, **options)
    assert found.per_sample == pytest.approx(exact.per_sample, abs=1e-6)
    assert found.ledger == exact.ledger


@pytest.mark.parametrize(
    ("options", "probes", "stages"),
    [
        ({}, 4, 3),  # two batches, and two steps of the first
        ({"terms": 1}, 3, 3),
        ({"direction": "joint"}, 4, 4),
    ],
)
def test_what_pricing_costs_is_what_was_asked(table_law, options, probes, stages):
    counted = CountingOracle(table_law.oracle())
    kl = plan_kl(counted, [[0, 1, 2], [3]], samples=6, **options)
    assert (kl.ledger.probes, kl.ledger.stages) == (6 * probes, stages)
    assert kl.ledger.evaluations == counted.states
    assert kl.ledger.rows_read == counted.rows_read
    assert kl.ledger.commits == 0


def test_one_position_at_a_time_costs_no_nats(table_law):
    for direction in ("product", "joint"):
        kl = plan_kl(table_law.oracle(), [[2], [0], [3], [1]], samples=5, direction=direction)
        assert kl.value == kl.standard_error == 0.0
        assert kl.per_round.tolist() == [0.0] * 4


def test_a_plan_without_batches_is_free(table_law):
    kl = plan_kl(table_law.oracle(), [], samples=3)
    assert kl.value == 0
    assert kl.ledger.evaluations == 0


def test_plans_are_batches_that_were_planned(table_law):
    oracle = table_law.oracle()
    rng = np.random.default_rng(1)
    one, other = (random_plan(None, batches, rng, 4) for batches in (2, 3))
    listed = [list(one.batches), list(other.batches)]
    for plans, batches in ((one, listed[0]), ([one], listed[:1]), ([one, other], listed)):
        found = plan_kl(oracle, plans, samples=4, seed=2)
        assert np.array_equal(
            found.per_sample, plan_kl(oracle, batches, samples=4, seed=2).per_sample
        )


def test_a_single_sample_has_no_standard_error(table_law):
    kl = plan_kl(table_law.oracle(), PLAN, samples=1)
    assert math.isnan(kl.standard_error)
    low, high = kl.interval
    assert low < kl.value < high <= kl.most
    assert kl.passes(high) and not kl.passes(0.99 * high)


def test_an_infinite_price_is_said():
    copied = cp.TableLaw(np.diag([0.5, 0.5]))
    with pytest.warns(cp.errors.ZeroProbabilityWarning):
        kl = plan_kl(copied.oracle(), [[0, 1]], samples=3)
    assert kl.value == math.inf
    assert math.isnan(kl.standard_error)


@pytest.mark.parametrize(
    ("plans", "options", "message"),
    [
        (PLAN, {"samples": 0}, "samples must be at least 1, got 0"),
        (PLAN, {"terms": 0}, "terms must be at least 1, got 0"),
        (PLAN, {"at_once": 0}, "at_once must be at least 1, got 0"),
        (PLAN, {"direction": "forward"}, "direction must be one of product, joint; got 'forward'"),
        (PLAN, {"terms": 1, "direction": "joint"}, "terms must be left out"),
        (PLAN, {"given": [0, -1, -1, -1]}, "position 0 is committed already"),
        (PLAN, {"given": [[0, -1, -1, -1]] * 3}, r"given must have shape \(4,\) or \(2, 4\)"),
        ([[0, 1], [1]], {}, "position 1 is committed already"),
        ([[0, 4]], {}, "batch positions must lie in 0..3"),
        ([[], [1]], {}, "a batch must be a non-empty list"),
        ([PLAN, [[0, 0]]], {}, "must not name a position twice"),
    ],
)
def test_bad_plans_are_refused(table_law, plans, options, message):
    with pytest.raises(ValueError, match=message):
        plan_kl(table_law.oracle(), plans, **{"samples": 2, **options})


def test_what_is_no_oracle_is_refused(table_law):
    with pytest.raises(ValueError, match="oracle must have length"):
        plan_kl(table_law, PLAN, samples=2)


# ----- Finished runs ------------------------------------------------------------------------


def plain_run_kl(oracle, run, index, seed):
    """One finished run, one row at a time."""
    rng = keyed_generator(seed, "chain order", index)
    state, total = run.given.copy(), 0.0
    for batch in run.batches:
        order = rng.permutation(batch) if len(batch) > 1 else batch
        start = oracle.rows(state[None, :], Readouts.same(1, order))
        after = state.copy()
        for k in range(1, len(order)):
            after[order[k - 1]] = run.tokens[order[k - 1]]
            rows = oracle.rows(after[None, :], Readouts.same(1, order[k:]))
            total += float(start.take(np.arange(k, len(order))).kl(rows).mean())
        state[batch] = run.tokens[batch]
    return total


@pytest.mark.parametrize("at_once", [1, 3, 256])
@pytest.mark.parametrize("name", ["random-balanced", "entropy-bounded", "one-batch"])
def test_runs_are_priced_as_one_by_one(law, name, at_once):
    oracle = law.oracle()
    known = {"random-balanced": {"batches": 3}, "entropy-bounded": {"gamma": 2.0}}
    settings = known.get(name, {})
    batch = cp.sample(oracle, name, count=5, progress=False, orders="fresh", **settings)
    kl = run_kl(oracle, batch, seed=8, at_once=at_once)
    expected = [plain_run_kl(oracle, run, k, 8) for k, run in enumerate(batch.results)]
    assert kl.per_sample == pytest.approx(expected, abs=1e-12)
    assert kl.value == pytest.approx(np.mean(expected))
    assert kl.ledger.stages == 1
    states = [sum(len(b) for b in run.batches if len(b) > 1) for run in batch.results]
    assert kl.ledger.evaluations == sum(states)


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["random-balanced", "maskgit"])
def test_price_of_runs_is_their_batch_kl(table_law, name, seed_of, false_alarms):
    """800 runs, those with values drawn before the batch among them; half of it is seen."""
    oracle = table_law.oracle()
    sampler = {"random-balanced": cp.samplers.RandomBalanced(2), "maskgit": cp.samplers.MaskGIT(2)}
    batch = cp.sample(oracle, sampler[name], 800, seed=seed_of(41), progress=False)
    kl = run_kl(oracle, batch, seed=seed_of(42))
    known = {}
    for run in batch.results:
        key = run.tokens.tobytes(), run.round_of_position.tobytes()
        if key not in known:
            known[key] = cp.evaluation.batch_kl(table_law, run).value
    exact = [known[run.tokens.tobytes(), run.round_of_position.tobytes()] for run in batch.results]
    difference = kl.per_sample - np.array(exact)
    error = difference.std(ddof=1) / math.sqrt(len(difference))
    level = false_alarms / 2
    assert 2 * stats.norm.sf(abs(difference.mean()) / error) > level
    assert 2 * stats.norm.sf(abs(difference.mean() + np.mean(exact) / 2) / error) < level
    assert kl.ledger.stages == (2 if name == "maskgit" else 1)


def test_a_sequential_run_costs_nothing_to_price(table_law):
    oracle = table_law.oracle()
    kl = run_kl(oracle, cp.sample(oracle, "sequential", 3, progress=False))
    assert kl.value == 0
    assert kl.ledger.evaluations == 0
    assert kl.per_round.shape == (4,)


def test_a_run_with_nothing_to_fill_in_costs_nothing(table_law):
    oracle = table_law.oracle()
    batch = cp.sample(oracle, "one-batch", 2, given=[0, 1, 2, 0], progress=False)
    kl = run_kl(oracle, batch)
    assert kl.value == 0
    assert kl.per_round.shape == (0,)


def test_one_result_and_a_list_of_results_are_runs_too(table_law):
    oracle = table_law.oracle()
    batch = cp.sample(oracle, "one-batch", 2, progress=False)
    both = run_kl(oracle, list(batch.results))
    assert both.per_sample[0] == run_kl(oracle, batch.results[0]).value
    assert both.value == run_kl(oracle, batch).value


def test_few_terms_are_charged_as_few(forest_law):
    oracle = CountingOracle(forest_law.oracle())
    batch = cp.sample(oracle, "one-batch", 4, progress=False)
    before = oracle.states
    kl = run_kl(oracle, batch, terms=2)
    assert kl.ledger.evaluations == oracle.states - before == 4 * 3


def test_runs_that_the_measure_does_not_fit_are_refused(table_law, forest_law):
    oracle = table_law.oracle()
    warm = cp.sample(oracle, "one-batch", 2, temperature=0.5, progress=False)
    with pytest.raises(ValueError, match=r"temperature 1, got 0\.5.*of the oracle instead"):
        run_kl(oracle, warm)
    short = cp.sample(oracle, "sequential", 2, max_evaluations=1, progress=False)
    with pytest.raises(ValueError, match=r"must be complete.*budget-spent; leave it out"):
        run_kl(oracle, short)
    other = cp.sample(forest_law.oracle(), "one-batch", 1, progress=False)
    with pytest.raises(ValueError, match="pass the one it used"):
        run_kl(oracle, other)
    with pytest.raises(ValueError, match="at least one finished run, got none"):
        run_kl(oracle, [])
    with pytest.raises(ValueError, match="terms must be at least 1, got 0"):
        run_kl(oracle, other, terms=0)


def test_errors_count_plans_where_samples_share_them():
    law = cp.families.matching(16, target_seed=1)
    rng = np.random.default_rng(0)
    plans = [np.array_split(rng.permutation(16), 2) for _ in range(240)]
    found = [
        plan_kl(law.oracle(), plans[4 * k : 4 * k + 4], samples=32, seed=k) for k in range(60)
    ]
    spread = np.std([kl.value for kl in found], ddof=1)
    stated = np.sqrt(np.mean([kl.standard_error**2 for kl in found]))
    # Over 60 repeats the ratio of variances leaves (0.4, 2.5) once in a million if it is right.
    assert 0.4 < (spread / stated) ** 2 < 2.5
