"""Certificates hold where they are used: laws that look settled to every probe."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.probing.compressed import CompressedSettings, compressed_screen
from counterprobe.probing.compressed.certify import REHEARSALS
from counterprobe.samplers import Compressed
from counterprobe.testing import HiddenTopic


def findings_of(oracle: cp.Oracle, seed: int = 1, **settings: object):
    """Run a screen."""
    run = cp.Unmasking(oracle)
    decisions = cp.Streams.from_seed(seed).decisions
    return compressed_screen(run, decisions, CompressedSettings(**settings))


def product_to_joint(topic: HiddenTopic, result: cp.SampleResult, draws: int = 8) -> float:
    """Estimate the KL of every batch of a run from product to joint, by the chain rule."""
    rng = np.random.default_rng(0)
    state = np.full((1, topic.length), cp.MASK, dtype=np.int32)
    total = 0.0
    for r in range(result.ledger.commits):
        batch = np.flatnonzero(result.round_of_position == r)
        if len(batch) > 1:
            rows = topic.rows(state, cp.Readouts.same(1, batch))
            for _ in range(draws):
                drawn = rows.draw(rng.random(len(batch)))
                total += float(rows.log_prob(drawn).sum()) / draws
                filled = state.copy()
                for i, token in zip(batch, drawn, strict=True):
                    row = topic.rows(filled, cp.Readouts.same(1, [i]))
                    total -= float(row.log_prob(np.array([token]))[0]) / draws
                    filled[0, i] = token
        state[0, batch] = result.tokens[batch]
    return total


TOPICS = {
    "concentrated": HiddenTopic.concentrated,
    "less concentrated": lambda length, seed: HiddenTopic.concentrated(length, seed, 0.7),
    "equal marginals": lambda length, _: HiddenTopic.with_equal_marginals(length),
    "weak, equal marginals": lambda length, _: HiddenTopic.with_equal_marginals(length, 0.6),
}


@pytest.mark.parametrize("kind", TOPICS)
@pytest.mark.parametrize("length", [32, pytest.param(128, marks=pytest.mark.slow)])
def test_a_hidden_topic_is_kept(kind: str, length: int) -> None:
    # All probes may look settled, or next to all; whatever is committed together is independent.
    for seed in range(3):
        topic = TOPICS[kind](length, seed)
        result = Compressed(fallback=True)(cp.Unmasking(topic), cp.Streams.from_seed(seed))
        assert product_to_joint(topic, result) == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("kind", ["concentrated", "equal marginals"])
def test_a_hidden_topic_among_many_positions_is_refuted(kind: str) -> None:
    found = findings_of(TOPICS[kind](512, 5))
    assert not found.is_resolved.any()
    assert found.num_refuted == 512
    assert "where commits happen" in found.reason


def test_a_hidden_topic_is_sampled_singly_and_said_so() -> None:
    topic = HiddenTopic.concentrated(64, 1)
    result = Compressed(fallback=True)(cp.Unmasking(topic), cp.Streams(1, 2))
    assert result.ledger.commits == 64
    assert any("committed singly" in note for note in result.notes)


def test_forests_are_certified_at_the_cost_of_the_rehearsals() -> None:
    for family in ("matching", "path", "caterpillar", "growing-stars"):
        law = cp.families.build(family, 200, 196)
        found = findings_of(law.oracle())
        assert found.is_resolved.all()
        assert found.num_compared == 200
        assert found.num_refuted == 0
        assert found.batches[-1].purpose == "rehearse"
        assert found.batches[-1].probes == REHEARSALS


def test_an_independent_law_is_certified() -> None:
    law = cp.ForestLaw(np.tile([0.5, 0.3, 0.2], (50, 1)), np.empty((0, 2), int), np.ones((3, 3)))
    found = findings_of(law.oracle())
    assert found.is_resolved.all()
    assert found.num_compared == 50


@pytest.mark.parametrize("direction", ["random", "hide", "fake"])
def test_noise_within_the_declared_error_refutes_nothing(direction: str) -> None:
    for family in ("path", "binary-tree", "random-recursive-tree"):
        law = cp.families.build(family, 200, 196)
        noisy = cp.FrozenNoise(law.oracle(), radius=1e-7, direction=direction, seed=5)
        found = findings_of(noisy)
        assert found.num_compared > 0
        assert found.num_refuted == 0


def test_context_is_part_of_the_comparison() -> None:
    law = cp.families.path(length=120, target_seed=196)
    given = np.full(120, cp.MASK)
    given[[3, 40, 41, 90]] = [0, 1, 5, 0]
    run = cp.Unmasking(law.oracle(), given=given)
    found = compressed_screen(run, cp.Streams.from_seed(1).decisions, CompressedSettings())
    assert found.num_compared == 116
    assert found.num_refuted == 0


def test_a_loop_is_compared_once_it_is_cut() -> None:
    bits = np.indices((2,) * 6)
    table = np.ones((2,) * 6)
    for a, b in ((0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (4, 5)):
        table = table * np.where(bits[a] == bits[b], 0.7, 0.3)
    found = findings_of(cp.TableLaw(table).oracle())
    assert found.is_resolved.all()
    assert found.num_compared > 0
    assert found.num_refuted == 0


def test_the_rehearsals_have_a_reserve_in_a_tight_budget() -> None:
    law = cp.families.path(length=100, target_seed=196)
    for most in (90, 100, 110, 120):
        run = cp.Unmasking(law.oracle())
        settings = CompressedSettings(max_probes=most)
        found = compressed_screen(run, cp.Streams.from_seed(1).decisions, settings)
        assert run.ledger.probes <= most
        assert found.num_compared > 0 or not found.is_resolved.any()
