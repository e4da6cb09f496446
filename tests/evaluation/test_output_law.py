"""Exact output laws: known laws, the paper's identities, and rules broken on purpose."""

from dataclasses import dataclass
from itertools import product
from typing import ClassVar
from zlib import crc32

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.packed.selectors import SELECTORS, SeesTranscript
from counterprobe.evaluation import draw_tree_law, output_law
from counterprobe.evaluation.output_law import (
    class_table,
    exact_output_law,
    seed_averaged_risk,
)
from counterprobe.radii import RowRadii
from counterprobe.run import Commit
from counterprobe.samplers import PUNT, InfoGain, LLaDA, MaskGIT, OneBatch, Sequential, Threshold
from counterprobe.targets import forests
from counterprobe.targets.class_checker import check_class
from counterprobe.theory.parameters import calibrate


def small_law(seed: int, length: int = 6) -> cp.ForestLaw:
    rng = np.random.default_rng(seed)
    edges = forests.random_recursive_tree(length, rng)
    pair = rng.uniform(0.2, 2.0, (len(edges), 2, 2))
    return cp.ForestLaw(rng.uniform(0.3, 1.0, (length, 2)), edges, pair)


@dataclass(frozen=True)
class ValueDriven(cp.samplers.Sampler):
    """A rule that is broken on purpose: later batches depend on earlier values, none is safe."""

    name: ClassVar[str] = "value-driven"
    summary: ClassVar[str] = "for tests"
    source: ClassVar[str] = "tests"

    def unmask(self, view, rng):
        while not view.is_complete:
            residual = view.residual
            known = view.state[view.state >= 0]
            size = 1 + int(known.sum()) % 3
            order = rng("order", len(residual)).permutation(residual)
            yield Commit(np.sort(order[: min(size, len(order))]))


SAMPLERS = [
    cp.samplers.Sequential("index"),
    cp.samplers.Sequential("random"),
    cp.samplers.Sequential("confidence"),
    cp.samplers.OneBatch(),
    cp.samplers.RandomBalanced(2),
    cp.samplers.Packed(num_colors=4, num_colorings=9, majority_fraction=0.4),
    ValueDriven(),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: f"{s.name}-{s.settings}"[:40])
def test_output_law_matches_simulated_frequencies(sampler) -> None:
    """Chi-square of 800 simulated runs against the exact law, level 1e-6 a sampler."""
    from scipy import stats

    law = small_law(1, length=3)
    exact = exact_output_law(law, sampler, decision_seed=3)
    assert exact is not None
    counts = np.zeros(exact.output.shape)
    drawn = cp.sample(law.oracle(), sampler, 800, seed=cp.Streams(3, 0), progress=False)
    np.add.at(counts, tuple(drawn.sequences.T), 1)
    expected = 800 * exact.output.ravel()
    assert expected.min() > 5
    assert stats.chisquare(counts.ravel(), expected).pvalue > 1e-6


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: f"{s.name}-{s.settings}"[:40])
@pytest.mark.parametrize("direction", ["exact", "random", "hide", "fake"])
def test_joint_reference_identity_is_an_equality(sampler, direction) -> None:
    for seed in (0, 1) if direction == "exact" else (1,):
        law = small_law(seed)
        oracle = law.oracle()
        if direction != "exact":
            oracle = cp.FrozenNoise(
                oracle, radius=3e-3, metric="hellinger", direction=direction, seed=seed
            )
        exact = exact_output_law(law, sampler, oracle=oracle, decision_seed=seed)
        assert exact is not None
        assert exact.output.sum() == pytest.approx(1, abs=1e-12)
        assert abs(exact.kl - exact.total_correlation - exact.row_kl) < 1e-9
        assert exact.row_kl >= -1e-12
        assert exact.total_correlation >= -1e-12
        if direction == "exact":
            assert abs(exact.row_kl) < 1e-12
            assert np.allclose(exact.hybrid, exact.output, atol=1e-15)
        else:
            # Rows within squared Hellinger x^2 / (2N) keep hybrid and output within x^2 / 2.
            assert exact.hybrid_hellinger <= law.length * 3e-3 + 1e-12
        if exact.is_safe:
            assert exact.hybrid_total_variation < 1e-12
            assert abs(exact.total_correlation) < 1e-12


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: f"{s.name}-{s.settings}"[:40])
@pytest.mark.parametrize("direction", ["exact", "random", "hide"])
def test_the_midpoint_identity_is_an_equality(sampler, direction) -> None:
    """``1 - H^2(target, output) = E_midpoint prod_t affinity_t``, for adaptive batches too."""
    law = small_law(2)
    oracle = law.oracle()
    if direction != "exact":
        oracle = cp.FrozenNoise(oracle, radius=3e-3, metric="hellinger", direction=direction)
    exact = exact_output_law(law, sampler, oracle=oracle, decision_seed=1)
    assert exact.midpoint.sum() == pytest.approx(1, abs=1e-12)
    product = float((exact.midpoint * exact.affinity).sum())
    assert 1 - exact.squared_hellinger == pytest.approx(product, abs=1e-12)
    assert exact.affinity.max() <= 1 + 1e-12


