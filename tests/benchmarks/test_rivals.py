"""The benchmark of peers: the strongest setting, exponents, tables, and files that go on."""

import json
import math

import numpy as np
import pytest
from rivals.drawing import draw_figure, draw_learned, kind_of
from rivals.exponents import fit
from rivals.measuring import Plan, Store, measure_all
from rivals.pretrained import SHOWN, pretrained_rows, shown_cell
from rivals.published import (
    PROXIES,
    PUBLISHED,
    RECONSTRUCTED,
    cap_exponents,
    caps_at,
    is_feasible,
    marked,
)
from rivals.report import exponent_of, learned_needs, tables
from rivals.strongest import search

import counterprobe as cp
from counterprobe.evaluation import compare_sampler
from counterprobe.samplers import (
    PUNT,
    SAMPLERS,
    OneBatch,
    Packed,
    RandomBalanced,
    UniversalCoupling,
)

LAW = cp.families.two_type_path(48, 3)
SEEDS = (1, 2)
FEW = ("sequential", "one-batch", "random-balanced", "punt", "punt epsilon=1e-9")


# ----- The strongest setting ----------------------------------------------------------------


@pytest.mark.parametrize("ascends", [None, True])
def test_the_strongest_setting_is_the_cheapest_that_meets_the_accuracy(ascends):
    found = search(
        LAW, RandomBalanced(), SEEDS, accuracy=0.1, max_evaluations=10_000, ascends=ascends
    )
    batches = found.comparison.sampler.batches
    assert found.meets
    assert found.comparison.batch_kl <= 0.1
    # Halved four times from a gap of at most 16: one batch fewer was tried, or breaks more.
    fewer = compare_sampler(LAW, RandomBalanced(batches - 1), SEEDS)
    assert fewer.batch_kl > 0.1 or batches in (1, 2, 4, 8, 16, 32)


def test_of_exact_settings_stages_decide_within_twice_the_evaluations():
    found = search(LAW, UniversalCoupling(), SEEDS, accuracy=0.1, max_evaluations=10_000)
    assert found.meets
    assert found.comparison.is_exact
    assert found.comparison.mean("evaluations") <= 2 * 48
    assert found.comparison.mean("stages") < 24


def test_a_rule_that_meets_nothing_is_shown_at_its_best():
    found = search(LAW, OneBatch(), SEEDS, accuracy=1e-6, max_evaluations=100)
    assert not found.meets
    assert found.comparison.mean("evaluations") == 1
    stopped = search(LAW, RandomBalanced(), SEEDS, accuracy=1e-9, max_evaluations=8)
    assert not stopped.meets
    assert stopped.comparison.sampler.batches == 8  # the best of those that were let finish


def test_a_fixed_setting_stays_as_it_is():
    rule = PUNT(epsilon=1e-9)
    found = search(LAW, rule, SEEDS, accuracy=0.1, max_evaluations=10_000, is_fixed=True)
    assert found.comparison.sampler == rule
    assert found.tried == 1


def test_packed_is_tuned_in_several_settings_and_never_dearer_than_a_default_screen():
    found = search(LAW, Packed(), SEEDS, accuracy=0.1, max_evaluations=100_000)
    defaults = compare_sampler(LAW, Packed(shared_by=1000), SEEDS)  # which screen at any size
    assert found.meets
    assert found.tried > 1
    assert found.comparison.batch_kl <= 0.1
    assert found.comparison.mean("evaluations") < defaults.mean("evaluations") / 2


@pytest.mark.slow
def test_packed_stands_with_its_defaults_where_no_candidate_is_good_enough():
    # Its defaults decode one position at a time at this size, which takes more.
    found = search(LAW, Packed(), SEEDS, accuracy=0.0, max_evaluations=LAW.length - 1)
    assert not found.meets
    assert found.comparison.sampler == Packed()


# ----- Exponents ----------------------------------------------------------------------------


def test_an_exact_power_is_recovered_without_error():
    sizes = [64, 128, 256, 512]
    power = fit(sizes, [3 * n**0.75 for n in sizes])
    assert power.slope == pytest.approx(0.75, abs=1e-12)
    assert power.standard_error == pytest.approx(0, abs=1e-6)
    assert str(power) == "0.75 ± 0.00"
    assert str(fit(sizes, [7, 7, 7, 7])) == "0.00 ± 0.00"


