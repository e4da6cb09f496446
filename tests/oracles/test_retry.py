"""Calls that fail are repeated, paused between, charged once and counted apart."""

import threading

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import testing
from counterprobe.oracles import Runs
from counterprobe.oracles.retry import Retry
from counterprobe.run import Stream
from in_groups import InGroups

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)


class Flaky(testing.CountingOracle):
    """Fails whenever its plan says so; it also waits when it is told to."""

    def __init__(self, inner, plan, error=ConnectionError):
        super().__init__(inner)
        self.plan = iter(plan)
        self.error = error
        self.go_on = threading.Event()

    def ask(self, query):
        step = next(self.plan, "answer")
        if step == "hang":
            self.go_on.wait(30)
        if step == "raise":
            raise self.error("lost")
        return super().ask(query)


def drawn(oracle, **options):
    return cp.samplers.Sequential("random")(cp.run.Run(oracle, **options), STREAMS)


def test_a_call_that_raises_is_repeated_and_charged_once(law):
    plan = ["answer", "raise", "raise", "answer", "raise"]
    inner = Flaky(law.oracle(), plan)
    pauses = []
    oracle = Retry(inner, attempts=3, backoff=0.5, sleep=pauses.append)
    result = drawn(oracle)
    alone = drawn(testing.CountingOracle(law.oracle()))
    assert np.array_equal(result.tokens, alone.tokens)
    assert result.ledger == alone.ledger
    assert inner.states == result.ledger.evaluations
    assert pauses == [0.5, 1.0, 0.5]
    where = [(failure.call, failure.attempt) for failure in oracle.failures]
    assert where == [(1, 1), (1, 2), (2, 1)]
    assert {failure.reason for failure in oracle.failures} == {"ConnectionError: lost"}


def test_too_many_failures_in_a_row_end_the_run_with_one_clear_line(table_law):
    oracle = Retry(
        Flaky(table_law.oracle(), ["answer", *["raise"] * 9]), attempts=4, sleep=lambda _: None
    )
    message = r"failed 4 times in a row on call 1 \(1 states, 1 rows\).*ConnectionError: lost"
    with pytest.raises(cp.OracleError, match=message) as caught:
        drawn(oracle)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert len(oracle.failures) == 4


def test_pauses_double_up_to_a_minute(table_law):
    pauses = []
    oracle = Retry(
        Flaky(table_law.oracle(), ["raise"] * 9), attempts=9, backoff=4.0, sleep=pauses.append
    )
    with pytest.raises(cp.OracleError, match="9 times"):
        drawn(oracle)
    assert pauses == [4, 8, 16, 32, 60, 60, 60, 60]


def test_a_call_without_a_reply_in_time_is_given_up_and_repeated(law):
    inner = Flaky(law.oracle(), ["answer", "hang", "answer"])
    oracle = Retry(inner, attempts=2, timeout=0.2, backoff=0)
    try:
        result = drawn(oracle)
        alone = drawn(testing.CountingOracle(law.oracle()))
        assert np.array_equal(result.tokens, alone.tokens)
        assert [failure.reason for failure in oracle.failures] == [
            "TimeoutError: no reply within 0.2 seconds"
        ]
    finally:
        inner.go_on.set()


class Keeping(testing.CountingOracle):
    """Work is kept of a run; whenever it was, the plan says what becomes of the attempt."""

    def __init__(self, inner, plan):
        super().__init__(inner)
        self.plan = iter(plan)
        self.go_on = threading.Event()
        self.in_full = 0

    def ability(self, kind):
        return self.inner.ability(kind)

    def ask(self, query):
        step = next(self.plan, "answer")
        kept, _ = self.inner._kept._kept.get(query.runs.key, (-1, None))
        self.in_full += kept != query.runs.serial
        reply = super().ask(query)
        if step == "raise":
            raise ConnectionError
        if step == "spoil":  # the work has gone on, to who knows where
            self.inner._kept.take(Runs(query.runs.key, None, query.runs.serial + 1, None))
            raise ConnectionError
        if step == "hang":
            self.go_on.wait(30)
        return reply


