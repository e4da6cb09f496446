"""Commits by plan: what it must know, what it breaks, and that its seeds plan afresh."""

import json
import math
import pickle

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.planning import make_plan
from counterprobe.samplers import SAMPLERS, Planned, RandomBalanced, build_sampler
from fixed import batches_of

STREAMS = cp.Streams(3, 4)


def rounds(sampler: Planned, length: int, seed: int) -> list[list[int]]:
    batches = batches_of(sampler, np.arange(length), cp.Streams(seed, 0).decisions)
    return [batch.tolist() for batch in batches]


@pytest.fixture(scope="module")
def law() -> cp.ForestLaw:
    return cp.families.build("random-recursive-tree", 64, 3, weight=0.8)


def test_few_planned_batches_break_a_small_part_of_what_random_ones_break(law) -> None:
    planned = Planned(4).informed_by(law)
    broken = {planned: [], RandomBalanced(4): []}
    for seed in range(12):
        for sampler, found in broken.items():
            result = sampler(cp.run.Run(law.oracle()), cp.Streams.from_seed(seed))
            assert result.ledger.evaluations == result.ledger.commits == 4
            found.append(cp.evaluation.batch_kl(law, result, draws=16).value)
    mean, at_random = (float(np.mean(found)) for found in broken.values())
    assert mean < 0.1 * at_random


def test_layers_of_a_forest_it_is_told_break_nothing(law) -> None:
    result = Planned(target_kl=0.0).informed_by(law)(cp.run.Run(law.oracle()), STREAMS)
    assert cp.evaluation.batch_kl(law, result).value == 0.0
    assert result.ledger.commits <= 7


def test_sequences_side_by_side_share_a_plan_and_fresh_orders_do_not(law, counted) -> None:
    sampler = Planned(4).informed_by(law)
    shared = cp.sample(counted(law.oracle()), sampler, 6, seed=STREAMS, progress=False)
    assert shared.ledger.stages == 4
    assert shared.ledger.evaluations == 24
    assert len({tuple(result.round_of_position) for result in shared.results}) == 1
    fresh = cp.sample(law.oracle(), sampler, 6, seed=STREAMS, orders="fresh", progress=False)
    assert len({tuple(result.round_of_position) for result in fresh.results}) == 6


def test_every_decision_seed_has_its_own_plan(law) -> None:
    sampler = Planned(4).informed_by(law)
    assert rounds(sampler, 64, 1) == rounds(sampler, 64, 1)
    assert rounds(sampler, 64, 1) != rounds(sampler, 64, 2)


def test_batches_are_those_of_the_plan_it_shows(law) -> None:
    sampler = Planned(target_kl=0.2, method="search").informed_by(law)
    plan = sampler.plan(np.arange(64), STREAMS.decisions)
    expected = make_plan(
        sampler.strength,
        target_kl=0.2,
        method="search",
        rng=STREAMS.decisions("plan"),
    )
    assert [b.tolist() for b in plan.batches] == [b.tolist() for b in expected.batches]
    assert rounds(sampler, 64, 3) == [b.tolist() for b in plan.batches]
    assert plan.estimated_kl <= 0.2


def test_given_positions_are_left_out(law) -> None:
    given = np.full(64, cp.MASK)
    given[[0, 7, 9]] = 1
    result = Planned(4).informed_by(law)(cp.run.Run(law.oracle(), given=given), STREAMS)
    assert np.sort(np.concatenate(result.batches)).tolist() == np.flatnonzero(given < 0).tolist()


def test_as_many_batches_as_positions_are_exact(law) -> None:
    assert Planned(64).exact_for(64)
    assert Planned().exact_for(16)
    assert not Planned().exact_for(17)
    assert not Planned(target_kl=0.0).exact_for(2)
    result = Planned(64).informed_by(law)(cp.run.Run(law.oracle()), STREAMS)
    assert result.ledger.commits == 64


