"""What is measured of a run: its batches, its context, its oracle; the reference; refusals."""

import dataclasses
import math

import numpy as np
import pytest

import counterprobe as cp
from batch_kl_definition import CLOSE, assert_measured, draw_case, enumerate_kl, star
from counterprobe.arrays import FloatArray
from counterprobe.evaluation import (
    BatchKL,
    BatchKLMeter,
    batch_kl,
    batch_kl_of_batches,
    reference_kl,
)
from counterprobe.samplers import OneBatch, RandomBalanced, Sampler
from counterprobe.samplers.base import Infeasible

STREAMS = cp.Streams(3, 4)


# ----- What a run hands over --------------------------------------------------------------------


@pytest.fixture(scope="module")
def coupled() -> cp.ForestLaw:
    return cp.families.random_recursive_tree(length=64, target_seed=8)


def test_a_run_is_measured_along_its_own_batches(coupled):
    result = RandomBalanced(6)(cp.run.Run(coupled.oracle()), STREAMS)
    measured = batch_kl(coupled, result, draws=300, seed=5)
    by_hand = batch_kl_of_batches(coupled, result.tokens, result.batches, draws=300, seed=5)
    assert measured.value == by_hand.value > 0
    assert np.array_equal(measured.per_round, by_hand.per_round)


def test_given_context_is_part_of_the_history():
    case = draw_case(2)
    law = case.parts.law
    given = np.where(np.arange(law.length) % 3 == 0, case.tokens, cp.MASK)
    result = OneBatch()(cp.run.Run(law.oracle(), given=given), STREAMS)
    exact = enumerate_kl(case.parts.table, result.tokens, result.batches, given)
    measured = batch_kl(law, result)
    assert_measured(measured, exact)
    ignored = enumerate_kl(case.parts.table, result.tokens, result.batches)
    assert measured.value != pytest.approx(ignored.value, rel=1e-3)


def test_measuring_asks_the_oracle_nothing(coupled, counted):
    oracle = counted(coupled.oracle())
    named = oracle.declaring(name=coupled.oracle().name)
    result = RandomBalanced(5)(cp.run.Run(named), STREAMS)
    asked, ledger = oracle.calls, result.ledger
    assert asked == ledger.evaluations == 5
    assert batch_kl(coupled, result).value > 0
    assert oracle.calls == asked
    assert result.ledger == ledger


def test_the_oracle_of_a_noisy_run_must_be_named(coupled, uniform_oracle):
    oracle = uniform_oracle(64, 2048, name="uniform model")
    result = RandomBalanced(4)(cp.run.Run(oracle), STREAMS)
    with pytest.raises(ValueError, match=r"'uniform model', not 'exact .*'; pass .* as oracle="):
        batch_kl(coupled, result)
    with pytest.raises(ValueError, match="'uniform model', not 'another'"):
        batch_kl(coupled, result, oracle=uniform_oracle(64, 2048, name="another"))
    measured = batch_kl(coupled, result, oracle=oracle)
    assert measured.row_part > 1


def test_an_exact_run_is_not_measured_with_another_oracle(coupled, uniform_oracle):
    result = OneBatch()(cp.run.Run(coupled.oracle()), STREAMS)
    with pytest.raises(ValueError, match="'exact random-recursive-tree', not 'callable'"):
        batch_kl(coupled, result, oracle=uniform_oracle(64, 2048))


def test_another_law_is_refused(coupled):
    result = OneBatch()(cp.run.Run(coupled.oracle()), STREAMS)
    with pytest.raises(ValueError, match="oracle"):
        batch_kl(cp.families.path(length=64), result)
    with pytest.raises(ValueError, match="tokens must have shape"):
        batch_kl(cp.families.random_recursive_tree(length=65), result)


class Refusing(Sampler):
    """Never starts."""

    name = "refusing"

    def unmask(self, view, rng):
        raise Infeasible("no feasible threshold")


def assert_not_measured(measured: BatchKL) -> None:
    parts = (
        measured.value, measured.standard_error, measured.row_part, measured.dependence_part,
    )  # fmt: skip
    assert all(math.isnan(part) for part in parts)
    assert len(measured.per_round) == 0
    assert not measured.passes(math.inf)


def test_a_run_that_verifies_is_not_measured(coupled):
    result = OneBatch()(cp.run.Run(coupled.oracle()), STREAMS)
    for used in (
        cp.Need.VERIFY,
        cp.Need.REMASK,
        cp.Need.VERIFY | cp.Need.SELECT,
    ):
        assert_not_measured(batch_kl(coupled, dataclasses.replace(result, used=used)))
    selecting = dataclasses.replace(result, used=cp.Need.SELECT)
    assert batch_kl(coupled, selecting).value > 0


def test_an_infeasible_run_is_not_measured(coupled):
    result = Refusing()(cp.run.Run(coupled.oracle()), STREAMS)
    assert result.stop is cp.StopReason.INFEASIBLE
    assert_not_measured(batch_kl(coupled, result))


