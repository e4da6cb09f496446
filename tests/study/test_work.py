"""One piece of work: the same numbers as the library called by hand, whole or stopped early."""

import json

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation import batch_kl, reference_kl
from counterprobe.plain import canonical
from counterprobe.samplers import (
    SAMPLERS,
    InformationCurve,
    Packed,
    RandomBalanced,
    Sequential,
)
from counterprobe.streams import STREAMS_VERSION
from counterprobe.study.config import config_from_dict
from counterprobe.study.protocol import Study
from counterprobe.study.store import Record
from counterprobe.study.work import (
    TimedOracle,
    do_work,
    reference_key,
    run_key,
    safe_budget,
    search_budget,
    search_key,
    try_budget,
)

SEARCH = {"sampler": "random-balanced", "budget": "batches", "first": (), "width": 0.05,
          "kl_draws": 32}  # fmt: skip
TINY = {
    "seeds": {
        "development_draws": [171], "development_streams": [271], "evaluation_draws": [196],
        "proposal_streams": [292], "random_streams": [294],
    },
    "reference": {"length": 24, "draws": [1]},
}  # fmt: skip


def test_a_run_is_the_run_one_would_make_by_hand():
    settings = {"num_colors": 3, "num_colorings": 5}
    key = run_key("path", 60, 7, 9, "packed", settings, 16)
    result, seconds = do_work(key)
    law = cp.families.path(60, 7)
    by_hand = Packed(**settings)(cp.run.Run(law.oracle()), cp.Streams.from_seed(9))
    kl = batch_kl(law, by_hand, draws=16)
    for name, count in by_hand.ledger.as_dict().items():
        assert result[name] == count
    assert (result["batch_kl"], result["batch_kl_se"]) == (kl.value, kl.standard_error)
    assert result["stop"] == "completed"
    assert set(seconds) == {"oracle", "sampler", "evaluation", "total"}
    assert 0 < seconds["oracle"] < seconds["total"]
    assert do_work(key)[0] == result


STORED = (
    '{"batch_kl":0.0,"batch_kl_se":0.0,"commits":24,"evaluations":24,'
    '"evaluations_without_selection":24,"largest_arity":0,"noncommit":0,'
    '"num_enumerated":0,"num_sampled":0,"preprocessing":0,"probes":0,'
    '"reason":"every position was committed","rows_read":24,"selected_commits":0,'
    '"stages":24,"stop":"completed","tokens":"90cefffa630590c4","used":[],"widest_stage":1}'
)
KEY = (
    '{"draw":7,"family":"path","kl_draws":16,"kl_seed":0,"length":24,"sampler":"sequential",'
    '"settings":{"order":"index"},"stream":9,"streams_version":2,"tuning":0,"work":"run"}'
)


def test_a_run_is_stored_as_it_always_was():
    # Stores of earlier versions hold this very text: a repeated run must agree with it.
    key = run_key("path", 24, 7, 9, "sequential", {}, 16)
    assert canonical(key) == KEY
    assert canonical(do_work(key)[0]) == STORED


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_every_sampler_can_be_a_study_s_proposal(name):
    content = {
        **TINY, "name": "tiny", "sampler": name, "families": ["path"], "sizes": [24],
        "random": False,
    }  # fmt: skip
    study = Study(config_from_dict(content, "here"), {})
    while tasks := list(study.pending()):
        for task in tasks:
            result, seconds = do_work(task.key)
            study.add(task, Record(task.key, result, seconds, "", {}, {}))
            assert json.loads(canonical(result)) == result
            assert min(seconds.values()) >= 0
    state = study.state(study.cells[0])
    assert study.is_done(study.cells[0])
    screened = next(study.records[t.name].result for t in state.tasks if t.phase == "screening")
    assert screened["stop"] == ("infeasible" if name == "packed-theory" else "completed")


