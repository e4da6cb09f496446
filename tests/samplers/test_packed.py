"""The paper's sampler: its worked examples, each branch by name, caps on every path, families."""

import itertools
import math
import re
import warnings

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.banks import read_banks
from counterprobe.discovery.packed.screen import draw_colorings, packed_screen
from counterprobe.discovery.packed.selectors import SELECTORS, top_votes
from counterprobe.errors import CostWarning
from counterprobe.graph import centroid_layers
from counterprobe.radii import row_radii
from counterprobe.samplers import Packed, PackedTheory
from counterprobe.samplers.packed import run_packed
from counterprobe.states import fingerprint, mix64
from separated_screens import residual_edges, screen_separated

STREAMS = cp.Streams(51, 52)
# Settings of theory mode under which the two-type law on 10 to 15 positions is resolved:
# 4 row_error + 0.1 < 0.2, and the law's edges move a row by more than 0.2.
RESOLVED = {"epsilon": 0.1, "edge_signal": 0.2, "tail_tolerance": 0.1}
# The paper's 15 vertices, from zero: a hub with eight leaves and two paths of three.
EXAMPLE_EDGES = np.array(
    [[0, i] for i in range(1, 9)] + [[0, 9], [9, 10], [10, 11], [0, 12], [12, 13], [13, 14]]
)
# One color a position, as many colorings as it takes to tell 15 positions apart.
CLEAR = {"num_colors": 200, "num_colorings": 5, "majority_fraction": 0.5}
# So many sequences share a screen that it pays at any size.
SHARED = {"shared_by": 10**6}


# ----- Oracles --------------------------------------------------------------------------------


def responding(length: int, pairs, *, both_ways: bool = True) -> cp.CallableOracle:
    """Return an oracle whose rows form a chosen graph: j answers to i for each pair (i, j).

    It need not be the oracle of any law; with cycles it is consistent nonsense.
    """
    weight = np.zeros((length, length))
    for i, j in pairs:
        weight[i, j] = 1.0
        if both_ways:
            weight[j, i] = 1.0
    weight *= 0.3

    def function(states):
        spin = np.where(states == cp.MASK, 0, 2 * states - 1)
        up = 1 / (1 + np.exp(-spin @ weight))
        return np.stack([1 - up, up], axis=2)

    return cp.CallableOracle(function, length, 2)


def nonsense(length: int, vocab_size: int, seed: int, wild: float = 1.0) -> cp.CallableOracle:
    """Return an oracle whose rows are a hash of the state, at a share ``wild`` of the readouts."""

    def function(states):
        marks = fingerprint(states)[:, None] ^ mix64(np.arange(length) + 1000 * seed)[None, :]
        calm = mix64(marks) % np.uint64(1000) >= np.uint64(1000 * wild)
        key = np.where(calm, np.uint64(seed), marks)[:, :, None]
        bits = mix64(key + np.arange(vocab_size, dtype=np.uint64)) % np.uint64(97)
        weights = bits.astype(np.float64) + 1
        return weights / weights.sum(axis=2, keepdims=True)

    return cp.CallableOracle(function, length, vocab_size)


def sample(sampler, oracle, streams: cp.Streams = STREAMS, **options) -> cp.SampleResult:
    return sampler(cp.run.Run(oracle, **options), streams)


def batches(result: cp.SampleResult) -> list[list[int]]:
    return [batch.tolist() for batch in result.batches]


def edge_set(edges) -> set[tuple[int, int]]:
    return {(min(a, b), max(a, b)) for a, b in np.asarray(edges).tolist()}


# ----- Worked examples ------------------------------------------------------------------------


def check_peel_and_centroids(result: cp.SampleResult) -> None:
    report = result.diagnostics
    assert batches(result) == [[0], [*range(1, 9), 10, 13], [9, 11, 12, 14]]
    assert result.ledger.commits == 3
    assert report.peel_phases == 1
    assert [screen.num_peeled for screen in report.screens] == [1, 0]
    assert [screen.num_residual for screen in report.screens] == [15, 14]
    assert report.terminal_positions.tolist() == list(range(1, 15))
    assert report.terminal_edges.tolist() == [[9, 10], [10, 11], [12, 13], [13, 14]]
    assert (report.num_repaired, report.num_layers, report.guard) == (0, 2, "none")
    assert result.ledger.stages == 1 + 2 + 3  # preprocessing, two screens, three commits


@pytest.mark.parametrize("selector", SELECTORS)
def test_one_peel_commit_then_two_centroid_batches(selector):
    law = cp.families.two_type_forest(15, EXAMPLE_EDGES, vocab_size=64)
    sampler = Packed(
        num_colors=80,
        num_colorings=9,
        degree_cutoff=9,
        chunk_count=9,
        majority_fraction=0.5,
        selector=selector,
    )
    result = sample(sampler, law.oracle(), keep_notes=True)
    check_peel_and_centroids(result)
    screens = [note.content for note in result.transcript.notes if note.name == "screen"]
    for content in screens:
        assert screen_separated(EXAMPLE_EDGES, content["rows"].residual, content["colors"], 9)
    claims = screens[0]["rows"].claims(15)
    assert claims[0] == 10
    assert claims[1:].max() <= 3
    assert cp.evaluation.batch_kl(law, result).value == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("case", ["tv", "kl"])
def test_the_example_in_theory_mode(case):
    law = cp.families.two_type_forest(15, EXAMPLE_EDGES, vocab_size=64)
    result = sample(PackedTheory(**RESOLVED, case=case), law.oracle())
    check_peel_and_centroids(result)
    assert all(result.diagnostics.setup.hypotheses.values())


def test_theory_mode_takes_its_filler_by_name():
    law = cp.families.two_type_path(10, 1, vocab_size=64)
    oracle = law.oracle()
    seen = {}
    for filler in ("most-likely", "rare"):
        result = sample(PackedTheory(**RESOLVED, filler=filler), oracle, keep_notes=True)
        assert all(result.diagnostics.setup.hypotheses.values())  # the guarantee has no say in it
        assert cp.evaluation.batch_kl(law, result).value == 0.0
        submitted = [e for e in result.transcript.events if e.operation == "probe"]
        seen[filler] = {key for event in submitted for key in event.fingerprints.tolist()}
    assert seen["most-likely"] != seen["rare"]


