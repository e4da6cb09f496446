"""Certificates hold where they are used: laws that look settled to every probe."""

import math

import numpy as np
import pytest
from tests.support.hidden_laws import block_topic, gated_pair

import counterprobe as cp
from counterprobe.discovery.compressed import CompressedSettings, compressed_screen
from counterprobe.discovery.compressed.certify import Certificate, LayeredRehearsal, rehearsal_cost
from counterprobe.discovery.compressed.neighbourhoods import Neighbourhoods
from counterprobe.discovery.compressed.readings import EXACT
from counterprobe.graph import centroid_layers
from counterprobe.samplers import Compressed
from hidden_topic import HiddenTopic
from screens import Screen


def findings_of(oracle: cp.Oracle, seed: int = 1, **settings: object):
    """Run a screen."""
    run = cp.run.Run(oracle)
    decisions = cp.Streams.from_seed(seed).decisions
    return run.call(compressed_screen, decisions, CompressedSettings(**settings))


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
    for seed in range(2):
        topic = TOPICS[kind](length, seed)
        result = Compressed(fallback=True)(cp.run.Run(topic), cp.Streams.from_seed(seed))
        assert product_to_joint(topic, result) == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("kind", ["concentrated", "equal marginals"])
def test_a_hidden_topic_among_many_positions_is_refuted(kind: str) -> None:
    topic = TOPICS[kind](200, 5)
    found = findings_of(topic)
    # Once enough is known to tell the topic, the rest is independent and may stand.
    assert found.num_refuted > 64
    assert "where commits happen" in found.reason
    result = Compressed(fallback=True)(cp.run.Run(topic), cp.Streams.from_seed(1))
    assert product_to_joint(topic, result) == pytest.approx(0.0, abs=1e-4)


def test_a_hidden_topic_is_sampled_singly_and_said_so() -> None:
    topic = HiddenTopic.concentrated(64, 1)
    result = Compressed(fallback=True)(cp.run.Run(topic), cp.Streams(1, 2))
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
        assert found.batches[-1].probes == rehearsal_cost(200, 0.01)


def test_an_independent_law_is_certified() -> None:
    law = cp.ForestLaw(np.tile([0.5, 0.3, 0.2], (50, 1)), np.empty((0, 2), int), np.ones((3, 3)))
    found = findings_of(law.oracle())
    assert found.is_resolved.all()
    assert found.num_compared == 50


@pytest.mark.parametrize("direction", ["random", "hide", "fake"])
def test_noise_within_the_declared_error_refutes_nothing(direction: str) -> None:
    for family in ("path", "random-recursive-tree"):
        law = cp.families.build(family, 200, 196)
        noisy = cp.FrozenNoise(law.oracle(), radius=1e-7, direction=direction, seed=5)
        found = findings_of(noisy)
        assert found.num_compared > 0
        assert found.num_refuted == 0


def test_context_is_part_of_the_comparison() -> None:
    law = cp.families.path(length=120, target_seed=196)
    given = np.full(120, cp.MASK)
    given[[3, 40, 41, 90]] = [0, 1, 5, 0]
    run = cp.run.Run(law.oracle(), given=given)
    found = run.call(compressed_screen, cp.Streams.from_seed(1).decisions, CompressedSettings())
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
        run = cp.run.Run(law.oracle())
        settings = CompressedSettings(max_probes=most)
        found = run.call(compressed_screen, cp.Streams.from_seed(1).decisions, settings)
        assert run.ledger.probes <= most
        assert found.num_compared > 0 or not found.is_resolved.any()


# ----- Certificates by themselves -------------------------------------------------------------

# A path of four, a pair, and eighteen positions by themselves; three classes everywhere.
EDGES = [[0, 1], [1, 2], [2, 3], [4, 5]]
LENGTH = 24


@pytest.fixture
def found(classed_law) -> Neighbourhoods:
    """Return what a screen found of a law with three kinds of components."""
    run = cp.run.Run(classed_law(EDGES, LENGTH).oracle())
    screen = Screen(run)
    screen.now(screen.discover())
    assert screen.knowledge.is_resolved.all()
    return screen.found