def test_the_error_is_that_of_least_squares():
    sizes, costs = [10, 100, 1000, 10000], [2.0, 3.0, 11.0, 15.0]
    x, y = np.log(sizes), np.log(costs)
    slope = ((x - x.mean()) * y).sum() / ((x - x.mean()) ** 2).sum()
    rest = y - y.mean() - slope * (x - x.mean())
    error = math.sqrt((rest**2).sum() / 2 / ((x - x.mean()) ** 2).sum())
    found = fit(sizes, costs)
    assert (found.slope, found.standard_error) == pytest.approx((slope, error))


def test_unknown_costs_are_left_out_and_two_sizes_are_too_few():
    assert fit([1, 2, 4, 8], [1, None, 4, 8]).slope == pytest.approx(1)
    assert str(fit([1, 2, 4], [1, None, 4])) == "-"


def test_the_papers_caps_grow_as_its_theorem_says():
    evaluations, stages = cap_exponents()
    stated = 2 / 3 + 1 / (9 * 1.5)
    assert stated <= evaluations.slope < stated + 0.03  # logarithms come on top
    assert stages.slope == pytest.approx(stated, abs=0.03)
    assert caps_at(4096).evaluations > caps_at(512).evaluations
    in_kl, _ = cap_exponents("kl")
    assert in_kl.slope == pytest.approx(evaluations.slope, abs=0.01)
    assert (
        caps_at(4096, "kl").evaluations > caps_at(4096, "tv").evaluations
    )  # a smaller failure budget


@pytest.mark.parametrize("case", ["tv", "kl"])
def test_caps_are_those_of_a_feasible_calibration_from_a_million_on(case):
    assert not is_feasible(1024, case)
    assert not is_feasible(1_000_000, case)
    assert is_feasible(1_100_000, case)


def test_what_is_not_the_published_rule_is_marked():
    assert marked("punt epsilon=1e-9") == "`punt epsilon=1e-9`†"
    assert marked("dapd") == "`dapd`‡"
    assert marked("sequential") == "`sequential`"
    assert {*RECONSTRUCTED, *PROXIES} <= {*SAMPLERS}


def test_published_rows_name_samplers_of_the_registry():
    for row in PUBLISHED:
        assert row.sampler.split(" ")[0] in {*SAMPLERS, ""}
        assert (row.case is None) == bool(row.sampler)


# ----- The program --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> dict:
    file = tmp_path_factory.mktemp("peers") / "peers.json"
    plan = Plan(sizes=(16, 32, 64), other_sizes=(16, 32), families=("two-type-path", "matching"))
    lines: list[str] = []
    measure_all(plan, Store(file, plan.lasting), samplers=FEW, say=lines.append)
    again: list[str] = []
    measure_all(plan, Store(file, plan.lasting), samplers=FEW, say=again.append)
    assert len(lines) == len(FEW) * 5
    assert again == []  # everything was in the file
    store = Store(file, plan.lasting)
    store.forget(("punt",))
    gone = {f"two-type-path {n} punt" for n in plan.sizes} | {
        "matching 16 punt",
        "matching 32 punt",
    }
    assert set(json.loads(file.read_text())["cells"]) - set(store.cells) == gone
    made = json.loads(file.read_text())["made"]
    assert len(made) == 1 and set(made[0]) == {"command", "commit", "machine", "date"}
    return json.loads(file.read_text())["cells"]


def test_cells_say_what_a_comparison_says(measured):
    cell = measured["two-type-path 64 punt epsilon=1e-9"]
    law = cp.families.two_type_path(64, 196)
    by_hand = compare_sampler(law, PUNT(epsilon=1e-9), [1, 2, 3])
    assert cell["evaluations"] == pytest.approx(by_hand.mean("evaluations"), rel=1e-4)
    assert cell["stages"] == pytest.approx(by_hand.mean("stages"), rel=1e-4)
    assert cell["settings"] == {"epsilon": 1e-9}
    assert measured["two-type-path 64 law"]["method"] == "closed form"


def test_one_at_a_time_grows_linearly(measured):
    grown = exponent_of(measured, "two-type-path", "sequential", "evaluations")
    assert (grown.slope, grown.sizes) == (pytest.approx(1), 3)