def test_a_screen_of_theory_mode_is_counted_color_by_color(counted):
    # One fixed count: every coloring, every chunk, 79 other colors, three columns.
    law = cp.families.two_type_path(10, 1, vocab_size=64)
    oracle = counted(law.oracle())
    sampler = PackedTheory(**RESOLVED)
    result = sample(sampler, oracle, keep_notes=True)
    plan = result.diagnostics.setup
    assert (plan.screen.num_colors, plan.screen.chunk_size, result.diagnostics.num_columns) == (
        80,
        2,
        3,
    )
    (content,) = [note.content for note in result.transcript.notes if note.name == "screen"]
    assert content["colors"].shape == (plan.screen.num_colorings, 10) == (82, 10)
    chunks = sum(
        math.ceil(size / 2) for hue in content["colors"] for size in np.bincount(hue) if size
    )
    assert result.ledger.probes == 3 * 79 * chunks == result.diagnostics.screens[0].probes
    assert (
        oracle.states
        == result.ledger.evaluations
        == result.ledger.probes + 1 + result.ledger.commits
    )
    assert result.ledger.widest_stage == result.ledger.probes
    assert result.ledger.stages == 1 + 1 + result.ledger.commits
    check_caps(result)
    # The path is found, and its centroid layers are committed.
    assert edge_set(result.diagnostics.terminal_edges) == edge_set(law.edges)
    assert batches(result) == [layer.tolist() for layer in centroid_layers(10, law.edges)]


# ----- Before the first evaluation ------------------------------------------------------------


@pytest.mark.parametrize(
    ("vocab_size", "settings", "reason"),
    [
        (2, RESOLVED, r"floor 4 max\(row_error, C/V\) = 2 exceeds 1 .* V >= 4"),
        (3, RESOLVED, r"floor 4 max\(row_error, C/V\) = 1.333 exceeds 1 .* V >= 4"),
        (4, RESOLVED, r"min\(1, L t\^alpha\) = 1 exceeds tail_tolerance = 0.1; .* is 1.0"),
        (64, {"epsilon": 0.5}, r"= 0.3162 exceeds tail_tolerance = 0.04605; .* is 0.3162"),
        (64, {**RESOLVED, "response_constant": 2}, r"= 0.1265 exceeds tail_tolerance = 0.1"),
        (64, {**RESOLVED, "frequency_constant": 17}, r"needs row_error <= 0.25 and V >= 68"),
    ],
)
def test_infeasible_is_reported_before_any_evaluation(
    vocab_size, settings, reason, counted, uniform_oracle
):
    oracle = counted(uniform_oracle(10, vocab_size))
    run = cp.run.Run(oracle)
    result = PackedTheory(**settings)(run, STREAMS)
    assert result.stop is cp.StopReason.INFEASIBLE
    assert result.ledger == cp.Ledger() == run.ledger
    assert oracle.calls == 0
    assert result.tokens is None
    assert result.diagnostics is None
    assert batches(result) == []
    assert re.search(reason, result.reason)


@pytest.mark.parametrize("case", ["tv", "kl"])
def test_a_named_tolerance_makes_preprocessing_feasible(case, uniform_oracle):
    oracle = uniform_oracle(10, 64)
    result = sample(PackedTheory(epsilon=0.5, case=case), oracle)
    named = float(result.reason.rsplit(" ", 1)[1])
    again = PackedTheory(epsilon=0.5, case=case, tail_tolerance=named, waive_guarantee=True)
    assert sample(again, oracle).stop is cp.StopReason.COMPLETED


@pytest.mark.parametrize(
    ("settings", "noise", "problem", "broken"),
    [
        (
            {**RESOLVED, "edge_signal": 0.15},
            None,
            r"resolution 4 row_error \+ tail_tolerance = 0.1632 must lie below edge_signal = 0.15",
            {"resolution < edge_signal"},
        ),
        (
            RESOLVED,
            {"radius": 1e-3},
            r"the oracle declares row error 0.04471, above the calibration's 0.01581",
            {"oracle row error within the calibration's", "oracle within the Hellinger radius"},
        ),
        (
            # A row error of x / sqrt(N) alone does not make a Hellinger radius of x.
            {**RESOLVED, "hellinger_radius": 0.05},
            0.015,
            r"case \(i\) needs row_hellinger_radius at most .* = 0.000125; the oracle's is 0.015",
            {"oracle within the Hellinger radius"},
        ),
        (
            {**RESOLVED, "case": "kl"},
            {"radius": 0.05**2 / 20},
            r"case \(ii\) needs row_kl_radius at most kl_row_budget = 0.00025; .* declares none",
            {"oracle within the KL row budget"},
        ),
        (
            {**RESOLVED, "case": "kl", "kl_row_budget": 0.0001},
            {"radius": 0.0002, "metric": "kl"},
            r"at most kl_row_budget = 0.0001; the oracle declares 0.0002",
            {"oracle within the KL row budget"},
        ),
    ],
)
def test_a_guarantee_that_fails_is_refused_or_waived_and_recorded(
    settings, noise, problem, broken, counted, uniform_oracle
):
    exact = {"row_hellinger_radius": 0.0, "row_kl_radius": 0.0}
    oracle = uniform_oracle(10, 64, **exact)  # every bank is empty, so that a run is quick
    if isinstance(noise, dict):
        oracle = cp.FrozenNoise(oracle, **noise)
    elif noise is not None:
        oracle = uniform_oracle(10, 64, row_error=noise)
    oracle = counted(oracle)
    with pytest.raises(ValueError, match=problem + r".* waive_guarantee=true"):
        sample(PackedTheory(**settings), oracle)
    assert oracle.calls == 0
    result = sample(PackedTheory(**settings, waive_guarantee=True), oracle)
    plan = result.diagnostics.setup
    assert plan.mode == "theory"
    assert plan.hypotheses == {name: name not in broken for name in plan.hypotheses}
    assert broken <= set(plan.hypotheses)
    assert result.settings["waive_guarantee"] is True


def test_waiving_does_not_make_infeasible_preprocessing_feasible(uniform_oracle):
    result = sample(PackedTheory(**RESOLVED, waive_guarantee=True), uniform_oracle(10, 3))
    assert result.stop is cp.StopReason.INFEASIBLE


