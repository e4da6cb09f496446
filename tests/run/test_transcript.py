"""The transcript replays to the ledger, at every level, and stays bounded."""

import weakref

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run import Commit, Preprocess, Probe, Stream
from counterprobe.run import door as door_module
from counterprobe.run import transcript as transcript_module
from counterprobe.run.transcript import Transcript
from counterprobe.states import fingerprint
from selecting import commit_selected

STREAMS = cp.Streams(3, 4)


@pytest.fixture(params=list(cp.run.Level), ids=lambda level: level.name.lower())
def level(request: pytest.FixtureRequest) -> cp.run.Level:
    return request.param


def hand_made_run(oracle: cp.Oracle, level: cp.run.Level) -> cp.run.Run:
    """Preprocess, a stage of three requests, a probe, commits of both kinds, a failed stage."""
    run = cp.run.Run(oracle, record=level)
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
    run.view.note("votes", edges=[(0, 1)])
    run.do(Probe(state, [0]))
    run.do(Commit([2, 0]))
    commit_selected(run, lambda residual, rows: residual[:1])

    def fail(request: cp.run.Request, rows: cp.rows.Rows) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run.do(Stream([cp.run.Probe(run.state[None], cp.Readouts.same(1, run.residual))], fail))
    run.do(Commit(run.residual))
    return run


def test_a_run_made_by_hand_replays_to_its_ledger(law, level):
    run = hand_made_run(law.oracle(), level)
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


def test_levels_differ_in_what_they_keep_only(law):
    runs = {level: hand_made_run(law.oracle(), level) for level in cp.run.Level}
    notes = {level: len(run.transcript.notes) for level, run in runs.items()}
    assert notes == {
        cp.run.Level.LEDGER: 0,
        cp.run.Level.STRUCTURE: 1,
        cp.run.Level.TRACE: 1,
        cp.run.Level.FULL: 1,
    }
    kept = {level: run.transcript.rows_kept for level, run in runs.items()}
    read = runs[cp.run.Level.FULL].ledger.rows_read
    assert kept == {
        cp.run.Level.LEDGER: 0,
        cp.run.Level.STRUCTURE: 0,
        cp.run.Level.TRACE: 0,
        cp.run.Level.FULL: read,
    }
    assert len({run.ledger for run in runs.values()}) == 1
    assert len({tuple(run.state) for run in runs.values()}) == 1


def test_events_name_the_batch_and_whether_it_was_selected(law):
    events = hand_made_run(law.oracle(), cp.run.Level.LEDGER).transcript.events
    commits = [event for event in events if event.operation == "commit"]
    batches = [event.positions.tolist() for event in commits]
    assert batches == [[2, 0], [1], list(range(3, law.length))]
    assert [event.selected for event in commits] == [False, True, False]
    assert all(len(event.positions) == 0 for event in events if event.operation != "commit")


def test_events_fingerprint_the_states_that_were_submitted(law, counted):
    oracle = counted(law.oracle())
    run = hand_made_run(oracle, cp.run.Level.LEDGER)
    recorded = np.concatenate([event.fingerprints for event in run.transcript.events])
    assert (recorded == fingerprint(np.concatenate(oracle.seen))).all()


def test_full_level_keeps_the_rows_that_came_back(law):
    run = cp.run.Run(law.oracle(), record=cp.run.Level.FULL)
    run.begin(STREAMS)
    first = run.do(Preprocess())
    second = run.do(Probe(run.state, [1, 0])).rows
    run.do(Commit([0]))
    events = run.transcript.events
    assert events[0].rows == (first,)
    assert events[1].rows == (second,)
    assert (events[2].rows[0].masses == first.masses[:1]).all()


def test_kept_rows_are_bounded_and_the_ledger_still_replays(monkeypatch, law):
    monkeypatch.setattr(transcript_module, "MAX_ROWS", 10)
    run = hand_made_run(law.oracle(), cp.run.Level.FULL)
    kept = sum(len(rows) for event in run.transcript.events for rows in event.rows)
    assert 0 < kept == run.transcript.rows_kept <= 10
    assert run.ledger.rows_read > 10
    assert run.transcript.replay() == run.ledger


def test_kept_rows_are_bounded_while_a_stage_is_still_open(monkeypatch, uniform_oracle):
    class Reply(cp.rows.DenseRows):
        """Dense rows that can be watched."""

    class Watched:
        length, vocab_size, row_error, trusted = 3, 4, 0.0, True

        def rows(self, states, readouts):
            reply = Reply(np.full((len(readouts), 4), 0.25))
            alive.append(weakref.ref(reply))
            return reply

    alive: list[weakref.ref] = []
    most = 0

    def consume(request: cp.run.Request, rows: cp.rows.Rows) -> None:
        nonlocal most
        most = max(most, sum(reference() is not None for reference in alive))

    monkeypatch.setattr(transcript_module, "MAX_ROWS", 6)
    run = cp.run.Run(Watched(), record=cp.run.Level.FULL)
    readouts = cp.Readouts.same(1, [0, 1])
    run.do(Stream((cp.run.Probe(run.state[None], readouts) for _ in range(20)), consume))
    assert most == 3 + 1  # three replies of two rows kept, and the one being reduced
    assert run.ledger.rows_read == 40


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
