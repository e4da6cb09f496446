"""The decoder as a screen: what it certifies, at what cost, and when it hands over."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.support.hidden_laws import gated_pair

import counterprobe as cp
from counterprobe.discovery.compressed import CompressedSettings, Findings, compressed_screen
from counterprobe.discovery.compressed.findings import ASSUMPTION, GENERIC, Terms
from counterprobe.discovery.compressed.peeling import screen as peeling_screen
from counterprobe.discovery.compressed.peeling.board import READ, UNREAD, Board
from counterprobe.discovery.compressed.peeling.decoder import Decoder, blind_chance, needed_reads
from counterprobe.discovery.compressed.peeling.design import MASK_RATE
from counterprobe.targets import forests


def screen(oracle: cp.Oracle, seed: int = 1, **settings: object) -> tuple[Findings, cp.Ledger]:
    """Run a screen; what it reports must be what it was charged."""
    run = cp.run.Run(oracle)
    decisions = cp.Streams.from_seed(seed).decisions
    findings = run.call(compressed_screen, decisions, CompressedSettings(**settings))
    assert run.ledger.probes == sum(batch.probes for batch in findings.batches)
    assert run.ledger.commits == 0 and run.ledger.preprocessing == 1
    return findings, run.ledger


def pairs(edges: np.ndarray) -> set[tuple[int, int]]:
    return {(int(min(e)), int(max(e))) for e in edges}


FAMILIES = [
    "matching",
    "path",
    "binary-tree",
    "growing-stars",
    "random-recursive-tree",
    "preferential-attachment",
    "caterpillar",
    "double-star",
    "random-forest",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_decoded_for_less_than_half_of_the_probes(family: str) -> None:
    law = cp.families.build(family, 400, 196)
    findings, ledger = screen(law.oracle(), assume="generic")
    assert findings.decoder == "peeling" and findings.handover == ""
    assert pairs(findings.edges) == pairs(law.edges)
    assert findings.is_resolved.all()
    blind = blind_chance(3, MASK_RATE, generic=True)
    assert findings.evidence.min() >= findings.needed > 0
    assert findings.needed <= needed_reads(400, blind, 0.01)
    before, _ = screen(law.oracle(), method="regression")
    assert before.decoder == "regression" and before.handover == ""
    assert ledger.probes < 0.5 * sum(batch.probes for batch in before.batches)
    assert findings.assumption == GENERIC and before.assumption == ASSUMPTION


@pytest.mark.parametrize("family", ["matching", "path", "binary-tree", "growing-stars"])
def test_a_sequence_is_drawn_without_breaking_anything(family: str) -> None:
    law = cp.families.build(family, 1000, 7)
    for assume in ("tested", "generic"):
        run = cp.run.Run(law.oracle())
        result = cp.samplers.Compressed(assume=assume)(run, cp.Streams(3, 4))
        assert cp.evaluation.batch_kl(law, result).value == 0.0
        assert result.ledger.evaluations < (110 if assume == "tested" else 75)
        assert (GENERIC if assume == "generic" else ASSUMPTION) in result.notes


def test_the_default_rehearses_and_counts_more_reads() -> None:
    law = cp.families.build("path", 500, 196)
    tested, _ = screen(law.oracle())
    generic, _ = screen(law.oracle(), assume="generic")
    purposes = [batch.purpose for batch in tested.batches]
    assert purposes[-2:] == ["validate", "rehearse"] and tested.num_compared == 500
    assert not {"validate", "rehearse"} & {batch.purpose for batch in generic.batches}
    np.testing.assert_array_equal(tested.edges, generic.edges)


def test_what_is_decoded_hangs_on_the_decision_seed_alone() -> None:
    law = cp.families.build("binary-tree", 300, 196)
    first, _ = screen(law.oracle(), 5)
    again, _ = screen(law.oracle(), 5)
    other, _ = screen(law.oracle(), 6)
    np.testing.assert_array_equal(first.evidence, again.evidence)
    np.testing.assert_array_equal(first.terms.tables, again.terms.tables)
    assert first.batches == again.batches
    assert not np.array_equal(first.evidence, other.evidence)
    np.testing.assert_array_equal(first.edges, other.edges)


def test_context_is_neither_varied_nor_read() -> None:
    law = cp.families.build("path", 200, 196)
    given = np.full(200, cp.MASK)
    given[50:60] = 1
    structure = cp.discover(law.oracle(), cp.Streams(1, 2), given=given, mode="exact")
    assert structure.about["decoder"] == "peeling"
    free = given == cp.MASK
    assert pairs(structure.edges) == {e for e in pairs(law.edges) if free[list(e)].all()}


# ----- When the assumption is wrong ------------------------------------------------------------


def test_a_law_beyond_pairs_deceives_the_generic_assumption_and_not_the_default() -> None:
    law = gated_pair(12, seed=1)
    streams = cp.Streams.from_seed(1)
    generic = cp.discover(
        law.oracle, streams, settings=CompressedSettings(assume="generic"), fallback=True
    )
    tested = cp.discover(law.oracle, streams, mode="exact", fallback=True)
    assert max(law.sizes_together(tested)) == 1
    assert tested.about["decoder"] == "regression"
    assert generic.assumption == GENERIC != tested.assumption
    # Nothing but what is printed with it protects from this one.
    assert generic.about["decoder"] == "peeling"
    assert max(law.sizes_together(generic)) > 1


def test_choices_that_act_alike_are_left_to_the_regression_screen() -> None:
    # Two of three choices of every position act alike: no candidate is a cluster of its own.
    length = 60
    rng = np.random.default_rng(0)
    tables = np.exp(rng.normal(size=(length - 1, 3, 3)))
    tables[:, 1] = tables[:, 0]
    tables[:, :, 1] = tables[:, :, 0]
    law = cp.ForestLaw(rng.uniform(0.4, 1.0, size=(length, 3)), forests.path(length), tables)
    findings, _ = screen(law.oracle(), assume="generic")
    assert findings.decoder == "regression" and "act alike" in findings.handover
    assert findings.assumption == ASSUMPTION
    assert pairs(findings.edges) == pairs(law.edges)


# ----- Rows too saturated to read --------------------------------------------------------------


def tied_law(shape: str, length: int, classes: int, weight: float, seed: int) -> cp.ForestLaw:
    """A law whose neighbours agree, up to a weight of everything else."""
    rng = np.random.default_rng(seed)
    edges = {
        "matching": forests.matching,
        "path": forests.path,
        "tree": forests.binary_tree,
        "stars": lambda length: forests.stars(length, 5),
    }[shape](length)
    pair = np.exp(rng.normal(scale=0.3, size=(len(edges), classes, classes)))
    pair *= np.where(np.eye(classes, dtype=bool), 1.0, weight)
    return cp.ForestLaw(np.exp(rng.normal(scale=0.2, size=(length, classes))), edges, pair)


def hides_nothing(law: cp.ForestLaw, oracle: cp.Oracle, assume: str, seed: int) -> bool:
    """Whether a screen leaves no edge out between positions that it calls resolved."""
    run = cp.run.Run(oracle)
    decisions = cp.Streams.from_seed(seed).decisions
    findings = run.call(compressed_screen, decisions, CompressedSettings(assume=assume))
    missed = pairs(law.edges) - pairs(findings.edges)
    return not any(findings.is_resolved[list(edge)].all() for edge in missed)


@pytest.mark.parametrize("assume", ["generic", "tested"])
@pytest.mark.parametrize("weight", [1e-3, 1e-5, 1e-8, 1e-12])
@pytest.mark.parametrize(("length", "classes", "seed"), [(24, 3, 1), (64, 2, 2)])
def test_a_strongly_tied_matching_is_not_taken_for_independent_positions(
    length: int, classes: int, seed: int, weight: float, assume: str
) -> None:
    # An end is read only while the other is masked: it looks constant however often it is read.
    law = tied_law("matching", length, classes, weight, seed)
    assert hides_nothing(law, law.oracle(), assume, seed)


@pytest.mark.slow
@pytest.mark.parametrize("assume", ["generic", "tested"])
@pytest.mark.parametrize("shape", ["matching", "path", "tree", "stars"])
@pytest.mark.parametrize("radius", [0.0, 1e-12, 4e-10])
def test_strongly_tied_forests_hide_nothing(shape: str, radius: float, assume: str) -> None:
    for seed, weight in enumerate([1e-3, 1e-5, 1e-7, 1e-9, 1e-12]):
        law = tied_law(shape, 20 + 6 * seed, 2 + seed % 3, weight, seed)
        oracle = law.oracle()
        if radius:
            oracle = cp.FrozenNoise(oracle, radius=radius, direction="random", seed=seed)
        assert hides_nothing(law, oracle, assume, seed)


@pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
@pytest.mark.parametrize("assume", ["generic", "tested"])
def test_positions_that_repeat_each_other_exactly_are_not_taken_for_independent(
    assume: str,
) -> None:
    # Rows with exact zeros, also of states that cannot occur.
    def probabilities(states: np.ndarray) -> np.ndarray:
        other = states.reshape(len(states), -1, 2)[:, :, ::-1].reshape(states.shape)
        return np.where((other < 0)[..., None], 1 / 3, np.eye(3)[np.maximum(other, 0)])

    findings, _ = screen(cp.CallableOracle(probabilities, 40, 3, row_error=0.0), assume=assume)
    assert findings.decoder == "regression" and "too saturated to read" in findings.handover
    assert not findings.is_resolved.any()


def saturating_star() -> cp.ForestLaw:
    """A hub whose rows are saturated in many probes, by neighbours that are found."""
    edges = forests.stars(40, 9)
    pair = np.exp(np.random.default_rng(3).normal(scale=1.0, size=(len(edges), 3, 3)))
    return cp.ForestLaw(np.ones((40, 3)), edges, pair)


def test_saturated_rows_that_the_edges_imply_are_no_reason_to_hand_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoders = []

    def kept(*args: object) -> Decoder:
        decoders.append(Decoder(*args))
        return decoders[-1]

    monkeypatch.setattr(peeling_screen, "Decoder", kept)
    law = saturating_star()
    findings, _ = screen(law.oracle(), assume="generic")
    assert (decoders[0].board.shown == UNREAD).any()
    assert findings.decoder == "peeling" and pairs(findings.edges) == pairs(law.edges)


def turn_saturated(board: Board) -> None:
    """As saturated as they must be, but at another token."""
    is_unread = board.shown == UNREAD
    board.masses[is_unread] = np.roll(board.masses[is_unread], 1, axis=1)


def leave_unread(board: Board) -> None:
    """As implied, but not saturated: nothing else says why it was not read."""
    board.shown[tuple(np.argwhere(board.shown == READ)[0])] = UNREAD


@pytest.mark.parametrize("disturb", [turn_saturated, leave_unread])
def test_a_row_that_was_not_read_must_be_implied_and_saturated(
    monkeypatch: pytest.MonkeyPatch, disturb: Callable[[Board], None]
) -> None:
    class Disturbed(Decoder):
        def terms(self, tolerance: float) -> Terms:
            disturb(self.board)
            return super().terms(tolerance)

    monkeypatch.setattr(peeling_screen, "Decoder", Disturbed)
    findings, _ = screen(saturating_star().oracle(), assume="generic")
    assert findings.decoder == "regression" and "too saturated to read" in findings.handover


# ----- Handing over ----------------------------------------------------------------------------


def test_noise_is_left_to_the_regression_screen() -> None:
    law = cp.families.build("matching", 60, 196)
    findings, _ = screen(cp.FrozenNoise(law.oracle(), radius=1e-8 / 2, seed=4))
    assert findings.decoder == "regression" and "noise" in findings.handover
    assert pairs(findings.edges) == pairs(law.edges)


def test_rows_of_unknown_classes_are_left_to_the_regression_screen(classed_law) -> None:
    law = classed_law(np.arange(40).reshape(-1, 2), 40, vocab_size=48)

    def probabilities(states: np.ndarray) -> np.ndarray:
        readouts = cp.Readouts.every_masked(states)
        dense = np.full((*states.shape, 48), 1 / 48)
        dense[readouts.state_index, readouts.position] = (
            law.oracle().rows(states, readouts).dense()
        )
        return dense

    oracle = cp.CallableOracle(probabilities, 40, 48)
    findings, _ = screen(oracle, bank_threshold=0.0, max_probes=60)
    assert findings.decoder == "regression" and "sketch" in findings.handover


def test_strong_tables_are_left_to_the_regression_screen() -> None:
    length = 128
    law = cp.ForestLaw(np.ones((length, 2)), forests.path(length), np.exp(12.0 * np.eye(2)))
    findings, _ = screen(law.oracle())
    assert findings.decoder == "regression" and "say too little" in findings.handover
    assert pairs(findings.edges) == pairs(law.edges)


def test_a_core_of_cycles_is_left_to_the_regression_screen() -> None:
    bits = np.indices((2,) * 8)
    edges = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (5, 6)]
    table = np.ones((2,) * 8)
    for n, (a, b) in enumerate(edges):
        table = table * np.where(bits[a] == bits[b], 0.6 + 0.03 * n, 0.4)
    findings, _ = screen(cp.TableLaw(table).oracle())
    assert findings.decoder == "regression" and "cycle" in findings.handover
    assert pairs(findings.edges) == set(edges)


def test_many_choices_are_left_to_the_regression_screen() -> None:
    law = cp.families.build("matching", 40, 196, classes=10, tables="random", weight=0.5)
    findings, _ = screen(law.oracle())
    assert findings.decoder == "regression" and "10 choices" in findings.handover
    assert pairs(findings.edges) == pairs(law.edges)


def test_a_budget_without_room_is_left_to_the_regression_screen() -> None:
    law = cp.families.build("path", 100, 196)
    findings, ledger = screen(law.oracle(), max_probes=20)
    assert "budget of 20" in findings.handover
    assert ledger.probes <= 20


def test_probes_are_not_made_twice() -> None:
    law = gated_pair(12, seed=1)
    run = cp.run.Run(law.oracle)
    findings = run.call(compressed_screen, cp.Streams.from_seed(1).decisions, CompressedSettings())
    assert "imply" in findings.handover
    first = [batch.probes for batch in findings.batches if batch.purpose == "first"]
    assert first[0] + sum(first[1:]) <= CompressedSettings().first_batch


@pytest.mark.parametrize(("name", "value"), [("assume", "nothing"), ("method", "magic")])
def test_settings_have_names(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be .* or .*, got '{value}'"):
        CompressedSettings(**{name: value})


def test_the_sampler_says_who_took_over() -> None:
    law = cp.families.build("matching", 40, 196, classes=10, tables="random", weight=0.5)
    result = cp.samplers.Compressed()(cp.run.Run(law.oracle()), cp.Streams(1, 2))
    assert any("the regression screen took over: a position has" in note for note in result.notes)