def test_a_baseline_that_must_know_the_law_is_told_it():
    search = {**SEARCH, "sampler": "information-curve"}
    result, _ = do_work(search_key("path", 40, 4, 5, threshold=1e-9, **search))
    law = cp.families.path(40, 4)
    told = InformationCurve(result["budget"]).informed_by(law)
    alone = told(cp.run.Run(law.oracle()), cp.Streams.from_seed(5))
    assert result["evaluations"] == alone.ledger.evaluations
    assert batch_kl(law, alone, draws=32).passes(1e-9)


def test_a_baseline_with_settings_of_its_own_is_searched_with_them():
    plain = search_key("path", 150, 4, 5, threshold=1e-9, **SEARCH)
    assert "settings" not in plain  # the key that stores of earlier versions hold
    assert search_key("path", 150, 4, 5, threshold=1e-9, **SEARCH, settings={}) == plain
    reverse = {"larger_first": False}
    key = search_key("path", 150, 4, 5, threshold=1e-9, **SEARCH, settings=reverse)
    assert key == {**plain, "settings": reverse}
    law = cp.families.path(150, 4)
    found = {}
    for name, asked in (("first", plain), ("last", key)):
        result, _ = do_work(asked)
        sampler = RandomBalanced(result["budget"], larger_first=name == "first")
        run = sampler(cp.run.Run(law.oracle()), cp.Streams.from_seed(5))
        assert result["batch_kl"] == batch_kl(law, run, draws=32).value
        found[name] = result
    assert found["first"]["observed"] != found["last"]["observed"]


def test_a_key_has_everything_that_determines_the_run():
    key = run_key("path", 60, 7, 9, "packed", {}, 16)
    assert key["settings"] == Packed().settings  # defaults included: a changed default is new
    assert key["streams_version"] == STREAMS_VERSION
    assert json.loads(json.dumps(key)) == key
    others = [
        run_key("path", 61, 7, 9, "packed", {}, 16),
        run_key("path", 60, 8, 9, "packed", {}, 16),
        run_key("path", 60, 7, 8, "packed", {}, 16),
        run_key("path", 60, 7, 9, "packed", {"num_colors": 3}, 16),
        run_key("path", 60, 7, 9, "packed", {}, 17),
        run_key("path", 60, 7, 9, "packed", {}, 16, tuning=1),
        run_key("path", 60, 7, 9, "sequential", {}, 16),
    ]
    assert all(other != key for other in others)
    assert run_key("path", 60, 7, 9, "packed", {"num_colors": None}, 16) == key


def test_a_reference():
    result, _ = do_work(reference_key("matching", 64, 3))
    assert result == {"reference_kl": reference_kl(cp.families.matching(64, 3))}


def test_a_run_that_cannot_start_has_no_batch_kl():
    key = run_key("path", 60, 7, 9, "packed-theory", {"tail_tolerance": 1e-6}, 16)
    result, _ = do_work(key)
    assert result["stop"] == "infeasible"
    assert result["batch_kl"] is None
    assert result["evaluations"] == 0
    assert result["tokens"] is None


def test_the_timed_oracle_gives_the_same_rows():
    law = cp.families.path(30, 1)
    timed = TimedOracle(law)
    assert isinstance(timed, cp.Oracle)
    for sampler in (Packed(num_colors=3, num_colorings=4), Sequential()):
        one = sampler(cp.run.Run(timed), cp.Streams(1, 2))
        other = sampler(cp.run.Run(law.oracle()), cp.Streams(1, 2))
        assert np.array_equal(one.tokens, other.tokens)
        assert one.ledger == other.ledger
    assert timed.seconds > 0