def test_a_run_passes_with_two_standard_errors_to_spare():
    measured = BatchKL(1.0, 0.25, 0.0, 1.0, np.ones(1), 0, 1, 5)
    assert measured.passes(1.5)
    assert not measured.passes(1.4999999)
    assert not measured.passes(1.0)
    assert BatchKL(0.0, 0.0, 0.0, 0.0, np.zeros(1), 0, 0, 0).passes(0.0)


# ----- The reference ----------------------------------------------------------------------------


@pytest.mark.parametrize("family", cp.families.FAMILIES)
def test_the_reference_is_one_batch_and_a_sum_over_edges(family):
    law = cp.families.build(family, 120, 6)
    reference = reference_kl(law)
    result = OneBatch()(cp.run.Run(law.oracle()), STREAMS)
    assert reference == batch_kl(law, result).value
    by_edges = 0.0
    for (i, j), joint in zip(law.edges, law.pair_marginals, strict=True):
        ideal = np.outer(law.class_marginals[i], law.class_marginals[j])
        by_edges += float((ideal * np.log(ideal / joint)).sum())
    assert reference == pytest.approx(by_edges, rel=1e-9)
    # Control: the other direction is the total correlation, another number.
    assert reference != pytest.approx(law.total_correlation(), rel=1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_the_reference_matches_the_definition(seed):
    parts = draw_case(4000 + seed).parts
    everything = [np.arange(parts.length)]
    exact = enumerate_kl(parts.table, np.zeros(parts.length, int), everything)
    assert reference_kl(parts.law) == pytest.approx(exact.value, **CLOSE)


# The paper's table of targets, N = 2048: one target draw each.
PAPER = {
    "matching": 63.75289,
    "path": 28.01962,
    "binary-tree": 12.26162,
    "growing-stars": 0.0513893,
}


def agrees(draws: FloatArray, published: float) -> bool:
    """Whether a published draw lies within three standard deviations or 4% of the mean."""
    gap = abs(draws.mean() - published)
    return bool(gap <= max(3 * draws.std(ddof=1), 0.04 * published))


@pytest.mark.parametrize("family", PAPER)
def test_the_reference_agrees_with_the_paper(family):
    draws = np.array([reference_kl(cp.families.build(family, 2048, seed)) for seed in range(8)])
    assert agrees(draws, PAPER[family])
    # Control: a quarter more weight does not agree, nor does another size.
    weight = 1.1 * cp.families.SHAPES[family].weight(2048)
    heavier = [
        reference_kl(cp.families.build(family, 2048, seed, weight=weight)) for seed in range(8)
    ]
    assert not agrees(np.array(heavier), PAPER[family])


# ----- Bad arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batches": [[0, 0]]}, "twice"),
        ({"batches": [[0], [0, 1]]}, "position 0 is committed already"),
        ({"batches": [[5]]}, r"must lie in 0\.\.4, got 5\.\.5"),
        ({"batches": [[-1, 0]]}, r"must lie in 0\.\.4, got -1\.\.0"),
        ({"batches": [[]]}, "non-empty"),
        ({"batches": [[0.5, 1.0]]}, "list of positions"),
        ({"batches": [[True, False, True, False, False]]}, "list of positions"),
        ({"batches": [[1]], "given": [-1, 0, -1, -1, -1]}, "position 1 is committed already"),
        ({"tokens": [0, 0, -1, 0, 0]}, "tokens must have a value"),
        ({"tokens": [0, 0, 0]}, r"tokens must have shape"),
        ({"tokens": [0, 0, 9, 0, 0]}, "tokens must hold tokens"),
        ({"given": [0]}, "given must have shape"),
        ({"draws": 1}, "draws must be at least 2, got 1"),
        ({"seed": -1}, "seed must be a non-negative integer, got -1"),
    ],
)
@pytest.mark.parametrize("kind", ["forest", "table"])
def test_bad_arguments_are_refused(kind, change, message):
    forest = cp.ForestLaw(np.ones((5, 2)), star(4), [[3, 1], [1, 2]])
    sequences = np.indices((2,) * 5).reshape(5, -1).T
    table = cp.TableLaw(np.exp(forest.log_prob(sequences)).reshape((2,) * 5))
    options = {"tokens": [0] * 5, "batches": [[1, 2, 3]], **change}
    with pytest.raises(ValueError, match=message):
        batch_kl_of_batches({"forest": forest, "table": table}[kind], **options)


def test_a_meter_reads_the_same_as_it_goes():
    law = cp.families.growing_stars(60, 3)
    result = cp.samplers.RandomBalanced(7)(cp.run.Run(law.oracle()), cp.Streams(1, 2))
    whole = batch_kl(law, result, draws=16, seed=4)
    meter = BatchKLMeter(law, draws=16, seed=4)
    state = np.full(60, cp.MASK, dtype=np.int32)
    for k, batch in enumerate(result.batches):
        meter.add(state, batch)
        state[batch] = result.tokens[batch]
        assert meter.value == pytest.approx(whole.per_round[: k + 1].sum(), rel=1e-12)
    total = meter.total()
    assert (total.value, total.standard_error) == (whole.value, whole.standard_error)
    assert total.num_sampled == whole.num_sampled > 0
    with pytest.raises(ValueError, match="draws must be at least 2"):
        BatchKLMeter(law, draws=1)