def test_other_settings_are_refused_and_slow_cells_are_left_out_aloud(tmp_path):
    file = tmp_path / "peers.json"
    plan = Plan(sizes=(16, 32), families=("two-type-path",))
    lines: list[str] = []
    measure_all(
        plan, Store(file, plan.lasting), samplers=("sequential",), seconds=-1, say=lines.append
    )
    assert "left out" in lines[1]
    store = Store(file, plan.lasting)
    assert not store.has("two-type-path 32 sequential")  # it may be tried again
    with pytest.raises(ValueError, match="measured with other settings"):
        Store(file, Plan(accuracy=1.0).lasting)


def test_tables_and_figures_show_what_was_measured(measured, denoised, tmp_path):
    made = tables(measured, denoised)
    assert "| `punt epsilon=1e-9`† |" in made["two-type-path"]
    assert "| `sequential` |" in made["two-type-path"]
    assert "matching, N = 32" in made["families"]
    assert "closed form" not in made["dependence"]
    assert made["resources"].count("\n") == len(PUBLISHED) + 1
    for file, draw, what in (
        ("peers.png", draw_figure, measured),
        ("learned.png", draw_learned, denoised),
    ):
        draw(what, tmp_path / file)
        assert (tmp_path / file).stat().st_size > 10_000


def test_kinds_come_from_rights_where_the_name_says_nothing():
    assert kind_of("packed", []) == "finds or is told a graph"
    assert kind_of("punt epsilon=1e-9", ["candidates"]) == "tests drawn values"
    assert kind_of("newcomer", ["verify"]) == "verifies"
    assert kind_of("newcomer", ["select"]) == "goes by confidence"
    assert kind_of("newcomer", []) == "fixes its batches"


# ----- Learned models -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def denoised() -> dict:
    def entry(sampler: str, evaluations: float, gap: float, edges: float) -> dict:
        return {
            "sampler": sampler, "evaluations": evaluations, "energy_gap": gap,
            "edge_distance": edges,
        }  # fmt: skip

    entries = [
        entry("truth", 0, 0, 0),
        entry("one-batch", 1, 50, 1.0),
        entry("random-balanced", 8, 6, 0.05),
        entry("random-balanced", 16, 2, 0.02),
        entry("random-balanced", 32, 1, 0.01),
        entry("maskgit", 4, -1, 0.4),  # likely enough, and always the same pairs
        {"error": "it failed"},
    ]
    return {"path": {"samplers": dict(enumerate(entries))}}


def test_close_needs_both_likely_sequences_and_their_pairs(denoised):
    needs = learned_needs(denoised)
    assert needs["random-balanced"] == {"path": 16}
    assert needs["one-batch"] == needs["maskgit"] == {"path": math.inf}
    assert "truth" not in needs


# ----- Pretrained models --------------------------------------------------------------------


def pretrained_entry(sampler: str, evaluations: float, kl: float | None, mmd_p: float) -> dict:
    return {"sampler": sampler, "evaluations": evaluations, "kl": kl, "mmd_p": mmd_p}


@pytest.mark.parametrize(
    ("measured_with", "cell"),
    [
        ([], "-"),
        ([(16, 0.25, 0.5)], "0.25"),
        ([(8, 0.25, 0.5), (16, 0.125, 0.01), (17, 0.01, 0.5)], "0.12"),
        ([(16.5, 0.25, 0.009), (20, 0.1, 0.5)], "0.25 in 16 ≠"),
        ([(4, None, 0.001)], "no KL ≠"),
        ([(4, None, 0.5), (8, 3.0, 0.5)], "3"),
    ],
)
def test_a_cell_is_the_best_setting_within_the_budget_or_the_cheapest(measured_with, cell):
    assert shown_cell(pretrained_entry("punt", *one) for one in measured_with) == cell


def test_samplers_that_keep_to_the_budget_and_break_little_come_first():
    def task(**samplers: tuple) -> dict:
        return {"samplers": {name: pretrained_entry(name, *one) for name, one in samplers.items()}}

    common = {"good": (16, 0.01, 0.5), "bad": (8, 1.0, 0.5), "dear": (32, 0.0, 0.5)}
    tasks = {name: task(**common) for name in SHOWN} | {"another": task(unseen=(1, 0, 1))}
    tasks[SHOWN[-1]] = task(good=(16, 0.01, 0.5), silent=(8, None, 0.5))
    rows = pretrained_rows(tasks)
    assert [row[0] for row in rows] == ["good", "bad", "silent", "dear"]
    assert rows[1] == ["bad", "1", "1", "1", "1", "-"]