@pytest.mark.parametrize(
    ("case", "noise"),
    [
        ("tv", {"radius": 0.05**2 / 20}),
        ("tv", {"radius": 0.05**2 / 10, "metric": "kl"}),  # half of a KL bounds a Hellinger
        ("kl", {"radius": 0.005 / 20, "metric": "kl"}),
    ],
)
def test_an_oracle_on_the_boundary_of_its_class_meets_every_hypothesis(case, noise):
    oracle = cp.FrozenNoise(cp.families.two_type_path(10, 1, vocab_size=64).oracle(), **noise)
    plan = PackedTheory(**RESOLVED, case=case).setup(10, 64, row_radii(oracle))
    assert all(plan.hypotheses.values())


def test_noise_of_the_hellinger_class_has_twice_the_row_kl_of_case_kl():
    """Small deviations have KL = 4 h^2, and the budget is x^2 / N = 2 h^2."""
    law = cp.families.two_type_path(10, 1, vocab_size=64)
    noisy = cp.FrozenNoise.for_hellinger_radius(law.oracle(), 0.05, classes=law.classes)
    states = np.full((1, 10), cp.MASK)
    everything = cp.Readouts.same(1, np.arange(10))
    kl = law.oracle().rows(states, everything).kl(noisy.rows(states, everything)).max()
    sampler = PackedTheory(**RESOLVED, case="kl")
    assert kl == pytest.approx(2 * sampler.calibration(10, 64).kl_row_budget, rel=0.1)
    with pytest.raises(ValueError, match="declares none"):
        sample(sampler, noisy)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"degree_cutoff": 8}, "degree_cutoff must lie in 9..9"),
        ({"degree_cutoff": 10}, "degree_cutoff must lie in 9..9"),
        ({"epsilon": 0.0}, "epsilon must lie"),
        ({"failure_budget": 1.0}, "failure_budget must lie"),
        ({"chunk_count": 0}, "chunk_count must lie"),
    ],
)
def test_theory_settings_outside_the_domain_submit_nothing(settings, complaint, counted):
    oracle = counted(cp.families.two_type_path(10, 1, vocab_size=64).oracle())
    with pytest.raises(ValueError, match=complaint):
        sample(PackedTheory(**settings), oracle)
    assert oracle.calls == 0


def test_a_fraction_that_no_edge_can_reach_submits_nothing(counted, table_law):
    oracle = counted(table_law.oracle())
    with pytest.raises(ValueError, match=r"must lie below 1 - 1/num_colors = 0\.5, got 0\.65"):
        sample(Packed(num_colors=2, majority_fraction=0.65), oracle)
    assert oracle.calls == 0


# ----- Tuned defaults -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "phases", "rounds"),
    [
        # The paper's formulas at d = 9: ln(102.4) / ln 1.125 = 39.3, ceil(2048 * 40 / 9) + 10 + 2.
        ({"num_colorings": 60}, 40, 9115),
        ({}, 0, 9115),  # nothing is peeled, and repairs keep their room
        ({"phase_cap": 0}, 0, 12),
        ({"phase_cap": 2}, 2, 468),  # ceil(4096 / 9) + 10 + 2
        ({"round_cap": 7}, 0, 7),
        ({"degree_cutoff": 64}, 2, 76),  # ln(1024 / 65) / ln 8 = 1.33; 2048 * 2 / 64 + 12
    ],
)
def test_tuned_caps_follow_the_formulas_where_not_given(settings, phases, rounds):
    plan = Packed(**settings).setup(512, 2048, 1e-12)
    assert (plan.phase_cap, plan.round_cap) == (phases, rounds)


@pytest.mark.parametrize(
    ("vocab_size", "row_error", "threshold"),
    [
        (16, 1e-12, 0.25),
        (15, 1e-12, 0.0),
        (2048, 0.0625, 0.25),
        (2048, 0.07, 0.0),
        (64, 0, 0.0625),
    ],
)
def test_a_small_vocabulary_is_probed_whole(vocab_size, row_error, threshold):
    assert Packed().setup(20, vocab_size, row_error).bank_threshold == threshold


@pytest.mark.parametrize(("count", "size"), [(1, 15), (2, 8), (9, 2), (15, 1), (99, 1)])
def test_chunk_size_comes_from_the_original_length(count, size):
    assert Packed(chunk_count=count).setup(15, 64, 0.0).screen.chunk_size == size


# ----- Costs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["matching", "growing-stars"])
@pytest.mark.parametrize("length", [10, 200, 1024])
def test_where_a_screen_costs_more_a_run_decodes_one_by_one_and_says_so(family, length, counted):
    law = cp.families.build(family, length, 3)
    oracle = counted(law.oracle())
    with pytest.warns(CostWarning, match="and so decodes one position at a time") as said:
        result = sample(Packed(), oracle, keep_notes=True)
    assert len(said) == 1
    ledger, report = result.ledger, result.diagnostics
    assert (ledger.preprocessing, ledger.probes) == (0, 0)
    assert ledger.evaluations == ledger.commits == ledger.stages == oracle.states == length
    assert batches(result) == [[v] for v in range(length)]
    assert report.foreseen > length
    assert report.screens == ()
    assert result.notes == [
        "Decoded one position at a time: a screen was foreseen to take the run to "
        f"{report.foreseen:,} evaluations or more"
    ]
    assert [note.name for note in result.transcript.notes] == ["sequential"]
    assert cp.evaluation.batch_kl(law, result, oracle=oracle).value == 0.0


def test_it_is_said_before_the_first_evaluation(counted):
    oracle = counted(cp.families.path(12, 1).oracle())
    with warnings.catch_warnings():
        warnings.simplefilter("error", CostWarning)
        with pytest.raises(CostWarning):
            sample(Packed(), oracle)
    assert oracle.states == 0