def all_mask_rows(
    found: Neighbourhoods, moved: dict[int, float]
) -> tuple[cp.rows.Rows, np.ndarray]:
    """Return all-mask rows, those of some positions moved by so much, and the empty history."""
    masses = found.readings.all_mask.copy()
    for i, distance in moved.items():
        masses[i] += distance * np.array([1.0, -1.0, 0.0])
    classes = cp.classes.TokenClasses.build(LENGTH, np.arange(6) % 3)
    rows = cp.rows.ClassedRows(masses, classes, np.arange(LENGTH))
    return rows, np.full(LENGTH, cp.MASK, dtype=np.int32)


def where(claim: np.ndarray) -> list[int]:
    return np.flatnonzero(claim).tolist()


def test_a_row_that_disagrees_refutes_its_component_and_no_other(found) -> None:
    for moved, refuted in (
        ({}, []),
        ({2: 1e-3}, [0, 1, 2, 3]),
        ({5: 1e-3, 9: -1e-3}, [4, 5, 9]),
        ({4: 1e-6}, []),  # within the tolerance
        ({4: math.nan}, [4, 5]),
    ):
        certificate = Certificate(found)
        rows, history = all_mask_rows(found, moved)
        certificate.compare_all_mask(history, rows)
        assert where(certificate.is_refuted) == refuted
        assert certificate.is_compared.all()
    tolerance = certificate.implied.tolerance
    for share, refuted in ((0.99, []), (1.01, [4, 5])):
        certificate = Certificate(found)
        rows, history = all_mask_rows(found, {4: share * tolerance})
        certificate.compare_all_mask(history, rows)
        assert where(certificate.is_refuted) == refuted


def test_a_rehearsal_names_what_disagrees_and_the_rest_stands(found) -> None:
    found.knowledge.reopen(np.array([23]))
    rows, history = all_mask_rows(found, {4: 1e-3})
    readouts = cp.Readouts.every_masked(history[None, :])
    certificate = Certificate(found)
    certificate.compare_rehearsal(history[None, :], readouts, all_mask_rows(found, {})[0])
    assert where(certificate.is_refuted) == []
    certificate.compare_rehearsal(history[None, :], readouts, rows)
    assert where(certificate.is_refuted) == [4, 5]
    assert where(~certificate.is_compared) == [23]
    # One good rehearsal more makes nothing good.
    certificate.compare_rehearsal(history[None, :], readouts, all_mask_rows(found, {})[0])
    assert where(certificate.is_refuted) == [4, 5]


def test_what_touches_a_position_known_first_is_not_compared_with_all_mask_rows(found) -> None:
    # Position 1 is not resolved: it is known before its neighbours are committed.
    found.knowledge.reopen(np.array([1]))
    certificate = Certificate(found)
    rows, history = all_mask_rows(found, {0: 1e-3, 3: 1e-3})
    certificate.compare_all_mask(history, rows)
    assert where(~certificate.is_compared) == [0, 1, 2, 3]
    assert where(certificate.is_refuted) == []
    assert certificate.layers[0][:2].tolist() == [0, 2]
    state = history[None, :].copy()
    state[0, 1] = 2
    readouts = cp.Readouts.every_masked(state)
    certificate.compare_rehearsal(state, readouts, rows.take(readouts.position))
    assert where(~certificate.is_compared) == [1]


def test_two_ends_that_imply_different_tables_refute_their_component(found, monkeypatch) -> None:
    slot = found.members[4, : found.count[4]].tolist().index(5)
    choice = found.readings.columns.choice_of_coordinate[5, 1]
    found.terms[4, slot, choice] += np.array([1e-3, 0.0, -1e-3])
    assert where(Certificate(found).is_refuted) == [4, 5]
    # Unless there is noise, which lets rare tokens differ by anything.
    monkeypatch.setattr(found.readings, "tolerance", 3.1 * EXACT)
    assert where(Certificate(found).is_refuted) == []
    monkeypatch.setattr(found.readings, "tolerance", 3 * EXACT)
    assert where(Certificate(found).is_refuted) == [4, 5]
    # Nor where an end was not resolved.
    found.knowledge.reopen(np.array([5]))
    assert where(Certificate(found).is_refuted) == []


