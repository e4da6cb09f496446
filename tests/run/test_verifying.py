"""Verified values: what they need, what they are charged, and what is refused."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Need
from counterprobe.run import Draft, Keep, Noise, Probe, Remask, Stream, Verify
from counterprobe.run.transcript import Event, Note, Transcript

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)
UNSCORED = [0.0]


def begun(oracle: cp.Oracle, **options) -> cp.run.Run:
    run = cp.run.Run(oracle, **options)
    run.begin(STREAMS)
    return run


def test_the_guess_becomes_the_commit_and_the_wave_stays_probes(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle)
    run.do(Probe(run.state, [0, 1]))
    ahead = run.state
    ahead[0] = 1
    run.do(Probe(ahead, [1]))
    run.do(Verify([0, 1], [1, 0], [-0.5, -0.7]))
    assert run.state[:2].tolist() == [1, 0]
    assert run.round_of_position[:2].tolist() == [0, 0]
    assert run.ledger == cp.Ledger(probes=1, commits=1, stages=2, rows_read=3, widest_stage=1)
    assert run.ledger.evaluations == oracle.states == 2
    assert run.used == Need.VERIFY
    assert run.transcript.replay() == run.ledger


def test_a_state_of_the_wave_that_is_the_next_history_is_the_next_guess(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle)
    run.do(Probe(run.state, [0]))
    ahead = run.state
    ahead[0] = 1
    run.do(Probe(ahead, [1]))
    run.do(Verify([0], [1], UNSCORED))
    run.do(Verify([1], [0], UNSCORED))
    assert run.ledger == cp.Ledger(commits=2, stages=2, rows_read=2, widest_stage=1)
    assert run.ledger.evaluations == oracle.states
    assert run.transcript.replay() == run.ledger


def test_without_a_probe_of_the_history_there_is_nothing_to_become_the_commit(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle)
    with pytest.raises(ValueError, match="the current state was not probed"):
        run.do(Verify([0], [1], UNSCORED))
    ahead = run.state
    ahead[0] = 1
    run.do(Probe(ahead, [1]))
    with pytest.raises(ValueError, match="the current state was not probed"):
        run.do(Verify([0], [1], UNSCORED))
    run.do(Probe(run.state, [0]))
    run.do(Verify([0], [0], UNSCORED))  # corrected: the wave looked at another value
    with pytest.raises(ValueError, match="the current state was not probed"):
        run.do(Verify([1], [1], UNSCORED))
    assert (run.ledger.probes, run.ledger.commits) == (1, 1)
    assert run.state[1] == MASK


def test_a_commit_of_another_kind_spends_its_own_evaluation(law):
    run = begun(law.oracle())
    run.do(Draft())
    run.do(Keep([0]))
    with pytest.raises(ValueError, match="the current state was not probed"):
        run.do(Verify([1], [1], UNSCORED))


def test_verified_values_need_the_right(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle, allowed=~Need.VERIFY)
    with pytest.raises(ValueError, match="Noise needs VERIFY"):
        run.do(Noise())
    with pytest.raises(ValueError, match="Verify needs VERIFY"):
        run.do(Verify([0], [1], UNSCORED))
    with pytest.raises(ValueError, match="no commit noise yet"):
        cp.run.Run(oracle).do(Noise())
    assert oracle.calls == 0


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([0, 1], "tokens must be 1 integers"),
        ([0.5], "tokens must be 1 integers"),
        ([MASK], "tokens must lie in 0.."),
        ([99], "tokens must lie in 0.."),
    ],
)
def test_verified_values_must_be_tokens(law, tokens, message):
    run = begun(law.oracle())
    run.do(Probe(run.state, [0]))
    with pytest.raises(ValueError, match=message):
        run.do(Verify([0], tokens, UNSCORED))
    assert (run.state == MASK).all()


def test_given_context_and_committed_values_cannot_be_verified_again(law):
    given = np.full(law.length, MASK)
    given[1] = 0
    run = begun(law.oracle(), given=given)
    run.do(Probe(run.state, [0]))
    with pytest.raises(ValueError, match="position 1 is committed already"):
        run.do(Verify([0, 1], [0, 0], UNSCORED))


def test_scored_runs_keep_the_log_probability_that_decided(law):
    scores = np.full(law.length, np.nan)
    run = begun(law.oracle(), scores=cp.run.drawing.Scores(scores))
    run.do(Probe(run.state, [0, 2]))
    run.do(Verify([2, 0], [1, 0], [-0.25, -0.5]))
    assert scores[[2, 0]].tolist() == [-0.25, -0.5]
    assert np.isnan(np.delete(scores, [0, 2])).all()


def test_a_stage_too_wide_to_keep_its_fingerprints_may_hold_the_guess(law, monkeypatch):
    monkeypatch.setattr(cp.run.door, "MAX_FINGERPRINTS", 1)
    run = begun(law.oracle())
    run.do(Probe(np.stack([run.state, run.state]), [0]))
    assert len(run.transcript.events[0].fingerprints) == 1
    run.do(Verify([0], [1], UNSCORED))
    assert (run.ledger.probes, run.ledger.commits) == (1, 1)


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_a_stage_too_wide_to_keep_its_fingerprints_vouches_for_no_other_state(
    law, monkeypatch, at_once
):
    monkeypatch.setattr(cp.run.door, "MAX_FINGERPRINTS", 2)
    run = begun(law.oracle())
    others = np.repeat(run.state[None, :], 5, axis=0)
    others[:, 1] = np.arange(5) % law.vocab_size
    pieces = [others[low : low + at_once] for low in range(0, 5, at_once)]
    requests = [cp.run.Probe(piece, cp.Readouts.same(len(piece), [0])) for piece in pieces]
    run.do(Stream(requests, lambda request, rows: None))
    before = run.ledger
    with pytest.raises(ValueError, match="the current state was not probed"):
        run.do(Verify([0], [1], UNSCORED))
    assert run.ledger == before


def test_the_guess_in_a_wide_stage_is_spent_once(law, monkeypatch):
    monkeypatch.setattr(cp.run.door, "MAX_FINGERPRINTS", 2)
    run = begun(law.oracle())
    ahead = run.state
    ahead[1] = 0
    requests = [cp.run.Probe(s[None, :], cp.Readouts.same(1, [0])) for s in (ahead, run.state)]
    run.do(Stream([*requests, *requests], lambda request, rows: None))
    run.do(Verify([0], [1], UNSCORED))
    with pytest.raises(ValueError, match="the current state was not probed"):
        run.do(Verify([1], [0], UNSCORED))
    run.do(Remask([0]))
    with pytest.raises(ValueError, match="the current state was not probed"):
        run.do(Verify([0], [1], UNSCORED))
    assert (run.ledger.probes, run.ledger.commits) == (3, 1)
    assert run.transcript.replay() == run.ledger


def test_what_another_run_probed_in_a_wide_stage_is_taken_over_with_its_history(law, monkeypatch):
    monkeypatch.setattr(cp.run.door, "MAX_FINGERPRINTS", 1)
    first, second = begun(law.oracle()), begun(law.oracle())
    first.do(Probe(np.stack([first.state, first.state]), [0]))
    second.adopt(first.transcript.entries)
    second.do(Verify([0], [1], UNSCORED))
    assert (second.ledger.probes, second.ledger.commits) == (1, 1)


# ----- Tokens and events ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_a_probe_is_open_until_it_becomes_a_commit(seed):
    draw = np.random.default_rng([78, seed])
    transcript, is_open = Transcript(keeps_notes=True), dict.fromkeys(range(4), False)
    nowhere = np.empty(0, dtype=np.int64)
    for _ in range(40):
        prints = np.unique(draw.integers(4, size=draw.integers(1, 4)))
        kind = str(draw.choice(["probe", "wide", "commit", "promoted", "remask", "note"]))
        some, one = prints.astype(np.uint64), prints[:1].astype(np.uint64)
        if kind == "note":
            transcript.entries.append(Note("between", {"found": 3}))
        elif kind == "wide":  # summed, with the history among them or not
            history = None if draw.random() < 0.5 else one[0]
            event = Event("probe", 9, 9, nowhere, some.sum(keepdims=True), history=history)
            transcript.entries.append(event)
            if history is not None:
                is_open[int(history)] = True
        elif kind == "promoted":
            if not is_open[int(one[0])]:
                with pytest.raises(ValueError, match="the current state was not probed"):
                    transcript.promote(one[0], nowhere)
                continue
            event = transcript.promote(one[0], np.array([5]))
            assert (event.operation, event.evaluations, event.rows_read) == ("commit", 0, 0)
            assert event.promoted and not event.selected and event.positions.tolist() == [5]
            assert (event.fingerprints.tolist(), event.fingerprints.dtype) == (one, np.uint64)
            transcript.entries.append(event)
            is_open[int(one[0])] = False
        else:
            count = 0 if kind == "remask" else len(some)
            transcript.entries.append(Event(kind, count, 0, nowhere, some))
            if kind == "probe":
                is_open |= dict.fromkeys(prints.tolist(), True)