@pytest.mark.parametrize("vocab_size", [6, 12])
def test_more_columns_than_typical_are_weighed_after_the_first_readout(vocab_size):
    """Every token of a small vocabulary is a column."""
    length = 60
    weights = np.random.default_rng(1).random((length, vocab_size)) + 0.5
    rows = weights / weights.sum(axis=1, keepdims=True)
    oracle = cp.CallableOracle(lambda s: np.tile(rows, (len(s), 1, 1)), length, vocab_size)
    setup = Packed().setup(length, vocab_size, oracle.row_error)
    shared_by = -(-setup.screen.evaluations(3) // length) + 1
    result = sample(Packed(shared_by=shared_by), oracle)
    assert result.ledger.preprocessing == 1
    assert (result.ledger.probes, result.ledger.commits) == (0, length)
    assert result.diagnostics.num_columns == vocab_size + 1
    assert result.diagnostics.foreseen == 1 + setup.screen.evaluations(vocab_size + 1)


def test_given_positions_are_not_counted():
    law = cp.families.path(1024, 1)
    given = np.where(np.arange(1024) < 1000, sample(Packed(), law.oracle()).tokens, cp.MASK)
    plenty = Packed(shared_by=20)  # enough for 1,024 positions, too few for 24
    assert sample(plenty, law.oracle()).diagnostics.foreseen is None
    result = sample(plenty, law.oracle(), given=given)
    assert (result.ledger.evaluations, result.ledger.commits) == (24, 24)


@pytest.mark.parametrize(
    "settings", [{"num_colorings": 9}, {"shared_by": 10**6}, {"round_cap": 3}]
)
def test_a_screen_that_is_asked_for_is_made_whatever_it_costs(settings):
    law = cp.families.path(12, 1)
    result = sample(Packed(**settings), law.oracle())
    assert result.diagnostics.foreseen is None
    assert result.ledger.probes > 12


def test_sequences_that_share_a_screen_weigh_it_together():
    law = cp.families.path(300, 1)
    screened = cp.sample(law.oracle(), "packed", 40, shared_by=40, progress=False)
    assert screened.ledger.evaluations < 40 * 300 / 2
    assert {one.diagnostics.foreseen for one in screened.results} == {None}


def test_a_selector_without_colorings_is_refused():
    with pytest.raises(ValueError, match="selector='empty-on-overflow' needs num_colorings"):
        Packed(selector="empty-on-overflow")


# ----- Banks and rows in the box --------------------------------------------------------------


def test_empty_banks_make_no_probe_and_commit_everything_at_once(counted):
    law = cp.families.path(12, 1)
    oracle = counted(law.oracle())
    result = sample(Packed(bank_threshold=1.0, **SHARED), oracle)
    report = result.diagnostics
    assert report.num_columns == result.ledger.probes == 0
    assert [(screen.probes, screen.num_edges) for screen in report.screens] == [(0, 0)]
    assert batches(result) == [list(range(12))]
    assert (result.ledger.evaluations, result.ledger.stages, oracle.states) == (2, 2, 2)
    assert cp.evaluation.batch_kl(law, result, oracle=oracle).value > 0


def test_a_small_vocabulary_has_its_most_likely_token_as_tail(counted):
    oracle = counted(responding(4, [(0, 1), (2, 3)]))
    result = sample(Packed(**CLEAR), oracle)
    assert result.diagnostics.num_columns == 3  # both tokens, and the most likely one again
    assert edge_set(result.diagnostics.terminal_edges) == {(0, 1), (2, 3)}
    assert batches(result) == [[0, 2], [1, 3]]


def test_an_edge_is_certified_by_either_end():
    # 1 answers to 0 but not the other way; 2 and 3 ignore everyone.
    result = sample(Packed(**CLEAR), responding(4, [(0, 1)], both_ways=False))
    assert result.diagnostics.terminal_edges.tolist() == [[0, 1]]


def test_overflowed_rows_follow_the_selector():
    # Everyone answers to everyone: rows of four keep the first two (all votes are alike) or
    # nothing, and then nothing is claimed.
    clique = responding(5, list(itertools.combinations(range(5), 2)))
    settings = {**CLEAR, "degree_cutoff": 2, "phase_cap": 0}
    top = sample(Packed(**settings), clique).diagnostics
    assert top.screens[0].num_overflowed == 5
    assert edge_set(top.terminal_edges) == {
        (0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (0, 4), (1, 4),
    }  # fmt: skip
    empty = sample(Packed(**settings, selector="empty-on-overflow"), clique)
    assert empty.diagnostics.screens[0].num_overflowed == 5
    assert batches(empty) == [[0, 1, 2, 3, 4]]


def test_a_rule_of_ones_own_selects_rows_and_a_bad_one_stops_the_run():
    clique = responding(5, list(itertools.combinations(range(5), 2)))
    plan = Packed(**CLEAR, degree_cutoff=1, phase_cap=0).setup(5, 2, clique.row_error)

    def run_with(selector):
        run = cp.run.Run(clique)
        run.begin(STREAMS)
        return run.call(run_packed, STREAMS.decisions, plan, selector=selector)

    last = run_with(lambda readout, row, votes, cutoff: row[-cutoff:])
    assert edge_set(last.terminal_edges) == {(0, 4), (1, 4), (2, 4), (3, 4)}
    with pytest.raises(ValueError, match="at most 1 candidates"):
        run_with(lambda readout, row, votes, cutoff: row)


# ----- Peel phases ----------------------------------------------------------------------------


def test_no_screen_follows_when_the_last_peel_commits_everything():
    # With a cutoff of 1 one claim is enough: every end of a matching is peeled.
    result = sample(Packed(**CLEAR, degree_cutoff=1), responding(6, [(0, 3), (1, 4), (2, 5)]))
    report = result.diagnostics
    assert batches(result) == [[k] for k in range(6)]
    assert len(report.screens) == report.peel_phases == 1
    assert report.screens[0].num_peeled == 6
    assert len(report.terminal_positions) == len(report.terminal_edges) == 0
    assert report.terminal_edges.shape == (0, 2)
    assert (report.num_layers, report.num_repaired, report.guard) == (0, 0, "none")
    assert result.ledger.stages == 1 + 1 + 6


def test_peel_set_is_frozen_and_committed_in_order():
    # A path 5 - 3 - 0 - 4 - 2 - 1 and a cutoff of 2: two claims peel, so all but the ends go,
    # although after the first commits the others have fewer claims left.
    path = [(5, 3), (3, 0), (0, 4), (4, 2), (2, 1)]
    result = sample(Packed(**CLEAR, degree_cutoff=2), responding(6, path))
    assert batches(result) == [[0], [2], [3], [4], [1, 5]]
    assert [screen.num_residual for screen in result.diagnostics.screens] == [6, 2]


def test_phase_cap_zero_screens_once_and_peels_nothing():
    path = [(k, k + 1) for k in range(6)]
    result = sample(Packed(**CLEAR, degree_cutoff=2, phase_cap=0), responding(7, path))
    report = result.diagnostics
    assert (len(report.screens), report.peel_phases, report.screens[0].num_peeled) == (1, 0, 0)
    assert report.terminal_positions.tolist() == list(range(7))
    assert edge_set(report.terminal_edges) == set(path)
    assert batches(result) == [[3], [1, 5], [0, 2, 4, 6]]


@pytest.mark.parametrize("phases", [1, 2, 3])
def test_a_screen_follows_the_last_permitted_peel_phase(phases):
    # A clique of 13 with a cutoff of 2: each row keeps the first two others, so that the first
    # three positions have two claims or more, every time anew.
    clique = responding(13, list(itertools.combinations(range(13), 2)))
    result = sample(Packed(**CLEAR, degree_cutoff=2, phase_cap=phases), clique)
    report = result.diagnostics
    assert report.peel_phases == phases
    assert [screen.num_residual for screen in report.screens] == [
        13 - 3 * k for k in range(phases + 1)
    ]
    assert [screen.num_peeled for screen in report.screens] == [3] * phases + [0]
    assert batches(result)[: 3 * phases] == [[k] for k in range(3 * phases)]
    # The terminal graph is that of the last screen: the two first of those left, and everyone.
    first = 3 * phases
    assert report.terminal_positions.tolist() == list(range(first, 13))
    assert edge_set(report.terminal_edges) == {
        (hub, k) for hub in (first, first + 1) for k in range(hub + 1, 13)
    }
    assert result.ledger.stages == 1 + len(report.screens) + result.ledger.commits


# ----- Cycle repair ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "edges", "repaired", "layers"),
    [
        # A triangle: all alike, the smallest goes.
        (3, [(0, 1), (1, 2), (0, 2)], [0], [[1], [2]]),
        # Two triangles that share vertex 3: one commit opens both.
        (5, [(3, 0), (0, 1), (1, 3), (3, 2), (2, 4), (4, 3)], [3], [[0, 2], [1, 4]]),
        # Theta: 1 and 4 are joined by three paths; after 1 nothing is left to repair.
        (5, [(1, 0), (0, 4), (1, 2), (2, 4), (1, 3), (3, 4)], [1], [[4], [0, 2, 3]]),
        # Two triangles apart: one each.
        (6, [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)], [0, 3], [[1, 4], [2, 5]]),
        # The degree counts edges off the cycle: 2 has a pendant vertex, 0 and 1 do not.
        (4, [(0, 1), (1, 2), (0, 2), (2, 3)], [2], [[0, 3], [1]]),
        # But a hub that lies on no cycle stays: 3 has degree 4.
        (7, [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (3, 5), (3, 6)], [2], [[0, 3], [1, 4, 5, 6]]),
        # Degrees are taken again after each commit: 5 goes first, with degree 5; 8 had degree 3
        # through it and is now like 3 and 4.
        (
            9,
            [(5, 6), (6, 7), (7, 5), (5, 0), (5, 2), (5, 8), (3, 4), (4, 8), (3, 8)],
            [5, 3],
            [[0, 1, 2, 4, 6], [7, 8]],
        ),
        # K4: a vertex, then a triangle is left.
        (4, list(itertools.combinations(range(4), 2)), [0, 1], [[2], [3]]),
    ],
)
def test_cycle_repair_example_by_example(length, edges, repaired, layers):
    sampler = Packed(**CLEAR, degree_cutoff=12)
    result = sample(sampler, responding(length, edges))
    report = result.diagnostics
    assert edge_set(report.terminal_edges) == edge_set(edges)
    assert batches(result) == [[v] for v in repaired] + layers
    assert plain_repair(set(range(length)), edge_set(edges)) == repaired
    assert (report.num_repaired, report.num_layers) == (len(repaired), len(layers))
    assert (len(report.screens), report.guard) == (1, "none")  # no new screen


