"""Finite bounds: hand-computed values, implications, and exact tails."""

import math

import numpy as np
import pytest
from scipy import stats

from counterprobe.theory import bounds, calibrate
from counterprobe.theory.parameters import MIN_CUTOFF


def test_balanced_cutoff_by_hand() -> None:
    # (N omega^(1/s))^(1/3) with N = 10^6, omega = 10^-3, s = 1.5: (10^6 * 10^-2)^(1/3) = 21.54
    assert bounds.balanced_cutoff(10**6, 1e-3, 1.5) == (22, False)
    assert bounds.balanced_cutoff(1000, 1e-3, 1.5) == (MIN_CUTOFF, True)
    assert bounds.balanced_cutoff(10, 1.0, 1.5) == (9, True)
    with pytest.raises(ValueError, match="rank_exponent must be above 1, got 1"):
        bounds.balanced_cutoff(100, 0.1, 1)


def test_column_cap_by_hand() -> None:
    # (4 / (1/16))^(1/2) = 8 bank tokens, and the tail
    assert bounds.column_cap(1 / 16, 2.0) == 9
    assert bounds.column_cap(1.0, 1.5) == math.floor(4 ** (2 / 3)) + 1


@pytest.mark.parametrize("case", ["tv", "kl"])
def test_lemma_implies_direct_feasibility_and_its_column_cap(case: str) -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(400):
        length = int(10 ** rng.uniform(1, 12))
        vocab = int(10 ** rng.uniform(1, 9)) + 2
        public = (
            calibrate(length, vocab, epsilon=rng.uniform(0.01, 1), degree_cutoff=9, case=case)
            if length >= 10
            else None
        )
        if public is None:
            continue
        answer = bounds.feasibility(public)
        if answer.by_lemma:
            held += 1
            assert answer.directly
            assert answer.threshold is not None
            assert public.edge_signal / 4 <= answer.threshold <= public.edge_signal / 2
            assert public.resolution <= 0.75 * public.edge_signal * (1 + 1e-12)
            for s in (1.2, 2.0):
                assert (
                    bounds.column_cap(answer.threshold, s)
                    <= (16 / public.edge_signal) ** (1 / s) + 1
                )
    assert held > 20


def test_direct_feasibility_can_hold_where_the_lemma_does_not() -> None:
    public = calibrate(100, 64, epsilon=0.05, degree_cutoff=9, edge_signal=0.2, tail_tolerance=0.1)
    answer = bounds.feasibility(public)
    assert not answer.by_lemma
    assert answer.directly


def test_infeasible_says_why() -> None:
    answer = bounds.feasibility(calibrate(16384, 2048, epsilon=0.1, degree_cutoff=9))
    assert not answer.directly
    assert "tail_tolerance" in answer.reason
    blind = calibrate(
        100, 4096, epsilon=0.9, degree_cutoff=9, edge_signal=0.3, tail_tolerance=0.25
    )
    assert "resolution" in bounds.feasibility(blind).reason


# ----- Tight calibration --------------------------------------------------------------------


def test_separation_chance_equals_simulation_of_its_definition() -> None:
    rng = np.random.default_rng(3)
    p, d, draws = 12, 4, 200_000
    neighbours = rng.integers(p, size=(draws, d))
    readout, source = rng.integers(p, size=(2, draws))
    clear = (neighbours != readout[:, None]).all(axis=1)
    stranger = clear & (neighbours != source[:, None]).all(axis=1)
    own = neighbours[:, 0]
    adjacent = clear & (neighbours[:, 1:] != own[:, None]).all(axis=1)
    # Level: five standard errors of a Bernoulli mean, about 1e-6 a side.
    error = 5 * math.sqrt(0.25 / draws)
    least = min(stranger.mean(), adjacent.mean())
    assert abs(bounds.separation_chance(p, d) - least) < error


def test_separation_chance_meets_the_paper_s_union_bound() -> None:
    for d in (9, 20, 100):
        p = 8 * (d + 1)
        assert bounds.separation_chance(p, d) >= 1 - 2 * d / p > 0.75


