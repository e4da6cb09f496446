"""What trials of one sampler sum up to."""

import math
import pickle
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import families, samplers
from counterprobe.evaluation.comparison import compare_on, compare_sampler, swept
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
    assert found.mean("evaluations") == found.mean("stages") == 5
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
    assert math.isnan(found.mean("evaluations"))
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


# ----- On an executor ----------------------------------------------------------------------


LAWS, SEEDS = [families.path(12, 1), families.path(12, 2)], [3, 4]


class Death(Exception):
    """Ends the worker that raises it."""


class Losing(Executor):
    """This thread, as if a task could end it."""

    num_workers = 1

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        reply = fn(*args, **kwargs)
        if reply is not None and isinstance(pickle.loads(reply)[1], Death):
            future.set_exception(BrokenExecutor("it died"))
        else:
            future.set_result(reply)
        return future


@dataclass(frozen=True)
class Deadly(samplers.OneBatch):
    """One batch, after so many deaths of each run."""

    name: ClassVar[str] = "deadly"
    deaths: int = 0
    died: ClassVar[dict] = {}

    def unmask(self, view, rng):
        run = self.deaths, rng.seed
        self.died[run] = self.died.get(run, 0) + 1
        if self.died[run] <= self.deaths:
            raise Death
        return super().unmask(view, rng)


def outcomes(entry):
    return [(trial.result.tokens.tolist(), trial.result.ledger) for trial in entry.trials]


def test_a_run_whose_workers_die_is_made_again_and_one_that_always_dies_fails_alone():
    losses = []
    Deadly.died.clear()
    rules = [Deadly(1), Deadly(100), samplers.OneBatch()]
    one, other, last = compare_on(Losing, LAWS, rules, SEEDS, draws=None, on_loss=losses.append)
    alone = compare_sampler(LAWS, samplers.OneBatch(), SEEDS, draws=None)
    assert outcomes(one) == outcomes(last) == outcomes(alone)
    assert one.problem is last.problem is None
    assert "BrokenExecutor: it died (3 times for one piece)" in other.problem
    assert other.trials == ()
    assert all("it died" in said for said in losses)