def test_without_strengths_it_says_how_to_get_them(law, counted) -> None:
    oracle = counted(law.oracle())
    with pytest.raises(ValueError, match=r'discover\(oracle, mode="soft"\), then sample\('):
        Planned(8)(cp.run.Run(oracle), STREAMS)
    with pytest.raises(ValueError, match="'planned' needs strength, how much positions tell"):
        cp.sample(oracle, "planned", 2, progress=False)
    assert oracle.calls == 0


def test_only_forests_of_some_size_tell_their_strengths(table_law, monkeypatch, law) -> None:
    with pytest.raises(ValueError, match="needs strengths, which only a forest of at most 4096"):
        Planned().informed_by(table_law)
    monkeypatch.setattr("counterprobe.samplers.planned.MOST_POSITIONS", 63)
    with pytest.raises(ValueError, match="a forest of at most 63 positions"):
        Planned().informed_by(law)
    told = Planned(strength=np.zeros((4, 4)))
    assert told.informed_by(table_law) is told


def test_what_a_forest_tells_is_the_information_of_its_edges(law) -> None:
    strength = Planned().informed_by(law).strength
    assert np.array_equal(strength, strength.T)
    assert np.count_nonzero(strength) == 2 * len(law.edges)
    assert strength[tuple(law.edges.T)] == pytest.approx(law.edge_information())


def test_positions_it_says_nothing_about_are_refused(law, counted) -> None:
    strength = np.array(Planned().informed_by(law).strength)
    strength[9] = strength[:, 9] = math.nan
    sampler = Planned(4, strength=strength)
    oracle = counted(law.oracle())
    with pytest.raises(ValueError, match="position 9 was not masked when this structure"):
        sampler(cp.run.Run(oracle), STREAMS)
    with pytest.raises(ValueError, match="position 63 was not masked when this structure"):
        Planned(4, strength=strength[:60, :60])(cp.run.Run(oracle), STREAMS)
    assert oracle.calls == 0
    given = np.full(64, cp.MASK)
    given[9] = 0
    assert sampler(cp.run.Run(oracle, given=given), STREAMS).ledger.commits == 4


def test_strengths_are_no_setting_and_cannot_be_edited() -> None:
    mine = np.zeros((3, 3))
    sampler = Planned(2, strength=mine)
    assert "strength" not in sampler.settings
    assert "strength" not in repr(sampler)
    assert sampler == Planned(2)
    assert hash(sampler) == hash(Planned(2))
    assert Planned(**json.loads(json.dumps(sampler.settings))) == sampler
    mine[0, 1] = 5.0
    assert not sampler.strength.any()
    with pytest.raises(ValueError, match="read-only"):
        sampler.strength[0, 1] = 1.0
    assert pickle.loads(pickle.dumps(sampler)).strength.shape == (3, 3)


def test_it_is_registered_without_needs_and_takes_strengths_by_name(law) -> None:
    assert SAMPLERS["planned"] is Planned
    assert Planned().needs == cp.Need.NONE
    assert build_sampler("planned", {"target_kl": "0.1"}) == Planned(target_kl=0.1)
    strength = Planned().informed_by(law).strength
    batch = cp.sample(law.oracle(), "planned", 2, batches=4, strength=strength, progress=False)
    assert batch.results[0].ledger.commits == 4
    assert batch.results[0].settings["batches"] == 4


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"batches": 2, "target_kl": 0.1}, "exactly one of .*; got batches and target_kl"),
        ({"batches": 0}, "batches must be at least 1, got 0"),
        ({"target_kl": -1.0}, "target_kl must be a number of nats"),
        ({"method": "best"}, "method must be one of auto, layers, search; got 'best'"),
        ({"strength": np.zeros(3)}, r"strength must have shape \(N, N\), got \(3,\)"),
    ],
)
def test_wrong_settings_are_refused(settings, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        Planned(**settings)