@pytest.mark.parametrize("case", ["tv", "kl"])
def test_tight_calibration_keeps_the_guarantee_and_costs_less(case: str) -> None:
    for length, d in ((10, 9), (500, 9), (5000, 30)):
        public = calibrate(length, 4096, epsilon=0.1, degree_cutoff=d, case=case)
        tight = bounds.tight_calibration(public)
        chance = bounds.separation_chance(tight.num_colors, d)
        failure = stats.binom.cdf(tight.num_colorings // 2, tight.num_colorings, chance)
        pairs = length * (length - 1)
        assert public.screen_cap * pairs * failure <= public.failure_budget
        fewer = tight.num_colorings - 2
        failure = stats.binom.cdf(fewer // 2, fewer, chance)
        assert public.screen_cap * pairs * failure > public.failure_budget
        cost = tight.num_colorings * tight.num_colors * (tight.num_colors + d)
        assert cost < public.num_colorings * public.num_colors * (public.num_colors + d)


def test_tight_calibration_leaves_the_documented_share_of_the_probes() -> None:
    shares = []
    for length, d in ((10, 9), (100, 9), (10**4, 50), (10**12, 9), (10**12, 10**4)):
        for epsilon, case in ((0.5, "tv"), (0.1, "tv"), (0.01, "kl")):
            public = calibrate(length, 64, epsilon=epsilon, degree_cutoff=d, case=case)
            tight = bounds.tight_calibration(public)
            both = [bounds.resource_caps(one, 3).probes for one in (tight, public)]
            shares.append(both[0] / both[1])
    assert min(shares) == pytest.approx(0.40, abs=0.005)
    assert max(shares) == pytest.approx(0.64, abs=0.005)
    assert shares[1] == pytest.approx(0.42, abs=0.005)


# ----- Where it pays ------------------------------------------------------------------------


def test_crossings_of_the_paper_s_caps() -> None:
    balanced = bounds.crossing_length(epsilon=0.1, rank_exponent=1.5)
    assert balanced is not None
    assert 1e24 < balanced < 1e26
    best = bounds.crossing_length(epsilon=0.1, rank_exponent=2.0, cutoff="best", largest=1e20)
    assert best is not None
    assert 1e12 < best < 1e14


def test_the_cheapest_cutoff_beats_every_other_on_a_grid() -> None:
    start = calibrate(10**6, 10**6, epsilon=0.1, degree_cutoff=9)
    public = bounds.cheapest_cutoff(start, 2.0)
    best = bounds.guarantee_caps(public, 2.0)[1].evaluations
    for d in (9, 12, 30, 100, 1000):
        other = calibrate(10**6, 10**6, epsilon=0.1, degree_cutoff=d)
        assert best <= bounds.guarantee_caps(other, 2.0)[1].evaluations


def test_the_cheapest_cutoff_keeps_radius_budget_and_signal() -> None:
    given = {"hellinger_radius": 0.02, "failure_budget": 0.3, "edge_signal": 0.01}
    public = calibrate(10**6, 10**6, epsilon=0.1, degree_cutoff=9, **given)
    chosen = bounds.cheapest_cutoff(public, 2.0)
    assert chosen.degree_cutoff > 9
    assert {name: getattr(chosen, name) for name in given} == given
    for d in (9, 12, 30, 100, 1000):
        other = bounds.guarantee_caps(public.with_cutoff(d), 2.0)[1]
        assert bounds.guarantee_caps(chosen, 2.0)[1].evaluations <= other.evaluations


def test_a_larger_failure_budget_pays_from_a_smaller_length_on() -> None:
    settings = {"epsilon": 0.1, "rank_exponent": 2.0, "largest": 1e40}
    paper = bounds.crossing_length(**settings)
    loose = bounds.crossing_length(**settings, failure_budget=0.9)
    small = bounds.crossing_length(**settings, case="kl", kl_tolerance=1e-6, hellinger_radius=1e-4)
    assert paper is not None
    assert loose is not None
    assert loose < paper
    # A smaller radius has a smaller signal: more columns.
    assert small is not None
    assert small > paper
