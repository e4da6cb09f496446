"""Attention at the door: it comes with an evaluation, is checked, and is charged nothing more."""

import numpy as np
import pytest

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe import Query
from counterprobe.oracles import AttentionQuery
from counterprobe.run import Driver, driver
from selecting import commit_selected

STREAMS = cp.Streams(1, 2)


def weights(length: int, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).random((length, length))
    return drawn / drawn.sum(axis=1, keepdims=True)


def begun(oracle: cp.Oracle, **options) -> cp.run.Run:
    run = cp.run.Run(oracle, **options)
    run.begin(STREAMS)
    return run


def test_a_selection_sees_the_attention_of_the_evaluation_it_is_charged_for(law):
    oracle = AttentiveLaw(law.oracle(), weights(law.length))
    run = begun(oracle)
    seen = []

    def select(residual, rows, attention):
        seen.append((residual.tolist(), len(rows), attention))
        return residual[:2]

    assert run.offers_attention
    positions, tokens = commit_selected(run, select, 3)
    assert positions.tolist() == [0, 1] and run.state[:2].tolist() == tokens.tolist()
    assert seen[0][:2] == (list(range(law.length)), law.length)
    assert np.array_equal(seen[0][2], oracle.weights)
    assert oracle.calls == [3]
    ledger = run.ledger
    assert (ledger.evaluations, ledger.commits, ledger.stages, ledger.rows_read) == (
        1,
        1,
        1,
        law.length,
    )
    assert oracle.states == 1
    assert run.transcript.replay() == ledger
    assert run.used == cp.Need.SELECT


def test_attention_changes_nothing_that_is_drawn(law):
    def first(residual, rows, *attention):
        return residual[:1]

    attended, plain = begun(AttentiveLaw(law.oracle(), weights(law.length))), begun(law.oracle())
    while not plain.is_complete:
        commit_selected(attended, first, 1)
        commit_selected(plain, first)
    assert np.array_equal(attended.state, plain.state)
    assert attended.ledger == plain.ledger


def test_without_the_right_to_select_it_is_a_probe_and_a_commit(law):
    oracle = AttentiveLaw(law.oracle(), weights(law.length))
    run = begun(oracle, allowed=cp.Need.NONE)
    commit_selected(run, lambda residual, rows, attention: residual, 1)
    assert (run.ledger.probes, run.ledger.commits, run.ledger.stages) == (1, 1, 2)
    assert oracle.states == 2 and len(oracle.calls) == 1


@pytest.mark.parametrize("offers", [True, False])
def test_an_oracle_without_attention_is_refused_before_it_is_asked(law, counted, offers):
    inner = counted(law.oracle())
    oracle = AttentiveLaw(inner, weights(law.length), attends=False) if offers else inner
    run = begun(oracle)
    assert not run.offers_attention
    with pytest.raises(ValueError, match=r"attention needs a model that returns it.*probes"):
        commit_selected(run, lambda residual, rows, attention: residual, 1)
    assert inner.calls == 0 and run.ledger == cp.Ledger()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.zeros((2, 2)), r"shape \(1, 4, 4\), got shape \(1, 2, 2\)"),
        (np.full((4, 4), np.nan), "negative or not finite"),
        (np.full((4, 4), -0.1), "after their softmax"),
        (np.zeros((4, 4), dtype=np.int64), "real numbers"),
    ],
)
def test_what_is_no_attention_is_refused(table_law, wrong, said):
    run = begun(AttentiveLaw(table_law.oracle(), wrong))
    with pytest.raises(cp.OracleError, match=said):
        commit_selected(run, lambda residual, rows, attention: residual, 1)
    assert not run.ledger.commits


def test_nothing_is_asked_past_the_budget(table_law):
    oracle = AttentiveLaw(table_law.oracle(), weights(4))
    run = begun(oracle, max_evaluations=1)
    commit_selected(run, lambda residual, rows, attention: residual[:1], 1)
    with pytest.raises(cp.errors.BudgetExceeded):
        commit_selected(run, lambda residual, rows, attention: residual[:1], 1)
    assert oracle.states == 1


# ----- Many runs ----------------------------------------------------------------------------


class Looking(AttentiveLaw):
    """Attention that depends on the state."""

    def attention_of(self, states):
        return super().attention_of(states) + (states + 1).sum(axis=1)[:, None, None]


def test_runs_side_by_side_ask_once_and_each_gets_its_own_attention(law):
    oracle = Looking(law.oracle(), weights(law.length))
    free = np.full((1, law.length), cp.MASK, dtype=np.int32)
    shown = free.copy()
    shown[0, 0] = 1
    asked = [free, shown, np.concatenate([shown, free])]

    def work(index):
        readouts = cp.Readouts.same(len(asked[index]), [1, 2])
        return (yield AttentionQuery(asked[index], readouts, layers=5))

    replies = Driver(work, 3, at_once=8).run(oracle)
    assert oracle.calls == [5] and oracle.states == 4
    for states, reply in zip(asked, replies, strict=True):
        expected = oracle.weights + (states + 1).sum(axis=1)[:, None, None]
        assert np.array_equal(reply.attention, expected)
        alone = law.oracle().rows(states, cp.Readouts.same(len(states), [1, 2]))
        assert np.array_equal(reply.rows.masses, alone.masses)


def test_what_is_asked_otherwise_goes_in_another_call_and_no_call_is_too_large(law, monkeypatch):
    free = np.full((1, law.length), cp.MASK, dtype=np.int32)
    readouts = cp.Readouts.same(1, [0])
    layers = [None, None, 2, 2, 3, None]
    oracle = AttentiveLaw(law.oracle(), weights(law.length))

    def work(index):
        kind = layers[index]
        query = Query(free, readouts)
        asked = query if kind is None else AttentionQuery(free, readouts, layers=kind)
        return (yield asked).attention

    found = Driver(work, 6, at_once=8).run(oracle)
    assert oracle.calls == [2, 3] and oracle.states == 6
    assert [attention is None for attention in found] == [kind is None for kind in layers]
    # Attention of N positions is N times as large as their state.
    monkeypatch.setattr(driver, "MOST_NUMBERS", law.length**2)
    Driver(work, 6, at_once=8).run(oracle)
    assert oracle.calls[2:] == [2, 2, 3]