@pytest.mark.parametrize("plan", [["answer", "raise"] * 4, ["answer", "spoil", "answer"] * 3])
def test_a_run_of_which_work_is_kept_is_answered_again_from_what_its_query_says(forest_law, plan):
    inner = Keeping(forest_law.oracle(), plan)
    oracle = inner.retrying(2, sleep=lambda _: None)
    result, alone = drawn(oracle), drawn(forest_law.oracle())
    assert np.array_equal(result.tokens, alone.tokens) and result.ledger == alone.ledger
    assert result.ledger.evaluations == forest_law.length < inner.states
    assert 1 < inner.in_full < inner.states, "begun anew after a failure, and only then"


def test_an_attempt_that_answers_too_late_changes_nothing(forest_law):
    inner = Keeping(forest_law.oracle(), ["answer", "hang"])
    oracle = inner.retrying(2, timeout=0.2, backoff=0)
    try:
        result = drawn(oracle)
    finally:
        inner.go_on.set()
    assert np.array_equal(result.tokens, drawn(forest_law.oracle()).tokens)
    assert [failure.reason for failure in oracle.failures] == [
        "TimeoutError: no reply within 0.2 seconds"
    ]


class FlakyInGroups(InGroups, Flaky):
    """Is asked for six states at once."""


def one_stage(oracle, law):
    """Submit eight requests of two states in one stage; return their rows and what was charged."""
    states = np.full((16, law.length), MASK)
    states[np.arange(16), 0] = np.arange(16) % law.vocab_size
    requests = [
        cp.run.Probe(states[k : k + 2], cp.Readouts.same(2, [1, 2])) for k in range(0, 16, 2)
    ]
    seen = []
    run = cp.run.Run(oracle)
    run.do(Stream(iter(requests), lambda _, rows: seen.append(rows.masses.copy())))
    return np.concatenate(seen), run.ledger


def test_queries_that_are_asked_at_once_are_repeated_at_once(forest_law):
    alone, ledger = one_stage(forest_law.oracle(), forest_law)
    plan = ["raise", "raise", "answer", "raise", "answer", "raise", "answer"]
    inner = FlakyInGroups(forest_law.oracle(), plan)
    pauses = []
    oracle = Retry(inner, attempts=3, backoff=0.5, sleep=pauses.append)
    rows, charged = one_stage(oracle, forest_law)
    assert np.array_equal(rows, alone) and charged == ledger
    assert inner.states == ledger.evaluations == 16
    assert [len(states) for states in inner.seen] == [6, 6, 4]
    assert pauses == [0.5, 1.0, 0.5, 0.5]
    where = [(failure.call, failure.attempt) for failure in oracle.failures]
    assert where == [(0, 1), (0, 2), (1, 1), (2, 1)]


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_request_that_fails_too_often_ends_the_stream(forest_law, attempts):
    inner = FlakyInGroups(forest_law.oracle(), ["answer", *["raise"] * 9])
    oracle = Retry(inner, attempts=attempts, sleep=lambda _: None)
    message = rf"failed {attempts} times in a row on call 1 \(6 states, 12 rows\)"
    with pytest.raises(cp.OracleError, match=message):
        one_stage(oracle, forest_law)
    assert len(oracle.failures) == attempts


def test_a_broken_contract_is_not_asked_for_again(uniform_oracle):
    calls = []

    def wrong(states):
        calls.append(1)
        return np.ones((*states.shape, 9))

    oracle = Retry(cp.CallableOracle(wrong, 3, 4), sleep=lambda _: None)
    with pytest.raises(cp.OracleError, match="must return an array of shape"):
        drawn(oracle)
    assert len(calls) == 1 and oracle.failures == []


def test_an_interrupt_is_no_failure(table_law):
    for timeout in (None, 30.0):
        inner = Flaky(table_law.oracle(), ["raise"], error=KeyboardInterrupt)
        oracle = Retry(inner, timeout=timeout)
        with pytest.raises(KeyboardInterrupt):
            drawn(oracle)
        assert oracle.failures == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attempts": 0}, "attempts must be at least 1, got 0"),
        ({"attempts": 1.5}, "attempts must be a whole number"),
        ({"timeout": 0}, "timeout must be above 0 seconds, got 0"),
        ({"timeout": float("nan")}, "timeout must be above 0"),
        ({"backoff": -1}, "backoff must be a number of seconds, 0 or more, got -1"),
        ({"backoff": float("inf")}, "backoff must be a number of seconds"),
    ],
)
def test_settings_that_mean_nothing_are_refused(table_law, settings, message):
    with pytest.raises(ValueError, match=message):
        Retry(table_law.oracle(), **settings)