def test_the_midpoint_of_one_batch_is_the_geometric_mean() -> None:
    exact = exact_output_law(small_law(2), cp.samplers.OneBatch())
    mean = np.sqrt(exact.target * exact.output)
    assert exact.midpoint == pytest.approx(mean / mean.sum(), abs=1e-14)
    assert exact.affinity == pytest.approx(np.full_like(mean, mean.sum()), abs=1e-14)
    assert mean.sum() < 0.99


def test_sequential_is_exact_and_one_batch_has_the_total_correlation() -> None:
    law = small_law(4)
    assert exact_output_law(law, cp.samplers.Sequential()).total_variation < 1e-12
    batch = exact_output_law(law, cp.samplers.OneBatch())
    assert batch.kl == pytest.approx(law.total_correlation(), abs=1e-12)
    assert not batch.is_safe
    assert batch.num_histories == 1


def test_table_laws_and_parity() -> None:
    parity = cp.TableLaw(1 - np.indices((2, 2, 2)).sum(axis=0) % 2)
    with pytest.warns(cp.errors.ZeroProbabilityWarning):
        exact = exact_output_law(parity, cp.samplers.Sequential())
    assert exact.total_variation < 1e-12
    assert exact_output_law(parity, cp.samplers.OneBatch()).total_variation == pytest.approx(0.5)


def test_class_table_sums_tokens_of_a_class() -> None:
    law = cp.families.two_type_path(4, vocab_size=16)
    table = class_table(law)
    assert table.table.shape == (2,) * 4
    assert table.table.sum(axis=(1, 2, 3)) == pytest.approx(law.class_marginals[0])


def test_too_large_a_law_is_refused() -> None:
    with pytest.raises(ValueError, match="class sequences"):
        exact_output_law(cp.families.path(32), cp.samplers.OneBatch())


# The command ``verify`` runs the other case, with the other rule, among the quick tests.
QUICK_CASES = {("kl", "star", "empty-on-overflow")}


@pytest.mark.parametrize(
    ("case", "shape", "selector"),
    [
        pytest.param(*chosen, marks=() if chosen in QUICK_CASES else pytest.mark.slow)
        for chosen in product(("tv", "kl"), ("path", "star"), ("top-votes", "empty-on-overflow"))
    ],
)
def test_theory_mode_stays_within_the_finite_theorems(case, shape, selector) -> None:
    """Two-type kernel, N = 10, V = 64, noise on the boundary of the class."""
    edges = forests.path(10) if shape == "path" else np.array([[0, k] for k in range(1, 4)])
    law = cp.families.two_type_forest(10, edges, vocab_size=64)
    sampler = cp.samplers.PackedTheory(
        epsilon=0.1, case=case, edge_signal=0.2, tail_tolerance=0.125, selector=selector
    )
    make = cp.FrozenNoise.for_hellinger_radius if case == "tv" else cp.FrozenNoise.for_kl_tolerance
    oracle = make(
        law.oracle(),
        0.05 if case == "tv" else 0.005,
        direction="random",
        seed=2,
        classes=law.classes,
    )
    exact = exact_output_law(law, sampler, oracle=oracle, decision_seed=1)
    assert exact is not None
    bound = calibrate(10, 64, epsilon=0.1, degree_cutoff=9, case=case).risk_bound
    risk = exact.total_variation if case == "tv" else exact.kl
    assert 0 < risk <= bound
    assert exact.hybrid_hellinger <= 0.05**2 / 2 + 1e-12
    if exact.is_safe:
        assert exact.hybrid_total_variation < 1e-12


