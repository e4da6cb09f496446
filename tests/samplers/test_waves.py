"""Branches side by side: shared stages, and a choice that does not depend on who is fast."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers.rules import waves
from counterprobe.samplers.rules.waves import ChainAt, RowsAt, first_kept

EVERY = np.arange(4)


def masked() -> np.ndarray:
    return np.full(4, cp.MASK, dtype=np.int32)


def steps(count: int, value, log=None):
    """A branch that asks one question a step and returns a value, or None."""
    for _ in range(count):
        reply = yield [RowsAt(masked(), EVERY)]
        assert len(reply) == 1
        if log is not None:
            log.append(value)
    return value


def drive(branch):
    """Answer everything with nothing; return the value and how much each wave asked."""
    asked, reply = [], None
    while True:
        try:
            asks = branch.send(reply)
        except StopIteration as end:
            return end.value, asked
        asked.append(len(asks))
        reply = [None] * len(asks)


def test_branches_share_the_waves_of_the_longest():
    value, asked = drive(first_kept([steps(3, None), steps(1, None), steps(2, None)]))
    assert value is None
    assert asked == [3, 2, 1]


def test_the_first_in_order_is_taken_however_long_it_needs():
    value, asked = drive(first_kept([steps(2, None), steps(4, "slow"), steps(1, "fast")]))
    assert value == "slow"
    assert asked == [3, 2, 1, 1]


def test_branches_behind_one_that_kept_something_are_given_up():
    log = []
    value, asked = drive(first_kept([steps(3, "first"), steps(1, "b"), steps(9, "c", log)]))
    assert value == "first"
    assert asked == [3, 1, 1]
    assert log == ["c"]


def test_branches_that_ask_nothing_need_no_wave():
    assert drive(first_kept([steps(0, None), steps(0, "kept"), steps(5, "late")])) == ("kept", [])
    assert drive(first_kept([])) == (None, [])


def test_branches_nest():
    def outer():
        value = yield from first_kept([steps(2, None), steps(1, "inner")])
        yield [RowsAt(masked(), EVERY)]
        return value

    value, asked = drive(first_kept([outer(), steps(1, None)]))
    assert value == "inner"
    assert asked == [3, 1, 1]


@pytest.mark.parametrize("room", [1, 9, 12, 1 << 20])
def test_a_wave_is_one_stage_of_the_rows_that_were_asked_for(
    room, table_law, counted, monkeypatch
):
    monkeypatch.setattr(waves, "MOST_NUMBERS", room)
    oracle = counted(table_law.oracle())
    run = cp.run.Run(oracle)
    known = masked()
    known[1] = 2
    order, tokens = np.array([3, 0, 2]), np.array([1, 0, 2])

    def branch():
        return (
            yield [
                RowsAt(masked(), EVERY[::-1]),
                ChainAt(known, order, tokens),
                RowsAt(known, order),
            ]
        )

    base, chain, rows = run.call(waves.waves, branch())
    assert (run.ledger.evaluations, run.ledger.stages, run.ledger.rows_read) == (4, 1, 9)
    assert oracle.states == 4
    for k, position in enumerate(EVERY[::-1]):
        expected = table_law.conditional(masked(), [position])
        assert np.asarray(base.dense())[k] == pytest.approx(expected)
    for k, position in enumerate(order):
        assert np.asarray(rows.dense())[k] == pytest.approx(
            table_law.conditional(known, [position])
        )
    state = known.copy()
    expected = []
    for position, token in zip(order, tokens, strict=True):
        expected.append(np.log(table_law.conditional(state, [position])[token]))
        state[position] = token
    assert chain == pytest.approx(expected[1:])