def test_rehearsed_values_are_drawn_from_the_fitted_terms() -> None:
    # Positions 0 and 1 all but copy each other; 2 is by itself.
    law = cp.ForestLaw(
        np.ones((3, 3)), [[0, 1]], np.eye(3) + 1e-4, classes=cp.classes.TokenClasses.identity(3, 3)
    )
    run = cp.run.Run(law.oracle())
    screen = Screen(run)
    screen.now(screen.discover())
    certificate = Certificate(screen.found)
    columns = screen.columns
    choices = certificate.draw_choices(60, np.random.default_rng(0))
    shown = columns.coordinate_of_choice[np.arange(3), choices]
    assert (shown[:, 0] == shown[:, 1]).all()
    assert len({tuple(row[1:]) for row in shown.tolist()}) == 9


# ----- Without fitted terms, rows of other components must not move while a layer is re --------


NONE = np.empty((0, 2), dtype=np.int64)


def refuted(oracle: cp.Oracle, edges: np.ndarray, seed: int) -> np.ndarray:
    """Rehearse a structure that is given, right or wrong; return what is refuted."""
    layers = list(centroid_layers(oracle.length, edges))
    rehearsal = LayeredRehearsal(edges, layers, 0.01, 1e-6)
    run = cp.run.Run(oracle)
    context, rng = np.zeros(oracle.length, np.int32), np.random.default_rng(seed)
    found = run.alone(run.follow(rehearsal(context, rng)))
    assert run.ledger.probes == rehearsal.cost
    return np.flatnonzero(found)


def pairs_beside(law) -> np.ndarray:
    """Return the true edges outside the block: rows that move with exactly one other position."""
    oracle, length = law.oracle, law.oracle.length
    states = np.full((length, length), cp.MASK, dtype=np.int32)
    np.fill_diagonal(states, 0)
    base = np.full((1, length), cp.MASK, dtype=np.int32)
    still = oracle.rows(base, cp.Readouts.same(1, np.arange(length))).dense()
    edges = []
    outside = np.setdiff1d(np.arange(length), law.block)
    for i in outside:
        others = np.setdiff1d(outside, i)
        rows = oracle.rows(states[i : i + 1], cp.Readouts.same(1, others)).dense()
        moved = others[np.abs(rows - still[others]).max(axis=1) > 1e-9]
        edges += [(min(i, j), max(i, j)) for j in moved]
    return np.array(sorted(set(edges)), dtype=np.int64)


@pytest.mark.parametrize("vocab_size", [8, 64])
@pytest.mark.parametrize("size", [5, 20])
def test_a_topic_among_sketched_rows_names_its_block(size: int, vocab_size: int) -> None:
    for seed in range(4):
        law = block_topic(size, vocab_size=vocab_size, num_pairs=12, seed=seed)
        edges = pairs_beside(law)
        assert len(edges) == 12
        named = refuted(law.oracle, edges, seed)
        # Whoever was shown when the others moved is not named; nothing outside the block is.
        assert len(named) >= size - 1
        assert np.isin(named, law.block).all()


def test_a_pair_behind_gates_is_named() -> None:
    for seed in range(4):
        law = gated_pair(12, num_pairs=12, seed=seed)
        named = refuted(law.oracle, pairs_beside(law), seed)
        assert np.isin(law.block[:2], named).any()
        assert np.isin(named, law.block).all()


def test_what_is_right_stands() -> None:
    law = gated_pair(12, strength=0.0, num_pairs=12, seed=1)
    assert len(refuted(law.oracle, pairs_beside(law), 1)) == 0
    path = cp.families.path(30, target_seed=1)
    assert len(refuted(path.oracle(), np.sort(path.edges, axis=1), 1)) == 0


def test_one_position_a_layer_costs_its_rows_alone() -> None:
    law = cp.families.path(7, target_seed=1)
    rehearsal = LayeredRehearsal(NONE, [np.array([k]) for k in range(7)], 0.01, 1e-6)
    run = cp.run.Run(law.oracle())
    rehearsing = rehearsal(np.zeros(7, np.int32), np.random.default_rng(0))
    assert not run.alone(run.follow(rehearsing)).any()
    assert run.ledger.probes == rehearsal.cost == 7