@pytest.mark.parametrize("family", ["matching", "path", "binary-tree", "growing-stars"])
@pytest.mark.parametrize("budget", [1, 8, 25, 60, 99, 110, 119, 120])
def test_a_trial_decides_as_the_whole_run_does(family, budget):
    law = cp.families.build(family, 120, 4)
    streams = cp.Streams.from_seed(5)
    whole = batch_kl(law, RandomBalanced(budget)(cp.run.Run(law.oracle()), streams), draws=16)
    for threshold in (1e-12, 1e-6, 1e-2, 1e9):
        trial = try_budget(law, RandomBalanced(budget), streams, threshold, 16)
        assert trial.passes == whole.passes(threshold)
        if trial.stopped_early:
            assert 2 * threshold < trial.kl.value <= whole.value + 1e-12
        else:
            assert trial.kl.value == whole.value
            assert trial.kl.standard_error == whole.standard_error
    if budget <= 25:  # batches of five or more may have sampled factors: no early end
        assert not trial.stopped_early


def test_a_rule_without_a_schedule_is_run_whole():
    law = cp.families.path(40, 4)
    trial = try_budget(law, Packed(num_colors=2, num_colorings=1), cp.Streams(1, 2), 1e-9, 16)
    assert not trial.stopped_early
    assert not trial.passes


@pytest.mark.parametrize("family", ["matching", "path", "growing-stars"])
def test_a_search_reports_the_safe_budget(family):
    length, threshold = 150, 1e-9
    result, _ = do_work(search_key(family, length, 4, 5, threshold=threshold, **SEARCH))
    law = cp.families.build(family, length, 4)
    streams = cp.Streams.from_seed(5)

    def kl_at(budget: int):
        return batch_kl(law, RandomBalanced(budget)(cp.run.Run(law.oracle()), streams), draws=32)

    safe = result["budget"]
    assert result["evaluations"] == result["commits"] == safe
    assert result["preprocessing"] == result["probes"] == 0
    assert result["batch_kl"] == kl_at(safe).value
    assert kl_at(safe).passes(threshold)
    assert len(result["observed"]) >= 4
    for seen in result["observed"]:
        assert seen["passes"] == kl_at(seen["budget"]).passes(threshold)
        assert seen["passes"] or seen["budget"] < safe
    below = max((o["budget"] for o in result["observed"] if o["budget"] < safe), default=0)
    assert safe - below <= 0.05 * length + 1


# ----- Budgets -----------------------------------------------------------------------------


def test_the_suffix_ends_at_the_largest_failure():
    assert safe_budget({1: True, 3: False, 5: True, 9: True}) == 5
    assert safe_budget({9: True}) == 9
    assert safe_budget({1: True, 2: True, 9: True}) == 1
    assert safe_budget({5: True, 8: False, 9: True}) == 9
    with pytest.raises(ValueError, match="largest budget must pass"):
        safe_budget({5: True, 9: False})


@pytest.mark.parametrize("length", [1, 2, 3, 19, 20, 64, 1000, 16384])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.94, 0.99, 1.0])
def test_a_monotone_curve_is_bracketed(length, share):
    edge = max(1, round(share * length))  # every budget from here on passes
    tried = []

    def passes(budget: int) -> bool:
        assert 1 <= budget < length
        tried.append(budget)
        return budget >= edge

    safe = search_budget(length, passes)
    assert safe >= min(edge, length)
    assert safe - edge <= max(1, 0.05 * length)
    assert len(set(tried)) == len(tried) <= 6


@pytest.mark.parametrize("seed", range(30))
def test_on_any_curve_the_rule_holds_among_observed_budgets(seed):
    draw = np.random.default_rng(seed)
    length = int(draw.integers(2, 400))
    curve = draw.random(length + 1) < draw.random()
    curve[length] = True
    observed = {length: True}

    def passes(budget: int) -> bool:
        assert budget not in observed
        observed[budget] = bool(curve[budget])
        return observed[budget]

    first = draw.random(int(draw.integers(0, 6))).tolist()
    width = float(draw.choice([0.05, 0.2, 0.001]))
    safe = search_budget(length, passes, first=first, width=width)
    assert safe == safe_budget(observed)
    assert all(observed[budget] for budget in observed if budget >= safe)
    below = max((budget for budget in observed if budget < safe), default=0)
    assert safe - below <= max(1, width * length)
    assert below == 0 or not observed[below]
