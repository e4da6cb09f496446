"""Output laws by walking every draw: they agree with forced replay, and with what is drawn."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation import draw_tree, draw_tree_law, exact_output_law
from counterprobe.samplers import PUNT, InfoGain, LLaDA, MaskGIT, OneBatch, Sequential, Threshold

THREE = cp.TableLaw(np.random.default_rng(2).dirichlet(np.full(8, 0.5)).reshape((2,) * 3))


@pytest.mark.parametrize(
    "sampler",
    [OneBatch(), Sequential("random"), Threshold(0.6), LLaDA(2), MaskGIT(2, confidence="row")],
    ids=lambda sampler: sampler.name,
)
def test_it_agrees_with_forced_replay(sampler):
    for seed in range(3):
        tree = draw_tree_law(THREE, sampler, decision_seed=seed)
        replay = exact_output_law(THREE, sampler, decision_seed=seed)
        assert tree == pytest.approx(replay.output, abs=1e-14)


@pytest.mark.statistical
def test_it_is_the_law_that_is_drawn(chi_square, false_alarms, seed_of):
    # 1,500 draws over eight sequences see a chi-square distance of 0.03 with probability 0.99.
    law = cp.ForestLaw([[1, 2], [3, 2], [1, 1]], [[0, 2], [2, 1]], [[1, 4], [3, 1]])
    samplers = [PUNT(0.02), InfoGain(3, threshold=0.9)]
    for sampler in samplers:
        expected = draw_tree_law(law, sampler, decision_seed=4)
        counts = np.zeros((2,) * 3)
        for k in range(1_500):
            run = cp.Unmasking(law.oracle(), sequence=k)
            counts[tuple(sampler(run, cp.Streams(4, seed_of(17))).tokens)] += 1
        assert chi_square(counts, expected) > false_alarms / len(samplers)


def test_an_infeasible_sampler_has_no_law():
    law = cp.ForestLaw(np.ones((10, 2)), [], np.ones((2, 2)))
    assert draw_tree_law(law, cp.samplers.PackedTheory()) is None


def test_too_many_ways_to_draw_are_refused(monkeypatch):
    monkeypatch.setattr(draw_tree, "MAX_REPLAYS", 10)
    with pytest.raises(ValueError, match="has more than 10 ways to draw"):
        draw_tree_law(THREE, Sequential())
