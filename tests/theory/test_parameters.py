"""The paper's public formulas against the calibration table and values worked out by hand."""

import math
from dataclasses import asdict, replace
from fractions import Fraction

import pytest

import counterprobe as cp
from counterprobe import theory
from counterprobe.theory.parameters import coloring_count

# ----- Caps -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "cutoff", "phases", "rounds"),
    [
        # ln 2 / ln 1.125 = 5.88; ceil(240 / 9) + 4 + 2
        (10, 9, 6, 33),
        # ln 3 / ln 1.125 = 9.33; ceil(600 / 9) + 4 + 2
        (15, 9, 10, 73),
        # ln(8192 / 65) / ln 8 = 2.33; 768 + 13 + 2
        (4096, 64, 3, 783),
        # ln(30 / 15) / ln 1.75 = 1.24; ceil(120 / 14) + 4 + 2
        (15, 14, 2, 15),
        # 34 / 17 = 2 = 16 / 8: exactly one phase; ceil(68 / 16) + 5 + 2
        (17, 16, 1, 12),
        # 8 / 10 < 1: no vertex can have degree 10, and the logarithm's positive part is zero
        (4, 9, 0, 5),
        (1, 9, 0, 3),
        (3, 9, 0, 4),
    ],
)
def test_phase_and_round_caps(length, cutoff, phases, rounds):
    assert theory.peel_phase_cap(length, cutoff) == phases
    assert theory.round_cap(length, cutoff, phases) == rounds


@pytest.mark.parametrize(
    ("length", "cutoff", "phases"),
    # 2N / (d + 1) is a power of d / 8: 6^3, 6^6, 8^7, 18^3. Logarithms round these up by one.
    [(5292, 48, 3), (1_143_072, 48, 6), (68_157_440, 64, 7), (422_820, 144, 3)],
)
def test_a_whole_number_of_phases_is_not_rounded_up(length, cutoff, phases):
    assert theory.peel_phase_cap(length, cutoff) == phases
    assert theory.peel_phase_cap(length + 1, cutoff) == phases + 1


def test_phase_cap_is_the_first_that_empties_the_core():
    for length in (10, 33, 100, 1000, 16384):
        for cutoff in (9, 10, 15, 16, 17, 24, 80, length - 1):
            if cutoff >= length or cutoff < 9:
                continue
            start, shrink = Fraction(2 * length, cutoff + 1), Fraction(8, cutoff)
            phases = theory.peel_phase_cap(length, cutoff)
            assert start * shrink**phases <= 1
            assert phases == 0 or start * shrink ** (phases - 1) > 1


@pytest.mark.parametrize("cutoff", [8, 1, 0, -3])
def test_phase_cap_needs_a_cutoff_of_nine(cutoff):
    with pytest.raises(ValueError, match=f"degree_cutoff must be at least 9 .* got {cutoff}"):
        theory.peel_phase_cap(100, cutoff)


def test_coloring_count_by_hand():
    # 8 ln(7 * 100 / 0.025) = 8 ln 28000 = 81.9
    assert coloring_count(10, 7, 0.025) == 82
    # 8 ln(11 * 225 / 0.125) = 8 ln 19800 = 79.2
    assert coloring_count(15, 11, 0.125) == 80
    assert coloring_count(1, 1, math.exp(-2.0)) == 16


def test_probe_cap_by_hand():
    assert theory.probe_cap(3, 11, 93, 80, 9) == 3 * 11 * 93 * 80 * 89 == 21_851_280
    assert theory.probe_cap(0, 11, 93, 80, 9) == 0


# ----- Calibration ----------------------------------------------------------------------------


def test_case_tv_of_the_table():
    public = cp.theory.calibrate(100, 64, epsilon=0.5, degree_cutoff=12)
    radius = 0.25
    assert public.case == "tv"
    assert public.row_error == radius / 10
    assert public.failure_budget == radius / 2
    assert public.edge_signal == pytest.approx(0.5 * (0.0625 / 100) ** (1 / 3), rel=1e-14)
    assert public.tail_tolerance == public.edge_signal / 2
    assert public.resolution == 4 * public.row_error + public.tail_tolerance
    assert public.chunk_count == 12
    assert public.chunk_size == 9  # ceil(100 / 12)
    assert public.num_colors == 104
    assert public.risk_bound == 0.375
    # ln(200 / 13) / ln 1.5 = 6.74
    assert public.phase_cap == 7
    assert public.screen_cap == 8
    assert public.round_cap == math.ceil(400 * 7 / 12) + 7 + 2 == 243
    assert public.num_colorings == math.ceil(8 * math.log(2 * 8 * 100**2 / radius))


