"""The protocol: what comes next, which candidates develop, what is frozen, what fails."""

from statistics import fmean

import pytest

import counterprobe as cp
from counterprobe.evaluation import reference_kl
from counterprobe.study.config import PRESETS, config_from_dict, load_preset
from counterprobe.study.protocol import Cell, Study, passes
from counterprobe.study.store import Record

CELL = Cell("path", 64)
CONFIG = config_from_dict(
    {
        "name": "mine",
        "families": ["path"],
        "sizes": [64],
        "candidates": 2,
        "reference": {"values": {"path": 10.0}},
        "grid": {"packed": [{"num_colors": [3, 4, 5], "degree_cutoff": [2, 3]}]},
    },
    "here",
)


def record(total: int, kl: float | None = 0.0, error: float = 0.0, stop: str = "completed"):
    result = {"evaluations": total, "batch_kl": kl, "batch_kl_se": error, "stop": stop}
    return Record({}, result, {"total": 0.1}, "", {}, {})


def finish(study: Study, phase: str, outcome) -> list:
    """Finish the pending runs of a phase; ``outcome(settings, draw, stream)`` gives the record."""
    tasks = [task for task in study.pending() if task.phase == phase]
    for task in tasks:
        key = task.key
        study.add(task, outcome(key.get("settings"), key["draw"], key["stream"]))
    return tasks


def cost(settings) -> int:
    return 100 * settings["num_colors"] + settings["degree_cutoff"]


@pytest.fixture
def study() -> Study:
    return Study(CONFIG, {})


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        ({"stop": "completed", "batch_kl": 0.8, "batch_kl_se": 0.1}, True),
        ({"stop": "completed", "batch_kl": 0.8, "batch_kl_se": 0.11}, False),  # K + 2 SE
        ({"stop": "completed", "batch_kl": 1.01, "batch_kl_se": 0.0}, False),
        ({"stop": "infeasible", "batch_kl": None, "batch_kl_se": None}, False),
        ({"stop": "completed", "batch_kl": None, "batch_kl_se": None}, False),
        ({"stop": "infeasible", "batch_kl": 0.0, "batch_kl_se": 0.0}, False),
    ],
)
def test_the_pass_test(result, verdict):
    assert passes(result, 1.0) is verdict


@pytest.mark.slow
def test_screening_uses_the_first_development_pair_only(study):
    tasks = [task for task in study.pending() if task.phase == "screening"]
    assert len(tasks) == 6
    assert {(t.key["draw"], t.key["stream"], t.key["kl_draws"]) for t in tasks} == {(171, 271, 32)}
    for preset in PRESETS:
        config = load_preset(preset)
        touched = {task.key["draw"] for task in Study(config, {}).pending()
                   if task.phase == "screening"}  # fmt: skip
        assert touched == {config.seeds.development_draws[0]}


def test_searches_do_not_wait_for_tuning(study):
    tasks = [task for task in study.pending() if task.phase == "random search"]
    pairs = {(task.key["draw"], task.key["stream"]) for task in tasks}
    assert pairs == {(d, s) for d in (196, 197, 198) for s in (294, 295)}
    assert {task.key["threshold"] for task in tasks} == {1e-10 * 10.0}
    assert {task.key["kl_draws"] for task in tasks} == {128}


def test_the_cheapest_passing_candidates_develop_on_all_pairs(study):
    # The cheapest, 3 colors with cutoff 2, does not pass at 1e-3 of the reference.
    finish(study, "screening", lambda s, d, t: record(cost(s), 0.011 if cost(s) == 302 else 0.0))
    tasks = [task for task in study.pending() if task.phase == "development"]
    chosen = {(t.key["settings"]["num_colors"], t.key["settings"]["degree_cutoff"]) for t in tasks}
    assert chosen == {(3, 3), (4, 2)}
    pairs = {(t.key["draw"], t.key["stream"]) for t in tasks}
    assert pairs == {(d, s) for d in (171, 172, 173) for s in (271, 272)}
    assert len(tasks) == 12
    assert {t.key["kl_draws"] for t in tasks} == {64}