def on_cycle(vertices: set[int], edges: set[tuple[int, int]], vertex: int) -> bool:
    """Whether two neighbours of a vertex are joined without it."""

    def around(v: int) -> set[int]:
        ends = {a + b - v for a, b in edges if v in (a, b)}
        return ends & vertices

    reached: dict[int, int] = {}
    for start in around(vertex):
        stack = [start]
        while stack:
            v = stack.pop()
            if v == vertex or v in reached:
                if v != vertex and reached[v] != start:
                    return True
                continue
            reached[v] = start
            stack.extend(around(v))
    return False


def plain_repair(vertices: set[int], edges: set[tuple[int, int]]) -> list[int]:
    """Delete the cycle vertex of highest degree, ties to the smallest, until none is left."""
    left, order = set(vertices), []
    while True:
        live = {(a, b) for a, b in edges if a in left and b in left}
        cyclic = [v for v in left if on_cycle(left, live, v)]
        if not cyclic:
            return order
        worst = min(cyclic, key=lambda v, live=live: (-sum(v in e for e in live), v))
        order.append(worst)
        left.remove(worst)


def plain_layers(vertices: set[int], edges: set[tuple[int, int]]) -> list[list[int]]:
    """Take the smallest centroid of every component, delete, repeat."""
    left, layers = set(vertices), []
    while left:
        layer = []
        for component in plain_components(left, edges):
            sizes = {
                v: max((len(c) for c in plain_components(component - {v}, edges)), default=0)
                for v in component
            }
            layer.append(min(v for v in component if 2 * sizes[v] <= len(component)))
        layers.append(sorted(layer))
        left -= set(layer)
    return layers


def plain_components(vertices: set[int], edges: set[tuple[int, int]]) -> list[set[int]]:
    found: list[set[int]] = []
    for v in vertices:
        touching = [c for c in found if any((min(v, u), max(v, u)) in edges for u in c)]
        found = [c for c in found if c not in touching] + [{v}.union(*touching)]
    return found


# ----- The guard ------------------------------------------------------------------------------

PATH_OF_SIX = [(k, k + 1) for k in range(5)]
TRIANGLES = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)]
PATH_OF_SEVEN = [(k, k + 1) for k in range(6)]


