"""Three readings of the same probes: today's is the library's, the others hold rows."""

import numpy as np
import soft_messages

import counterprobe as cp
from counterprobe.discovery.soft import SoftSettings, soft_screen
from counterprobe.discovery.soft.readings import Readings

SETTINGS = SoftSettings(probes=40, first=40)


def law() -> cp.ForestLaw:
    rng = np.random.default_rng(0)
    edges = [(k, k + 1) for k in range(9)]
    return cp.ForestLaw(
        np.exp(rng.normal(size=(10, 4))), edges, np.exp(rng.normal(size=(9, 4, 4)))
    )


def test_reading_as_today_is_the_soft_screen():
    decisions = cp.Streams.from_seed(1).decisions
    screen = soft_messages.Screen(cp.run.Run(law().oracle()), decisions, SETTINGS)
    found = screen.in_every_way(40)
    today = cp.run.Run(law().oracle()).call(soft_screen, decisions, SETTINGS)
    assert set(found) == set(soft_messages.WAYS)
    assert np.array_equal(found["today"].strength, today.strength)
    assert np.array_equal(found["today"].edges, today.edges)
    assert not np.array_equal(found["instead"].strength, today.strength)
    assert not np.array_equal(found["beside"].strength, today.strength)


def test_a_masked_source_has_its_own_row():
    run = cp.run.Run(law().oracle())
    screen = soft_messages.Screen(run, cp.Streams.from_seed(1).decisions, SETTINGS)
    readings = Readings(screen.coordinates, screen.residual, screen.sources.num_levels)
    screen.submit(readings, 40)
    ways = {way: screen.columns(readings, way).reshape(40, 10, -1) for way in soft_messages.WAYS}
    is_masked = readings.levels == readings.num_levels - 1
    for columns in ways.values():  # what was shown is read as it was
        assert np.array_equal(columns[~is_masked], ways["today"][~is_masked])
    probe, s = readings.probe[3, 5], 3
    row = np.exp(readings.logs[s, 5])[screen.sources.tokens[s]]
    assert np.allclose(ways["instead"][probe, s], [*(row / row.sum())[1:], 0.0])
    every = np.exp(readings.logs[s])[:, screen.sources.tokens[s]].mean(axis=0)
    assert np.allclose(ways["beside"][probe, s], [*(row - every)[1:], 1.0], atol=1e-6)


def test_a_model_is_judged_by_a_longer_screen_and_the_price_of_plans(monkeypatch):
    monkeypatch.setattr(soft_messages, "REFERENCE_PROBES", 128)
    monkeypatch.setattr(soft_messages, "PLANNED_BATCHES", 3)
    oracle = law().oracle()
    reference = soft_messages.reference_of(oracle)
    runs = [soft_messages.measure_model(oracle, reference, 64, seed) for seed in range(2)]
    means = soft_messages.mean_of(runs)
    assert set(means) == set(soft_messages.WAYS)
    today = means["today"]
    assert 0 < today["found"] <= today["true"] <= 2 * 10
    prices = [run["today"]["plan_nats"] for run in runs]
    assert today["plan_nats"] == np.mean(prices)
    assert np.isclose(today["plan_nats_se"], abs(prices[0] - prices[1]) / 2)
    assert 0 <= min(prices) <= reference.strength.sum() / 2
