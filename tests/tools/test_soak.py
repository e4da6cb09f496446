"""A short soak finds nothing, and each of its checks finds what it is for."""

import logging
import mmap
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import soak

import counterprobe as cp
from counterprobe.oracles.cache import Cache
from counterprobe.run.ledger import Ledger


@pytest.fixture(autouse=True)
def faults_go_unsaid(caplog) -> None:
    caplog.set_level(logging.CRITICAL, logger="counterprobe")


def said_by(seconds: float, seed: int = 1) -> tuple[int, list[str]]:
    said: list[str] = []
    return soak.soak(seconds, seed, say=said.append), said


def test_a_short_soak_finds_nothing():
    failures, said = said_by(5.0)
    assert failures == 0, said
    assert said[0] == "soak: 5 seconds, seed 1"
    assert "0 failures" in said[-1]


def test_runs_that_are_cut_off_and_resumed_pay_for_nothing_twice(tmp_path):
    seen: Counter[str] = Counter()
    for k in range(25):
        soak.resumed(np.random.default_rng([1, k]), seen, tmp_path / "replies")
    assert seen["resumed"] and seen["resumed, replies lost"]


def test_a_cache_that_forgets_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(Cache, "_found", lambda cache, split: ({}, set()))
    with pytest.raises(soak.Broken, match=r"charged \d+, paid \d+"):
        for k in range(25):
            soak.resumed(np.random.default_rng([1, k]), Counter(), tmp_path / "replies")


@pytest.mark.slow
def test_replicas_that_are_killed_change_nothing():
    seen: Counter[str] = Counter()
    for k in (0, 1):  # a law, and a network that fills in a text
        soak.replicated(np.random.default_rng([6, k]), seen)
    assert (seen["replicated"], seen["replicas killed"]) == (2, 4)


@pytest.mark.slow
def test_a_minute_of_soak_with_killed_studies_finds_nothing():
    failures, said = said_by(60.0, seed=2)
    assert failures == 0, said
    assert "kills" in said[-2] and "studies" in said[-2]


def finished() -> tuple[cp.SampleResult, soak.AnsweringOracle]:
    oracle = soak.AnsweringOracle(cp.families.path(5, target_seed=1).oracle())
    return cp.samplers.Sequential()(cp.run.Run(oracle), cp.Streams(1, 2)), oracle


def test_what_is_not_conserved_is_broken():
    result, oracle = finished()
    given = np.full(5, cp.MASK)
    soak.check_result(result, oracle, given)
    masked = np.array(result.state)
    masked[2] = cp.MASK
    ledger = result.ledger
    cases = {
        "charged 4, answered 5": replace(result, ledger=ledger + cp.Ledger(commits=-1)),
        "rows read": replace(result, ledger=ledger + cp.Ledger(rows_read=1)),
        "5 positions committed, 4 stand, 0 taken back": replace(result, state=masked),
        "5 positions committed, 5 stand, 1 taken back": replace(result, undone=1),
    }
    for problem, spoilt in cases.items():
        with pytest.raises(soak.Broken, match=problem):
            soak.check_result(spoilt, oracle, given)
    with pytest.raises(soak.Broken, match="given context changed"):
        soak.check_result(result, oracle, np.where(np.arange(5) == 0, result.state + 1, cp.MASK))


def test_a_run_that_goes_wrong_is_named_by_its_seed_and_ends_the_soak(monkeypatch):
    def wrong(draw: np.random.Generator, seen: Counter[str]) -> None:
        raise soak.Broken("on purpose")

    for name in ("single", "gathered"):
        monkeypatch.setattr(soak, name, wrong)
    monkeypatch.setattr(soak, "MOST_FAILURES", 3)
    failures, said = said_by(60 * 60 / 100, seed=7)
    assert failures == 3
    assert "run 0 of seed 7: Broken: on purpose" in said


def test_a_charge_for_what_was_never_answered_is_found(monkeypatch):
    monkeypatch.setattr(Ledger, "evaluations", property(lambda ledger: ledger.commits + 1))
    with pytest.raises(soak.Broken):
        soak.single(np.random.default_rng(0), Counter())


def test_memory_that_grows_is_judged_after_a_warm_up():
    flat = [10**6] * 10 + [10**8] * 30
    assert soak.growth_of(flat) == (0, False)
    assert soak.growth_of([10**8 + k * 10**7 for k in range(40)])[1]
    assert soak.growth_of([1, 2, 3]) is None
    before = soak.held_bytes()
    if before is not None:
        # Pages of its own: an array may be given memory that another has left.
        size = 10**7
        with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as filled:
            filled.write(b"1" * size)
            assert soak.held_bytes() - before > 0.9 * size