# ----- Selectors that see the transcript ------------------------------------------------------


@SeesTranscript
def by_fingerprint(readout, row, votes, cutoff, transcript):
    """Order a row by all that a selector may see: a rule as contrary as the definition admits."""
    seen = (
        transcript.state, transcript.filler, transcript.columns, transcript.colors,
        transcript.votes.words, transcript.candidates.source, transcript.candidates.votes,
        *(rows.source for rows in transcript.earlier),
    )  # fmt: skip
    key = crc32(b"".join(np.ascontiguousarray(array).tobytes() for array in seen))
    return np.random.default_rng([key, readout]).permutation(row)[:cutoff]


@SeesTranscript
def unclaimed_first(readout, row, votes, cutoff, transcript):
    """Keep what fewest rows of this screen and of earlier ones name."""
    claims = np.bincount(
        transcript.residual[transcript.candidates.source], minlength=len(transcript.state)
    )
    for rows in transcript.earlier:
        claims = claims + rows.claims(len(transcript.state))
    return row[np.argsort(claims[row], kind="stable")[:cutoff]]


SEEING = {"by-fingerprint": by_fingerprint, "unclaimed-first": unclaimed_first}


@pytest.mark.parametrize("selector", ["top-votes", "empty-on-overflow", *SEEING])
def test_every_selector_is_exact_where_its_screens_succeed(selector, monkeypatch) -> None:
    """Two hubs of degree 4 and 3 at a cutoff of 2: rows overflow, and what they keep differs."""
    for name, rule in SEEING.items():
        monkeypatch.setitem(SELECTORS, name, rule)
    edges = np.array([[0, 1], [0, 2], [0, 3], [0, 4], [4, 5], [4, 6], [6, 7]])
    law = cp.families.two_type_forest(8, edges, vocab_size=64)
    sampler = cp.samplers.Packed(
        num_colors=32, num_colorings=21, majority_fraction=0.5, degree_cutoff=2, selector=selector
    )
    overflowed = 0
    for seed in range(2):
        exact = exact_output_law(law, sampler, decision_seed=seed)
        assert exact.is_safe
        assert exact.total_variation < 1e-12
        overflowed += sum(r.screens[0].num_overflowed for r in exact.diagnostics)
    assert overflowed > 0


@pytest.mark.parametrize("selector", SEEING)
def test_the_identities_hold_for_selectors_that_see_the_transcript(selector, monkeypatch) -> None:
    """One coloring fails most screens; the decomposition and the hybrid's bound do not mind."""
    monkeypatch.setitem(SELECTORS, selector, SEEING[selector])
    law = cp.families.two_type_forest(8, forests.path(8), vocab_size=64)
    oracle = cp.FrozenNoise(
        law.oracle(), radius=0.05**2 / 16, metric="hellinger", direction="random", seed=0,
        classes=law.classes,
    )  # fmt: skip
    sampler = cp.samplers.Packed(
        num_colors=2, num_colorings=1, majority_fraction=0.0, degree_cutoff=2, selector=selector
    )
    laws = [exact_output_law(law, sampler, oracle=oracle, decision_seed=k) for k in range(3)]
    for exact in laws:
        assert exact.output.sum() == pytest.approx(1, abs=1e-12)
        assert exact.hybrid_hellinger <= 0.05**2 / 2 + 1e-12
        assert abs(exact.kl - exact.total_correlation - exact.row_kl) < 1e-9
    assert any(not exact.is_safe for exact in laws)
    # Some rows were selected with earlier screens to look at.
    assert any(len(report.screens) > 1 for exact in laws for report in exact.diagnostics)