def test_candidates_alike_in_the_chosen_settings_do_not_both_develop():
    grid = [{"num_colors": 3, "num_colorings": [5, 6, 7]}, {"num_colors": 4}]
    alike = config_from_dict({**CONFIG.as_dict(), "grid": {"packed": grid}}, "x")
    study = Study(alike, {})
    finish(study, "screening", lambda s, d, t: record(s["num_colorings"] or 1000))
    tasks = [task for task in study.pending() if task.phase == "development"]
    chosen = {(t.key["settings"]["num_colors"], t.key["settings"]["num_colorings"]) for t in tasks}
    assert chosen == {(3, 5), (4, None)}


def test_from_the_cheapest_on_screening_ends_when_nothing_left_can_matter():
    """Levels come one after another, and both ways to screen develop the same candidates."""
    grid = [{"num_colors": [3, 4, 5, 6], "num_colorings": [4, 8, 16], "degree_cutoff": [8, 9]}]
    content = {**CONFIG.as_dict(), "grid": {"packed": grid},
               "differ_in": ["num_colors", "num_colorings"]}  # fmt: skip
    developed, screened = {}, {}
    for screening in ("all", "cheapest-first"):
        study = Study(config_from_dict({**content, "screening": screening}, "x"), {})

        def outcome(settings, draw, stream):
            p, m = settings["num_colors"], settings["num_colorings"]
            return record(3 * p * (p - 1) * m + settings["degree_cutoff"], 0.0 if m > 4 else 1.0)

        rounds = 0
        while finish(study, "screening", outcome):
            rounds += 1
        assert (rounds > 1) == (screening == "cheapest-first")
        judged = study.state(CELL).candidates
        developed[screening] = [c.settings for c in judged if c.is_developed]
        screened[screening] = sum(c.screened_total is not None for c in judged)
        assert study.state(CELL).expected == screened[screening] + 2 * 6 + 6 + 6
    assert developed["all"] == developed["cheapest-first"]
    assert [(s["num_colors"], s["num_colorings"]) for s in developed["all"]] == [(3, 8), (3, 16)]
    # (3, 16) costs 296. Two columns of one screen with five colors and eight colorings take 322,
    # but with six and four, 242: so that is looked at too.
    assert (screened["all"], screened["cheapest-first"]) == (24, 14)


def test_every_variant_of_the_baseline_is_searched_on_every_pair():
    variants = [{}, {"larger_first": False}]
    content = {**CONFIG.as_dict(), "random": {"variants": variants}}
    study = Study(config_from_dict(content, "x"), {})
    tasks = [task for task in study.pending() if task.phase == "random search"]
    assert len(tasks) == 2 * 6
    assert [task.key.get("settings", {}) for task in tasks] == [{}] * 6 + [variants[1]] * 6
    assert study.expected() == Study(CONFIG, {}).expected() + 6


def test_the_smallest_mean_that_passes_on_every_pair_is_frozen(study):
    finish(study, "screening", lambda s, d, t: record(cost(s)))

    def develop(settings, draw, stream):
        # The cheapest fails on one pair by its standard error alone.
        fails = cost(settings) == 302 and (draw, stream) == (173, 272)
        return record(cost(settings) + draw, 0.009, 0.001 if fails else 0.0)

    finish(study, "development", develop)
    state = study.state(CELL)
    assert state.failure == ""
    assert (state.frozen["num_colors"], state.frozen["degree_cutoff"]) == (3, 3)
    judged = {c.screened_total: c for c in state.candidates if c.is_developed}
    assert judged[302].development_passes is False
    assert judged[303].development_passes is True
    assert judged[303].development_mean == fmean([303 + d for d in (171, 172, 173)])
    tasks = [task for task in study.pending() if task.phase == "evaluation"]
    pairs = {(t.key["draw"], t.key["stream"]) for t in tasks}
    assert pairs == {(d, s) for d in (196, 197, 198) for s in (292, 293)}
    assert {t.key["kl_draws"] for t in tasks} == {128}
    assert all(t.key["settings"]["degree_cutoff"] == 3 for t in tasks)


def test_nothing_passes_screening(study):
    finish(study, "screening", lambda s, d, t: record(cost(s), None, stop="infeasible"))
    state = study.state(CELL)
    assert state.failure == "none of 6 candidates passed screening"
    assert state.frozen is None
    assert {task.phase for task in study.pending()} == {"random search"}
    finish(study, "random search", lambda s, d, t: record(64))
    assert study.is_done(CELL)
    assert study.expected() == 6 + 6  # screened, and searched