def test_case_kl_of_the_table():
    public = cp.theory.calibrate(100, 64, epsilon=0.5, degree_cutoff=12, case="kl")
    kl_tolerance = 0.125
    radius = math.sqrt(kl_tolerance / 2)
    assert radius == 0.25  # eps / 2 again
    assert public.row_error == radius / 10
    assert public.failure_budget == pytest.approx(kl_tolerance / (200 * math.log(64)), rel=1e-14)
    assert public.risk_bound == 0.125
    assert public.num_colorings == math.ceil(
        8 * math.log(2 * 8 * 100**3 * math.log(64) / kl_tolerance)
    )
    by_tv = cp.theory.calibrate(100, 64, epsilon=0.5, degree_cutoff=12)
    assert by_tv.risk_bound != public.risk_bound
    by_case = asdict(by_tv)
    differ = {name for name, value in asdict(public).items() if value != by_case[name]}
    only_kl = {"kl_tolerance", "kl_row_budget"}
    assert differ == {"case", "failure_budget", "num_colorings"} | only_kl
    assert {by_case[name] for name in only_kl} == {None}


@pytest.mark.parametrize("case", ["tv", "kl"])
@pytest.mark.parametrize("epsilon", [1.0, 0.3, 0.01])
def test_risk_is_what_oracle_and_screens_may_cost(case, epsilon):
    # Case (i): radius + budget. Case (ii): N rows of KL eps_KL / (2N), and N log V a failure.
    public = cp.theory.calibrate(50, 512, epsilon=epsilon, degree_cutoff=9, case=case)
    if case == "tv":
        assert public.risk_bound == pytest.approx(epsilon / 2 + public.failure_budget)
    else:
        kl_row_budget = epsilon**2 / 2 / (2 * 50)
        assert public.risk_bound == pytest.approx(
            50 * kl_row_budget + 50 * math.log(512) * public.failure_budget
        )


def test_risk_follows_a_given_failure_budget():
    # Case (i): 0.05 + 0.125. Case (ii): 0.005 / 2 + 100 log(64) 0.01.
    tv = cp.theory.calibrate(15, 64, epsilon=0.1, degree_cutoff=9, failure_budget=0.125)
    assert tv.risk_bound == pytest.approx(0.175)
    kl = cp.theory.calibrate(100, 64, epsilon=0.1, degree_cutoff=9, case="kl", failure_budget=0.01)
    assert kl.risk_bound == pytest.approx(0.0025 + math.log(64))
    assert not tv.meets_target
    assert not kl.meets_target
    # A later change of the budget is followed too.
    assert replace(tv, failure_budget=0.025).risk_bound == pytest.approx(0.075)


@pytest.mark.parametrize("case", ["tv", "kl"])
@pytest.mark.parametrize("epsilon", [1.0, 0.3, 0.01])
def test_default_budgets_meet_the_target(case, epsilon):
    public = cp.theory.calibrate(50, 512, epsilon=epsilon, degree_cutoff=9, case=case)
    assert public.meets_target
    assert public.target_risk == (epsilon if case == "tv" else epsilon**2 / 2)


def test_a_given_hellinger_radius_carries_row_error_signal_and_budget():
    public = cp.theory.calibrate(100, 64, epsilon=0.5, degree_cutoff=9, hellinger_radius=0.02)
    assert public.row_error == 0.002
    assert public.edge_signal == pytest.approx(0.5 * (0.0004 / 100) ** (1 / 3))
    assert public.failure_budget == 0.01
    assert public.risk_bound == pytest.approx(0.03)
    assert public.meets_target


def test_kl_tolerance_and_row_budget_are_independent():
    settings = {"epsilon": 0.5, "degree_cutoff": 9, "case": "kl"}
    by_tolerance = cp.theory.calibrate(100, 64, **settings, kl_tolerance=0.02)
    assert by_tolerance.hellinger_radius == 0.1  # sqrt(0.02 / 2)
    assert by_tolerance.kl_row_budget == 0.0001
    assert by_tolerance.risk_bound == pytest.approx(0.02)
    # A smaller row budget proves more, with the same screens.
    sharper = cp.theory.calibrate(100, 64, **settings, kl_tolerance=0.02, kl_row_budget=1e-6)
    assert sharper.row_error == by_tolerance.row_error
    assert sharper.num_colorings == by_tolerance.num_colorings
    assert sharper.risk_bound == pytest.approx(0.0001 + 0.01)
    # A larger radius makes room for a larger one.
    wide = cp.theory.calibrate(
        100, 64, **settings, kl_tolerance=0.02, hellinger_radius=0.3, kl_row_budget=0.0009
    )
    assert wide.row_error == 0.03
    assert wide.risk_bound == pytest.approx(0.09 + 0.01)
    assert not wide.meets_target