@pytest.mark.slow
@pytest.mark.parametrize("selector", ["top-votes", *SEEING])
def test_the_proved_risk_is_the_same_for_every_selector(selector, monkeypatch) -> None:
    """Proposition "Invariance under public row selection": N = 11, a hub of degree 10 above d = 9.

    The hub's row overflows in theory mode; rows err on the boundary of the Hellinger class.
    """
    for name, rule in SEEING.items():
        monkeypatch.setitem(SELECTORS, name, rule)
    law = cp.families.two_type_forest(
        11, np.array([[0, k] for k in range(1, 11)]), vocab_size=1024
    )
    epsilon = 0.004
    signal = check_class(law, rank_exponent=1.5).edge_signal
    row_error = calibrate(11, 1024, epsilon=epsilon, degree_cutoff=9).row_error
    sampler = cp.samplers.PackedTheory(
        epsilon=epsilon,
        edge_signal=signal,
        tail_tolerance=0.99 * (signal - 4 * row_error),
        selector=selector,
    )
    oracle = cp.FrozenNoise.for_hellinger_radius(
        law.oracle(), epsilon / 2, direction="random", seed=2, classes=law.classes
    )
    exact = exact_output_law(law, sampler, oracle=oracle, decision_seed=1)
    public = sampler.calibration(11, 1024)
    assert 0 < exact.total_variation <= public.risk_bound == pytest.approx(3 * epsilon / 4)
    assert exact.is_safe
    for report in exact.diagnostics:
        assert report.screens[0].num_overflowed == 1
        assert report.peel_phases == 1 <= public.phase_cap
        assert report.guard == "none"


def test_forced_screen_failure_breaks_safety_but_not_the_hybrid_bound() -> None:
    """One coloring cannot see edges whose ends share a color; the hybrid bound holds anyway."""
    law = cp.families.two_type_forest(8, forests.path(8), vocab_size=64)
    oracle = cp.FrozenNoise(
        law.oracle(),
        radius=0.05**2 / 16,
        metric="hellinger",
        direction="random",
        seed=0,
        classes=law.classes,
    )
    sampler = cp.samplers.Packed(num_colors=2, num_colorings=1, majority_fraction=0.0)
    unsafe = 0
    for seed in range(6):
        exact = exact_output_law(law, sampler, oracle=oracle, decision_seed=seed)
        unsafe += not exact.is_safe
        assert exact.hybrid_hellinger <= 0.05**2 / 2 + 1e-12
        assert abs(exact.kl - exact.total_correlation - exact.row_kl) < 1e-9
    assert unsafe > 0


@pytest.mark.parametrize("right", [cp.Need.VERIFY, cp.Need.REMASK, cp.Need.CANDIDATES])
def test_rules_that_do_not_draw_from_rows_alone_are_refused(right) -> None:
    @dataclass(frozen=True)
    class Entitled(ValueDriven):
        """A rule that would run, and claims more than replay can follow."""

        name: ClassVar[str] = "entitled"

        @property
        def needs(self):
            return right | cp.Need.SELECT

    problem = "'entitled' does not draw its commits from rows alone; its output law cannot be"
    with pytest.raises(ValueError, match=problem):
        exact_output_law(small_law(1), Entitled())


def test_a_rule_that_selects_after_the_reply_has_an_output_law() -> None:
    assert cp.samplers.Sequential("confidence").needs == cp.Need.SELECT
    assert exact_output_law(small_law(1), cp.samplers.Sequential("confidence")) is not None


def test_the_diagnostics_of_every_replay_are_kept() -> None:
    law = small_law(1)
    exact = exact_output_law(law, cp.samplers.Packed(num_colors=4, num_colorings=9, round_cap=1))
    (report,) = exact.diagnostics  # one batch: one history
    assert (report.guard, report.num_forced) == ("centroid", law.length)
    exact = exact_output_law(law, cp.samplers.Sequential())
    assert set(exact.diagnostics) == {None}
    assert len(exact.diagnostics) == 2 ** (law.length - 1)


def test_infeasible_sampler_has_no_output_law() -> None:
    law = cp.families.two_type_forest(10, forests.path(10), vocab_size=3)
    assert exact_output_law(law, cp.samplers.PackedTheory(waive_guarantee=True)) is None


