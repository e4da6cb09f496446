"""The transcript replays to the ledger, with notes and without, and keeps few fingerprints."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run import Commit, Preprocess, Probe, Stream
from counterprobe.run import door as door_module
from counterprobe.run.transcript import Transcript
from counterprobe.states import fingerprint
from selecting import commit_selected

STREAMS = cp.Streams(3, 4)


def hand_made_run(oracle: cp.Oracle, *, keep_notes: bool = False) -> cp.run.Run:
    """Preprocess, a stage of three requests, a probe, commits of both kinds, a failed stage."""
    run = cp.run.Run(oracle, keep_notes=keep_notes)
    run.begin(STREAMS)
    run.do(Preprocess())
    state = run.state
    sources = np.repeat(state[None], 4, axis=0)
    sources[:, 0] = [0, 1, 2, 0]
    requests = [
        cp.run.Probe(sources[:3], cp.Readouts.same(3, [1, 2])),
        cp.run.Probe(sources[3:], cp.Readouts.pairs([0], [3])),
        cp.run.Probe(sources[:2], cp.Readouts.every_masked(sources[:2])),
    ]
    run.do(Stream(iter(requests), lambda request, rows: None))
    run.note("votes", edges=[(0, 1)])
    run.do(Probe(state, [0]))
    run.do(Commit([2, 0]))
    commit_selected(run, lambda residual, rows: residual[:1])

    def fail(request: cp.run.Request, rows: cp.rows.Rows) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run.do(Stream([cp.run.Probe(run.state[None], cp.Readouts.same(1, run.residual))], fail))
    run.do(Commit(run.residual))
    return run


@pytest.mark.parametrize("keep_notes", [False, True])
def test_a_run_made_by_hand_replays_to_its_ledger(law, keep_notes):
    run = hand_made_run(law.oracle(), keep_notes=keep_notes)
    assert len(run.transcript.notes) == keep_notes
    assert run.transcript.replay() == run.ledger
    length = law.length
    assert run.ledger == cp.Ledger(
        preprocessing=1,
        probes=6 + 1 + 1,
        commits=3,
        stages=7,
        rows_read=length
        + (3 * 2 + 1 + 2 * (length - 1))  # the stage
        + 1  # the probe
        + 2  # the commit of two
        + (length - 2)  # the selected commit reads everything left
        + (length - 3)  # the stage whose consumer failed
        + (length - 3),  # the last commit
        widest_stage=6,
        selected_commits=1,
    )


def test_events_name_the_batch_and_whether_it_was_selected(law):
    events = hand_made_run(law.oracle()).transcript.events
    commits = [event for event in events if event.operation == "commit"]
    batches = [event.positions.tolist() for event in commits]
    assert batches == [[2, 0], [1], list(range(3, law.length))]
    assert [event.selected for event in commits] == [False, True, False]
    assert all(len(event.positions) == 0 for event in events if event.operation != "commit")


def test_events_fingerprint_the_states_that_were_submitted(law, counted):
    oracle = counted(law.oracle())
    run = hand_made_run(oracle)
    events = [event for event in run.transcript.events if event.evaluations]
    recorded = np.concatenate([event.fingerprints for event in events])
    assert (recorded == fingerprint(np.concatenate(oracle.seen))).all()


def test_too_many_fingerprints_become_their_sum(monkeypatch, uniform_oracle):
    monkeypatch.setattr(door_module, "MAX_FINGERPRINTS", 8)
    states = np.array([[a, b, -1] for a in range(-1, 4) for b in range(-1, 4)], dtype=np.int32)
    expected = fingerprint(states)

    def stage(count: int) -> np.ndarray:
        run = cp.run.Run(uniform_oracle())
        pieces = np.split(states[:count], range(1, count))
        run.do(
            Stream(
                (cp.run.Probe(piece, cp.Readouts.same(len(piece), [2])) for piece in pieces),
                lambda request, rows: None,
            )
        )
        assert run.ledger.probes == count
        return run.transcript.events[0].fingerprints

    assert (stage(8) == expected[:8]).all()
    for count in (9, 10, 25):
        assert stage(count).tolist() == [int(expected[:count].sum(dtype=np.uint64))]


def test_a_copy_is_cut_loose(law):
    run = cp.run.Run(law.oracle())
    run.do(Preprocess())
    copy = run.transcript.copy()
    run.do(Probe(run.state, [0]))
    assert len(copy.events) == 1
    assert len(run.transcript.events) == 2
    assert copy.replay() == cp.Ledger(
        preprocessing=1, stages=1, rows_read=law.length, widest_stage=1
    )


def test_nothing_replays_to_nothing():
    assert Transcript().replay() == cp.Ledger()