def test_resolution_must_lie_strictly_below_the_signal():
    def resolves(signal: float) -> bool:
        return cp.theory.calibrate(
            16, 64, epsilon=0.25, degree_cutoff=9, edge_signal=signal, tail_tolerance=0.125
        ).resolves_edges

    # 4 * 0.125 / 4 + 0.125 = 0.25, all exact.
    assert not resolves(0.25)
    assert resolves(math.nextafter(0.25, 1))


def test_the_standard_signal_is_resolved_from_a_stated_length_on():
    # 4 x / sqrt(N) < (x^2 / N)^(1/3) / 4 means N > 16^6 x^2; with x = 1/256 that is N > 256.
    settings = {"epsilon": 1 / 128, "degree_cutoff": 9}
    assert not cp.theory.calibrate(255, 2048, **settings).resolves_edges
    assert cp.theory.calibrate(257, 2048, **settings).resolves_edges


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"length": 9}, "length must be at least 10 in theory mode, got 9"),
        ({"vocab_size": 1}, "vocab_size must be at least 2, got 1"),
        ({"degree_cutoff": 8}, "degree_cutoff must lie in 9..14 in theory mode, got 8"),
        ({"degree_cutoff": 15}, "degree_cutoff must lie in 9..14 in theory mode, got 15"),
        ({"chunk_count": 0}, "chunk_count must lie in 1..15, got 0"),
        ({"chunk_count": 16}, "chunk_count must lie in 1..15, got 16"),
        ({"epsilon": 0.0}, r"epsilon must lie in \(0, 1\], got 0.0"),
        ({"epsilon": 1.01}, r"epsilon must lie in \(0, 1\], got 1.01"),
        ({"epsilon": math.nan}, "epsilon must lie in"),
        ({"failure_budget": 0.0}, "failure_budget must lie strictly between 0 and 1, got 0.0"),
        ({"failure_budget": 1.0}, "failure_budget must lie strictly between 0 and 1, got 1.0"),
        ({"edge_signal": 0.0}, r"edge_signal must lie in \(0, 1\], got 0.0"),
        ({"edge_signal": 1.5}, r"edge_signal must lie in \(0, 1\], got 1.5"),
        ({"tail_tolerance": 0.0}, r"tail_tolerance must lie in \(0, 1\], got 0.0"),
        ({"tail_tolerance": 1.5}, r"tail_tolerance must lie in \(0, 1\], got 1.5"),
        ({"hellinger_radius": -0.1}, r"hellinger_radius must lie in \[0, 1\], got -0.1"),
        ({"hellinger_radius": 1.1}, r"hellinger_radius must lie in \[0, 1\], got 1.1"),
        ({"hellinger_radius": 0.0}, r"edge_signal must lie in \(0, 1\], got 0.0"),
        ({"kl_tolerance": 0.1}, "kl_tolerance belongs to case 'kl', got 0.1 in case 'tv'"),
        ({"kl_row_budget": 0.1}, "kl_row_budget belongs to case 'kl', got 0.1 in case 'tv'"),
        ({"case": "kl", "kl_tolerance": 0.0}, r"kl_tolerance must lie in \(0, 1\], got 0.0"),
        ({"case": "kl", "kl_tolerance": 1.1}, r"kl_tolerance must lie in \(0, 1\], got 1.1"),
        # Beyond x^2 / N a KL oracle may leave the Hellinger class: 0.0625 / 15 = 0.004167.
        ({"case": "kl", "kl_row_budget": 0.0042}, r"kl_row_budget must lie in .*0.004167\]"),
        ({"case": "kl", "kl_row_budget": -1e-9}, r"kl_row_budget must lie in .* got -1e-09"),
        ({"case": "kl", "hellinger_radius": 0.2}, "raise hellinger_radius to sqrt"),
        ({"case": "hellinger"}, "case must be 'tv' or 'kl', got 'hellinger'"),
    ],
)
def test_what_lies_outside_the_domain_is_refused(changes, complaint):
    settings = {"length": 15, "vocab_size": 64, "epsilon": 0.5, "degree_cutoff": 9, **changes}
    length, vocab_size = settings.pop("length"), settings.pop("vocab_size")
    with pytest.raises(ValueError, match=complaint):
        cp.theory.calibrate(length, vocab_size, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 1.0, "degree_cutoff": 9},
        {"epsilon": 1e-6, "degree_cutoff": 14, "chunk_count": 15, "case": "kl"},
        {"epsilon": 0.5, "degree_cutoff": 9, "chunk_count": 1, "failure_budget": 1 - 1e-9},
        {"epsilon": 0.5, "degree_cutoff": 9, "edge_signal": 1.0, "tail_tolerance": 1.0},
    ],
)
def test_the_ends_of_the_domain_are_inside(settings):
    public = cp.theory.calibrate(15, 2, **settings)
    assert public.num_colors == 8 * (public.degree_cutoff + 1)
    assert public.num_colorings >= 1