@pytest.mark.parametrize(
    ("edges", "cutoff", "expected", "guards"),
    [
        # All four inner positions are peeled; the two ends are left for the last round either way.
        (PATH_OF_SIX, 2, [[1], [2], [3], [4], [0, 5]], ["peel"] * 4 + ["centroid", "none"]),
        (TRIANGLES, 8, [[0], [3], [1, 4], [2, 5]], ["repair"] * 2 + ["centroid"] * 2 + ["none"]),
        (PATH_OF_SEVEN, 8, [[3], [1, 5], [0, 2, 4, 6]], ["centroid"] * 3 + ["none"]),
    ],
)
def test_the_guard_takes_all_that_is_left_in_the_last_round(edges, cutoff, expected, guards):
    length = 1 + max(map(max, edges))
    for cap, guard in enumerate(guards, start=1):
        sampler = Packed(**CLEAR, degree_cutoff=cutoff, round_cap=cap)
        result = sample(sampler, responding(length, edges), keep_notes=True)
        before = expected[: cap - 1]
        left = sorted(set(range(length)).difference(*before))
        assert batches(result) == ([*before, left] if left else before)
        assert result.diagnostics.guard == guard
        notes = [note.content for note in result.transcript.notes if note.name == "guard"]
        assert notes == ([] if guard == "none" else [{"place": guard}])
        # A peel phase that was cut short was not completed, and no screen followed it.
        if guard == "peel":
            assert (result.diagnostics.peel_phases, len(result.diagnostics.screens)) == (0, 1)


def test_a_guard_that_acted_is_noted_and_exactness_is_not_claimed():
    """The terminal graph is the whole path, yet the last permitted round breaks it."""
    law = cp.families.path(64, 1)
    result = sample(Packed(round_cap=3), law.oracle(), cp.Streams(1, 2))
    report = result.diagnostics
    assert edge_set(law.edges) <= edge_set(report.terminal_edges)
    assert (report.guard, report.num_forced) == ("centroid", 61)
    assert cp.evaluation.batch_kl(law, result).value == pytest.approx(0.8256, abs=1e-4)
    (note,) = result.notes
    assert "guard acted at a centroid commit: round 3" in note
    assert "all 61 positions left in one batch" in note
    assert result.summary()["notes"] == [note]
    assert "guard did not act" in Packed.bound
    # Without the cap the same graph gives an exact run, and there is nothing to say.
    free = sample(Packed(**SHARED), law.oracle())
    assert (free.diagnostics.guard, free.diagnostics.num_forced) == ("none", 0)
    assert free.notes == []
    assert cp.evaluation.batch_kl(law, free).value == 0.0


def test_given_context_uses_no_round():
    given = [cp.MASK, 1, cp.MASK, cp.MASK, cp.MASK, 0]
    result = sample(Packed(**CLEAR, round_cap=3), responding(6, TRIANGLES), given=given)
    # Of 0, 2, 3 and 4 no cycle is left: edges 0 - 2 and 3 - 4.
    assert batches(result) == [[0, 3], [2, 4]]
    assert result.diagnostics.guard == "none"
    assert result.tokens[[1, 5]].tolist() == [1, 0]


# ----- The whole box against a plain reading --------------------------------------------------


def plain_box(oracle, plan, decisions, result, selector=top_votes) -> tuple[list, str]:
    """Follow the algorithm line by line; values of commits are those that the run drew."""
    history = result.given.copy()
    batches, length = [], oracle.length
    screens = phases = 0
    banks = cp.run.Run(oracle, given=history).call(read_banks, plan.bank_threshold, plan.row_error)

    def commit(batch) -> bool:
        residual = np.flatnonzero(history == cp.MASK)
        is_last = len(batches) == plan.round_cap - 1
        chosen = residual if is_last else np.array(sorted(batch))
        history[chosen] = result.tokens[chosen]
        batches.append(chosen.tolist())
        return is_last

    while (history == cp.MASK).any():
        draft = np.where(history == cp.MASK, banks.most_likely, history)
        colors = draw_colorings(
            plan.screen.num_colorings,
            plan.screen.num_colors,
            length,
            decisions("coloring", screens),
        )
        rows = cp.run.Run(oracle, given=history).call(
            packed_screen,
            plan.screen,
            banks.columns(draft),
            draft,
            colors,
            selector,
        )
        screens += 1
        residual = np.flatnonzero(history == cp.MASK).tolist()
        row = {u: set(rows.row(u).tolist()) for u in residual}
        peel = [
            v
            for v in residual
            if sum(v in row[u] for u in residual) > plan.screen.degree_cutoff / 2
        ]
        if not peel or phases == plan.phase_cap:
            break
        for v in peel:
            if commit([v]):
                return batches, "peel"
        phases += 1
    else:
        return batches, "none"
    vertices = set(residual)
    edges = {(u, v) for u, v in itertools.combinations(residual, 2) if v in row[u] or u in row[v]}
    for v in plain_repair(vertices, edges):
        if commit([v]):
            return batches, "repair"
        vertices.remove(v)
    for layer in plain_layers(vertices, edges):
        if commit(layer):
            return batches, "centroid"
    return batches, "none"


def random_case(seed: int) -> tuple[Packed, cp.Oracle, np.ndarray]:
    """Draw tuned settings, an oracle and a given context."""
    rng = np.random.default_rng([seed, 5])
    length = int(rng.integers(4, 16))

    def maybe(value):
        return value if rng.random() < 0.5 else None

    num_colors = int(rng.integers(2, 13))
    sampler = Packed(
        num_colors=num_colors,
        num_colorings=int(rng.integers(1, 8)),
        degree_cutoff=int(rng.integers(1, 10)),
        chunk_count=maybe(int(rng.integers(1, length + 3))),
        tv_cut=maybe(float(rng.choice([0.0, 0.05, 0.2]))),
        majority_fraction=float(rng.choice([0.0, 0.3, 0.5, 0.65, 0.9])),
        bank_threshold=maybe(float(rng.choice([0.05, 0.2, 0.4, 1.0]))),
        phase_cap=maybe(int(rng.integers(0, 4))),
        round_cap=maybe(int(rng.integers(1, 9))),
        skip_empty_colors=bool(rng.integers(2)),
        selector=str(rng.choice(list(SELECTORS))),
    )
    kind = rng.integers(5)
    oracle: cp.Oracle
    if kind == 0:
        oracle = nonsense(length, int(rng.integers(2, 6)), seed, float(rng.choice([0.2, 0.6, 1])))
    elif kind == 1:
        pairs = itertools.permutations(range(length), 2)
        density = rng.choice([0.1, 0.3, 1.0])
        oracle = responding(length, [p for p in pairs if rng.random() < density], both_ways=False)
    else:
        parent = [int(rng.integers(i)) for i in range(1, length)]
        edges = np.stack([parent, np.arange(1, length)], axis=1)
        edges = rng.permutation(length)[edges[rng.random(length - 1) < 0.8]].reshape(-1, 2)
        if kind == 2:
            oracle = cp.families.two_type_forest(length, edges, vocab_size=16).oracle()
        elif kind == 3:
            exact = cp.families.two_type_forest(length, edges, vocab_size=16).oracle()
            direction = str(rng.choice(["random", "hide", "fake"]))
            oracle = cp.FrozenNoise(exact, radius=1e-3, direction=direction, seed=seed)
        else:
            weights = rng.uniform(-0.9, 0.9, size=len(edges))
            oracle = cp.families.from_edges(length, edges, weights, seed, relabel=False).oracle()
    share = rng.choice([0.0, 0.3])
    given = np.where(rng.random(length) < share, rng.integers(2, size=length), cp.MASK)
    given[rng.integers(length)] = cp.MASK
    return sampler, oracle, given


