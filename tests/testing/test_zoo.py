"""Every oracle of the zoo is seen by what is said to see it, and named with state and position."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import samplers, testing
from counterprobe.run import Probe, driver
from counterprobe.testing import SEEN_BY, bad_oracles

STREAMS = cp.Streams(1, 2)
ZOO = bad_oracles()
MESSAGES = {
    "not a number": r"'not a number': the row at state 0, position \d holds a value that is not",
    "unnormalised": r"'unnormalised': the row at state 0, position \d sums to 2 instead of 1",
    "logits": r"'logits': the row at state 0, position \d .* if these are logits",
    "a row too many": r"'a row too many' must return one row per readout: 6 asked, 7 returned",
    "flat": r"'flat' must return rows of shape \(n, V\), got \(24,\)",
    "complex": r"'complex' must return rows of real numbers, got dtype complex128",
    "objects": r"'objects' must return rows of real numbers, got dtype object",
    "words": r"'words' must return rows of real numbers, got dtype <U8",
    "no rows": r"'no rows' must return Rows, got list",
    "mass on the mask": r"'mass on the mask' must return rows over 4 tokens, got 5; one too many",
}


def seen_by(who: str) -> list[str]:
    return [name for name, seen in SEEN_BY.items() if seen == who]


def drawn(oracle, **options):
    return samplers.Threshold(0.9)(cp.run.Run(oracle, **options), STREAMS)


@pytest.mark.parametrize("name", seen_by("door"))
@pytest.mark.parametrize("count", [1, 3])
def test_what_one_reply_shows_is_refused_by_name_state_and_position(name, count):
    with pytest.raises(cp.OracleError, match=MESSAGES[name] if count == 1 else name):
        cp.sample(ZOO[name](), samplers.Threshold(0.9), count, progress=False)


@pytest.mark.parametrize("name", seen_by("rechecking"))
def test_what_takes_two_replies_is_seen_by_second_evaluations_alone(name):
    assert drawn(ZOO[name]()).tokens is not None, "no single reply shows it"
    message = rf"oracle '{name}' is not frozen: .* state \d .* at position \d moved by"
    with pytest.raises(cp.OracleError, match=message):
        drawn(ZOO[name]().rechecking(1.0))


@pytest.mark.parametrize("name", seen_by("retrying"))
def test_calls_that_fail_are_repeated_where_that_is_asked_for(name):
    oracle = ZOO[name]().retrying(2, timeout=0.1, sleep=lambda _: None)
    result = drawn(oracle)
    assert np.array_equal(result.tokens, drawn(good()).tokens)
    assert len(oracle.failures) >= 1
    if name == "raising":
        with pytest.raises(ConnectionError):
            drawn(ZOO[name]())


def good() -> testing.BadOracle:
    """The zoo's rows, spoilt in no way."""
    return testing.BadOracle("good", lambda oracle, masses, states, readouts: masses)


def test_a_frozen_oracle_of_the_same_rows_passes_everything():
    result = drawn(good().rechecking(1.0))
    assert np.array_equal(result.tokens, drawn(good()).tokens)
    testing.check_oracle(good())


@pytest.mark.parametrize("most", [1, 1 << 24])
@pytest.mark.parametrize("rule", [samplers.PUNT(), samplers.Sequential("confidence")])
def test_a_buffer_that_is_written_over_changes_nothing(rule, most, monkeypatch):
    monkeypatch.setattr(driver, "MOST_NUMBERS", most)  # each run alone, or all of them
    for count in (1, 3):
        batch = cp.sample(ZOO["reused buffer"](), rule, count, progress=False)
        assert np.array_equal(batch.sequences, cp.sample(good(), rule, count).sequences)
    oracle = ZOO["reused buffer"]()
    run = cp.run.Run(oracle)
    first = run.do(Probe(run.state, [0, 1])).rows
    before = first.masses.copy()
    run.do(Probe(np.array([1, -1, -1, -1, -1, -1]), [2, 3]))
    assert np.array_equal(first.masses, before)


def test_every_oracle_of_the_zoo_says_what_is_wrong():
    assert set(SEEN_BY) == set(ZOO) and set(MESSAGES) == set(seen_by("door"))
    for name, make in ZOO.items():
        oracle = make(length=4, vocab_size=3)
        assert (oracle.name, oracle.length, oracle.vocab_size) == (name, 4, 3)