def test_seed_averaged_risk_averages_divergences() -> None:
    law = small_law(2)
    laws = [
        exact_output_law(law, cp.samplers.RandomBalanced(2), decision_seed=k) for k in range(5)
    ]
    risk = seed_averaged_risk(laws)
    values = [one.total_variation for one in laws]
    assert risk.total_variation == pytest.approx(np.mean(values))
    assert risk.total_variation_se == pytest.approx(np.std(values, ddof=1) / np.sqrt(5))
    assert risk.seeds == 5
    mixture = np.mean([one.output for one in laws], axis=0)
    assert np.abs(laws[0].target - mixture).sum() / 2 < risk.total_variation
    with pytest.raises(ValueError, match="at least one"):
        seed_averaged_risk([])


@pytest.mark.slow
@pytest.mark.parametrize("case", ["tv", "kl"])
@pytest.mark.parametrize("direction", ["random", "hide", "fake"])
@pytest.mark.parametrize(
    ("length", "edges"),
    [
        (10, forests.path(10)),
        (10, np.array([[0, 1], [0, 2], [0, 3]])),
        (10, np.empty((0, 2), dtype=np.int64)),
        (12, forests.path(12)),
    ],
    ids=["path", "star", "isolated", "longer-path"],
)
def test_adversaries_inside_the_class_stay_within_the_theorems(
    case, direction, length, edges
) -> None:
    """Two seeds each; the largest of the two risks stays below the bound on their mean."""
    law = cp.families.two_type_forest(length, edges, vocab_size=64)
    constants = check_class(law)
    signal = constants.edge_signal
    sampler = cp.samplers.PackedTheory(
        epsilon=0.1, case=case, edge_signal=signal, tail_tolerance=min(0.13, signal / 2)
    )
    assert constants.violations(signal) == []
    assert all(sampler.setup(length, 64, RowRadii.exact()).hypotheses.values())
    make = cp.FrozenNoise.for_hellinger_radius if case == "tv" else cp.FrozenNoise.for_kl_tolerance
    size = 0.05 if case == "tv" else 0.005
    oracle = make(law.oracle(), size, direction=direction, seed=7, classes=law.classes)
    bound = sampler.calibration(length, 64).risk_bound
    for seed in (0, 1):
        exact = exact_output_law(law, sampler, oracle=oracle, decision_seed=seed)
        assert exact is not None
        assert abs(exact.kl - exact.total_correlation - exact.row_kl) < 1e-9
        assert exact.hybrid_hellinger <= 0.05**2 / 2 + 1e-12
        assert (exact.total_variation if case == "tv" else exact.kl) <= bound


# ----- Rules that commit candidates --------------------------------------------------------


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


@pytest.mark.slow
@pytest.mark.statistical
def test_it_is_the_law_that_is_drawn(chi_square, false_alarms, seed_of):
    # 1,500 draws over eight sequences see a chi-square distance of 0.03 with probability 0.99.
    law = cp.ForestLaw([[1, 2], [3, 2], [1, 1]], [[0, 2], [2, 1]], [[1, 4], [3, 1]])
    samplers = [PUNT(0.02), InfoGain(3, threshold=0.9)]
    for sampler in samplers:
        expected = draw_tree_law(law, sampler, decision_seed=4)
        counts = np.zeros((2,) * 3)
        for k in range(1_500):
            run = cp.run.Run(law.oracle(), sequence=k)
            counts[tuple(sampler(run, cp.Streams(4, seed_of(17))).tokens)] += 1
        assert chi_square(counts, expected) > false_alarms / len(samplers)


def test_an_infeasible_sampler_has_no_law():
    law = cp.ForestLaw(np.ones((10, 2)), [], np.ones((2, 2)))
    assert draw_tree_law(law, cp.samplers.PackedTheory()) is None


def test_too_many_ways_to_draw_are_refused(monkeypatch):
    monkeypatch.setattr(output_law, "MAX_REPLAYS", 10)
    with pytest.raises(ValueError, match="has more than 10 ways to draw"):
        draw_tree_law(THREE, Sequential())