def check_caps(result: cp.SampleResult) -> None:
    """What holds on every path, whatever the oracle says."""
    report, ledger = result.diagnostics, result.ledger
    plan, length = report.setup, len(result.given)
    chunk_count = -(-length // plan.screen.chunk_size)
    most = cp.theory.probe_cap(
        report.num_columns,
        plan.phase_cap + 1,
        plan.screen.num_colorings,
        plan.screen.num_colors,
        chunk_count,
    )
    assert ledger.preprocessing == 1
    assert ledger.probes <= most
    assert ledger.probes == sum(screen.probes for screen in report.screens)
    assert ledger.commits <= plan.round_cap
    assert 1 <= len(report.screens) <= plan.phase_cap + 1
    assert report.peel_phases <= plan.phase_cap
    probed = sum(screen.probes > 0 for screen in report.screens)
    assert ledger.stages == 1 + ledger.commits + probed <= 1 + ledger.commits + len(report.screens)
    assert ledger == result.transcript.replay()
    assert result.used is cp.Need.NONE
    # Every position is committed once, and context stays as it was.
    open_positions = np.flatnonzero(result.given == cp.MASK)
    assert sorted(np.concatenate(result.batches).tolist()) == open_positions.tolist()
    context = result.given != cp.MASK
    assert (result.tokens[context] == result.given[context]).all()
    assert (result.tokens >= 0).all()
    if report.guard == "none":
        singles = sum(screen.num_peeled for screen in report.screens) + report.num_repaired
        assert ledger.commits == singles + report.num_layers
    else:
        assert ledger.commits == plan.round_cap


def soak(seed: int, counted) -> str:
    """Run one random case, check it against the plain box and the caps; return its guard."""
    sampler, inner, given = random_case(seed)
    oracle = counted(inner)
    streams = cp.Streams(seed, seed + 1)
    result = sample(sampler, oracle, streams, given=given)
    check_caps(result)
    assert oracle.states == result.ledger.evaluations
    assert oracle.rows_read == result.ledger.rows_read
    report = result.diagnostics
    expected, guard = plain_box(
        inner, report.setup, streams.decisions, result, SELECTORS[sampler.selector]
    )
    assert batches(result) == expected
    assert report.guard == guard
    return guard


def test_random_runs_follow_the_algorithm_and_its_caps(counted):
    guards = [soak(seed, counted) for seed in range(50, 110)]
    assert set(guards) == {"none", "peel", "repair", "centroid"}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_thousands_of_random_runs_follow_the_algorithm_and_its_caps(part, counted):
    for seed in range(1000 * (part + 1), 1000 * (part + 1) + 600):
        soak(seed, counted)


@pytest.mark.parametrize("seed", range(300, 306))
def test_a_result_is_a_function_of_its_two_seeds(seed, counted):
    sampler, inner, given = random_case(seed)
    seen, results = [], []
    for streams in (cp.Streams(1, 2), cp.Streams(1, 2), cp.Streams(1, 3)):
        oracle = counted(inner)
        results.append(sample(sampler, oracle, streams, given=given, keep_notes=True))
        # Everything before the first commit: preprocessing and the first screen.
        before = 1 + results[-1].diagnostics.screens[0].probes
        seen.append(np.concatenate(oracle.seen)[:before])
    same, again, other = results
    assert same.tokens.tolist() == again.tokens.tolist()
    assert same.ledger == again.ledger
    assert batches(same) == batches(again)
    prints = [[event.fingerprints.tolist() for event in r.transcript.events] for r in results]
    assert prints[0] == prints[1]
    # Another commit seed changes no decision before the first commit.
    np.testing.assert_array_equal(seen[0], seen[2])
    assert batches(same)[0] == batches(other)[0]
    colors = [
        next(n.content["colors"] for n in r.transcript.notes if n.name == "screen")
        for r in results
    ]
    np.testing.assert_array_equal(colors[0], colors[2])


def test_from_one_history_decisions_do_not_depend_on_the_commit_seed():
    # A law whose values differ between the seeds, peeled in two phases: from the same first
    # values on, the second screen is the same.
    law = cp.families.from_edges(
        12, [[0, i] for i in range(1, 12)], np.full(11, 0.5), 3, relabel=False
    )
    second = {}
    for seed in range(12):
        run = cp.run.Run(law.oracle(), keep_notes=True)
        result = Packed(degree_cutoff=4, **SHARED)(run, cp.Streams(7, seed))
        assert batches(result)[0] == [0]
        screens = [n.content for n in result.transcript.notes if n.name == "screen"]
        assert len(screens) == 2
        print_of_screen = result.transcript.events[3].fingerprints.tolist()
        key = int(result.tokens[0])
        assert second.setdefault(key, print_of_screen) == print_of_screen
    assert len(second) > 1


def test_each_screen_has_fresh_colors():
    clique = responding(10, list(itertools.combinations(range(10), 2)))
    result = sample(Packed(**CLEAR, degree_cutoff=2), clique, keep_notes=True)
    colors = [n.content["colors"] for n in result.transcript.notes if n.name == "screen"]
    assert len(colors) >= 3
    for one, other in itertools.combinations(colors, 2):
        assert one.shape == other.shape == (5, 10)  # committed positions are colored too
        assert not np.array_equal(one, other)


def theory_run(seed: int) -> bool:
    """One run in theory mode: caps on its path, and exactness whenever its screens separate.

    Returns whether they did and the guarantee was not waived.
    """
    rng = np.random.default_rng([seed, 9])
    length = int(rng.integers(10, 16))
    # Most newcomers join the first position, so that some trees have a vertex to peel.
    parent = [0 if rng.random() < 0.75 else int(rng.integers(i)) for i in range(1, length)]
    edges = rng.permutation(length)[np.stack([parent, np.arange(1, length)], axis=1)]
    law = cp.families.two_type_forest(length, edges, vocab_size=int(rng.choice([64, 2048])))
    settings = dict(RESOLVED)
    if rng.random() < 0.3:
        # No guarantee: a cut of 0.1 and more, under which a hub loses its edges.
        settings |= {"epsilon": 0.4, "tail_tolerance": 0.5, "waive_guarantee": True}
    settings["case"] = str(rng.choice(["tv", "kl"]))
    settings["chunk_count"] = int(rng.choice([1, 3, 9]))
    settings["selector"] = str(rng.choice(list(SELECTORS)))
    sampler = PackedTheory(**settings)
    streams = cp.Streams(seed, seed + 1)
    result = sample(sampler, law.oracle(), streams, keep_notes=True)
    check_caps(result)
    report = result.diagnostics
    public = sampler.calibration(length, law.vocab_size)
    assert (report.setup.phase_cap, report.setup.round_cap) == (
        public.phase_cap,
        public.round_cap,
    )
    screens = [n.content for n in result.transcript.notes if n.name == "screen"]
    separated = all(
        screen_separated(edges, content["rows"].residual, content["colors"], 9)
        for content in screens
    )
    if not separated or "waive_guarantee" in settings:
        return False
    left = residual_edges(edges, report.terminal_positions, length)
    assert edge_set(report.terminal_edges) == edge_set(left)
    assert (report.num_repaired, report.guard) == (0, "none")
    assert cp.evaluation.batch_kl(law, result).value == 0.0
    return True


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_dozens_of_runs_in_theory_mode(part):
    exact = [theory_run(seed) for seed in range(10 * (part + 1), 10 * (part + 1) + 8)]
    assert any(exact)


# ----- Families -------------------------------------------------------------------------------


def family_run(family: str, length: int, seed: int) -> bool:
    """Run the default sampler; whether its terminal graph holds the residual forest."""
    law = cp.families.build(family, length, seed)
    result = sample(Packed(**SHARED), law.oracle(), cp.Streams(seed, seed + 1))
    check_caps(result)
    report = result.diagnostics
    left = residual_edges(law.edges, report.terminal_positions, length)
    holds = edge_set(left) <= edge_set(report.terminal_edges) and report.guard == "none"
    if holds:
        assert cp.evaluation.batch_kl(law, result).value == 0.0
    return holds


@pytest.mark.parametrize("family", cp.families.FAMILIES)
def test_default_settings_on_every_family(family):
    # A run fails with chance about one in a thousand; the seed is fixed.
    assert family_run(family, 512, 0)


@pytest.mark.slow
@pytest.mark.parametrize("family", cp.families.FAMILIES)
def test_default_settings_on_every_family_many_times(family):
    runs = {512: 16, 1024: 8, 2048: 3} if family != "hard-matching" else {512: 3}
    outcomes = [
        family_run(family, length, 100 + seed) for length in runs for seed in range(runs[length])
    ]
    assert sum(outcomes) >= 0.95 * len(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "family",
    ["matching", "path", "binary-tree", "growing-stars", "caterpillar", "preferential-attachment"],
)
def test_from_8192_positions_on_the_defaults_are_exact_at_most_at_four_fifths(family, seed):
    law = cp.families.build(family, 8192, 171 + seed)
    result = sample(Packed(), law.oracle(), cp.Streams(seed, seed + 1))
    assert cp.evaluation.batch_kl(law, result).value == 0.0
    assert result.ledger.evaluations <= 0.8 * 8192
    assert len(result.diagnostics.screens) == 1


@pytest.mark.parametrize(("family", "noise"), [("growing-stars", 0.0014), ("binary-tree", 0.014)])
def test_beside_a_noisy_oracle_one_end_of_an_edge_is_enough(family, noise):
    law = cp.families.build(family, 1024, 196)
    oracle = cp.FrozenNoise(law.oracle(), radius=noise**2 / 2)
    rule = Packed(shared_by=1000)
    found = rule(cp.run.Run(oracle), cp.Streams.from_seed(292)).diagnostics
    assert not found.setup.screen.mutual
    named = {frozenset(pair) for pair in found.terminal_edges.tolist()}
    assert {frozenset(pair) for pair in law.edges.tolist()} <= named
    assert rule.setup(1024, law.vocab_size, law.oracle().row_error).screen.mutual


@pytest.mark.parametrize("noise", [1.4e-5, 0.0014])
def test_beside_a_noisy_oracle_the_cap_on_rounds_has_room_for_repairs(noise):
    law = cp.families.build("preferential-attachment", 1024, 7)
    oracle = cp.FrozenNoise(law.oracle(), radius=noise**2 / 2)
    rule = Packed(shared_by=1000)
    result = rule(cp.run.Run(oracle), cp.Streams.from_seed(5))
    assert result.diagnostics.guard == "none" and result.diagnostics.num_repaired > 20
    assert cp.evaluation.batch_kl(law, result, oracle=oracle).value < 0.01
    exact = rule.setup(1024, law.vocab_size, law.oracle().row_error)
    assert result.diagnostics.setup.round_cap == exact.round_cap


def test_beside_a_noisy_oracle_few_positions_are_decoded_one_at_a_time():
    oracle = cp.FrozenNoise(cp.families.path(length=24, target_seed=1).oracle(), radius=1e-4)
    with pytest.warns(cp.errors.CostWarning, match="more than one at a time"):
        result = Packed()(cp.run.Run(oracle), cp.Streams.from_seed(1))
    assert result.ledger.evaluations == 24 and result.diagnostics.foreseen > 24