def test_nothing_passes_development(study):
    finish(study, "screening", lambda s, d, t: record(cost(s)))
    finish(study, "development", lambda s, d, t: record(cost(s), 0.5 if d == 172 else 0.0))
    state = study.state(CELL)
    assert state.failure == "none of 2 developed candidates passed on all 6 pairs"
    assert {task.phase for task in study.pending()} == {"random search"}


def test_expected_counts_come_true(study):
    assert study.expected() == 6 + 2 * 6 + 6 + 6
    for phase in ("screening", "development", "evaluation"):
        finish(study, phase, lambda s, d, t: record(cost(s)))
        assert not study.is_done(CELL)
    finish(study, "random search", lambda s, d, t: record(64))
    assert study.is_done(CELL)
    assert len(study.records) == study.expected() == len(study.all_tasks())
    assert list(study.pending()) == []


def test_a_study_rebuilt_from_its_records_stands_where_it_stood(study):
    finish(study, "screening", lambda s, d, t: record(cost(s)))
    again = Study(CONFIG, dict(study.records))
    assert [t.name for t in again.pending()] == [t.name for t in study.pending()]
    assert again.state(CELL) == study.state(CELL)


def test_repeated_tuning_has_keys_of_its_own_and_evaluation_does_not(study):
    finish(study, "screening", lambda s, d, t: record(cost(s)))
    finish(study, "development", lambda s, d, t: record(cost(s)))
    finish(study, "evaluation", lambda s, d, t: record(cost(s)))
    again = Study(CONFIG, dict(study.records), tuning=1)
    assert len([t for t in again.pending() if t.phase == "screening"]) == 6
    finish(again, "screening", lambda s, d, t: record(cost(s)))
    finish(again, "development", lambda s, d, t: record(cost(s)))
    assert not [t for t in again.pending() if t.phase == "evaluation"]


def test_references_come_first_where_they_are_not_given(tiny):
    study = Study(tiny, {})
    assert study.reference("path") is None
    assert [t.phase for t in study.pending()][:4] == ["reference"] * 4
    assert not [t for t in study.pending() if t.phase == "random search"]


def test_a_reference_that_finishes_last_moves_every_cell_of_its_family(tiny):
    study = Study(tiny, {})
    references = [task for task in study.pending() if task.phase == "reference"]
    finish(study, "screening", lambda s, d, t: record(cost(s)))
    waiting = [study.state(cell) for cell in study.cells]
    assert all(not state.failure and state.frozen is None for state in waiting)
    assert {task.phase for task in study.pending()} == {"reference"}
    for task in references:
        study.add(task, Record({}, {"reference_kl": 10.0}, {"total": 0.1}, "", {}, {}))
    phases = [task.phase for task in study.pending()]
    assert phases.count("development") == len(study.cells) * 2 * 2
    assert phases.count("random search") == len(study.cells) * 2
    assert all(study.state(cell).candidates[0].screened_passes for cell in study.cells)


def test_the_finished_study_is_the_protocol_by_hand(finished, tiny):
    """Real samplers: redo the choice from the runs themselves."""
    for family in tiny.families:
        by_hand = fmean(reference_kl(cp.families.build(family, 64, d)) for d in (1, 2))
        assert finished.reference(family) == by_hand
        assert finished.threshold(family, "development") == 1e-3 * by_hand
        assert finished.threshold(family, "evaluation") == 1e-10 * by_hand
    for cell in finished.cells:
        state = finished.state(cell)
        assert finished.is_done(cell)
        assert state.failure == ""
        limit = finished.threshold(cell.family, "development")
        screened = [
            (c.screened_total, k) for k, c in enumerate(state.candidates) if c.screened_passes
        ]
        cheapest = [k for _, k in sorted(screened)[: tiny.candidates]]
        assert [k for k, c in enumerate(state.candidates) if c.is_developed] == sorted(cheapest)
        best = min(
            (c for c in state.candidates if c.development_passes),
            key=lambda c: c.development_mean,
        )
        assert state.frozen == best.settings
        for task in state.tasks:
            result = finished.records[task.name].result
            assert result["stop"] == "completed"
            if task.phase == "development" and task.key["settings"] == best.settings:
                assert passes(result, limit)
