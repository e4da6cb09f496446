"""What trials of one sampler sum up to."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation.comparison import compare_sampler, swept
from counterprobe.evaluation.trial import run_trial
from counterprobe.samplers import (
    SAMPLERS,
    CentroidLayers,
    OneBatch,
    PackedTheory,
    RandomBalanced,
    Threshold,
)

LAW = cp.families.path(40, target_seed=2)


def test_means_and_standard_errors_are_over_the_runs():
    found = compare_sampler(LAW, RandomBalanced(5), [1, 2, 3, 4])
    values = [run_trial(LAW, RandomBalanced(5), cp.Streams.from_seed(k)).kl.value
              for k in (1, 2, 3, 4)]  # fmt: skip
    assert found.batch_kl == pytest.approx(np.mean(values))
    assert found.batch_kl_se == pytest.approx(np.std(values, ddof=1) / 2)
    assert found.mean("total") == found.mean("depth") == 5
    assert found.tokens_per_forward == 40 / 5
    assert not found.is_exact
    assert found.refusal is None


def test_a_single_run_has_the_error_of_its_measure():
    found = compare_sampler(LAW, OneBatch(), [1])
    assert found.batch_kl_se == found.trials[0].kl.standard_error


def test_exactness_is_claimed_at_this_length():
    assert compare_sampler(LAW, RandomBalanced(40), [1]).is_exact
    assert compare_sampler(LAW, Threshold(1.5), [1]).is_exact
    assert compare_sampler(LAW, CentroidLayers(), [1]).is_exact
    assert not compare_sampler(LAW, Threshold(0.9), [1]).is_exact


def test_an_infeasible_sampler_has_no_means():
    found = compare_sampler(LAW, PackedTheory(), [1, 2])
    assert found.completed == []
    assert math.isnan(found.batch_kl)
    assert math.isnan(found.tokens_per_forward)
    assert math.isnan(found.batch_kl_se)
    assert math.isnan(found.mean("total"))
    assert "exceeds" in found.refusal


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_every_sweep_builds_and_spans_a_range(name):
    points = swept(SAMPLERS[name](), 100)
    sweep = SAMPLERS[name].sweep
    if sweep is None:
        assert points == [SAMPLERS[name]()]
        return
    values = [getattr(point, sweep.setting) for point in points]
    assert len(values) >= 5
    assert values == sorted(set(values))
    if isinstance(values[0], int):
        assert max(values) <= 100


def test_an_error_ends_one_sampler_and_is_kept():
    laws = [LAW, cp.TableLaw(np.ones((2,) * 3))]
    found = compare_sampler(laws, CentroidLayers(), [1, 2])
    assert len(found.trials) == 2
    assert not found.is_exact
    assert "needs a forest" in found.problem
    assert found.refusal == found.problem
    nothing = compare_sampler(laws[1:], CentroidLayers(), [1])
    assert math.isnan(nothing.seconds)
