"""A listener hears what it wants in order, and changes nothing; nothing is made for nobody."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run import Finished, Listener, Progress, Step, events, tell_all
from counterprobe.run.events import Announced, Charged, Closed, Drew, Opened, Replied
from counterprobe.run.transcript import Event, Note

STREAMS = cp.Streams(3, 4)


class Hearing:
    """Keeps the names of what it heard, and the ledgers."""

    kinds = ()

    def __init__(self, sequence: int = 0) -> None:
        self.sequence = sequence
        self.heard: list[str] = []
        self.ledgers: list[cp.Ledger] = []
        self.tokens: dict[int, int] = {}
        self.rows_read = 0
        self.evaluations = 0
        self.result: object = None
        self.opening: Any = None

    def __call__(self, event: events.RunEvent) -> None:
        assert not isinstance(event, events.WHOLE)
        match event:
            case Opened():
                self.heard.append("opened")
                self.opening = event
                self.tokens = {k: int(t) for k, t in enumerate(event.given) if t != cp.MASK}
            case Announced(purpose):
                self.heard.append(f"announced {purpose}")
            case Replied(states, readouts, rows):
                assert len(rows) == len(readouts)
                assert (states[readouts.state_index, readouts.position] == cp.MASK).all()
                self.evaluations += len(states)
                self.rows_read += len(rows)
            case Drew(positions, tokens, rows):
                assert len(positions) == len(tokens)
                assert rows is None or len(rows) == len(tokens)
                self.tokens.update(zip(positions.tolist(), tokens.tolist(), strict=True))
            case Charged(stage, ledger):
                self.heard.append(stage.operation)
                self.ledgers.append(ledger)
            case Note() as note:
                self.heard.append(f"noted {note.name}")
            case Closed(result):
                self.heard.append("closed")
                self.result = result


def test_a_listener_hears_every_reply_commit_and_ledger(forest_law, sampler):
    law = forest_law
    told = sampler.informed_by(law)
    hearing = Hearing()
    result = told(cp.run.Run(law.oracle(), on_event=hearing), STREAMS)
    alone = told(cp.run.Run(law.oracle()), STREAMS)
    assert result.ledger == alone.ledger == hearing.ledgers[-1]
    assert (result.state == alone.state).all()
    assert hearing.heard[0] == "opened" and hearing.heard[-1] == "closed"
    assert hearing.result is result
    assert hearing.evaluations == result.ledger.evaluations
    assert hearing.rows_read == result.ledger.rows_read
    assert hearing.tokens == {k: int(t) for k, t in enumerate(result.state)}


def test_the_opening_says_what_is_needed_to_draw_the_same_again(forest_law):
    hearing = Hearing(7)
    given = np.full(forest_law.length, cp.MASK)
    given[1] = 2
    noisy = cp.FrozenNoise(forest_law.oracle(), radius=0.01, seed=3)
    run = cp.run.Run(noisy, given=given, sequence=7, temperature=0.5, on_event=hearing)
    drawn = cp.samplers.RandomBalanced(3)(run, STREAMS)
    told = hearing.opening
    assert told.task == "sample" and told.run is run
    again = cp.samplers.build_sampler(told.sampler, told.settings)(
        cp.run.Run(noisy, given=told.given, sequence=run.sequence, temperature=run.temperature),
        told.streams,
    )
    assert again.tokens.tolist() == drawn.tokens.tolist()
    assert again.settings == drawn.settings


def test_a_listener_is_told_that_a_discovery_draws_nothing():
    hearing = Hearing()
    cp.discover(cp.families.path(24, target_seed=3).oracle(), on_event=hearing)
    assert (hearing.opening.sampler, hearing.opening.task) == ("discover", "discover")
    assert hearing.heard[0] == "opened" and hearing.heard[-1] == "closed"


def test_notes_are_kept_where_somebody_listens(law):
    assert cp.run.Run(law.oracle(), on_event=Hearing()).transcript.keeps_notes
    assert not cp.run.Run(law.oracle()).transcript.keeps_notes


def test_what_comes_next_is_announced_before_it_is_charged(table_law):
    hearing = Hearing()
    run = cp.run.Run(table_law.oracle(), on_event=hearing)
    cp.samplers.PUNT()(run, STREAMS)
    first = hearing.heard[:8]
    assert first[:3] == ["opened", "announced draft", "probe"]
    assert first[3] == "noted candidates"
    assert "noted tests" in hearing.heard
    assert hearing.heard.index("announced test") < hearing.heard.index("noted tests")


@pytest.mark.parametrize("count", [1, 3])
def test_sample_lets_a_listener_hear_the_first_sequence_alone(law, count):
    hearing = Hearing()
    batch = cp.sample(law.oracle(), "sequential", count, seed=5, progress=False, on_event=hearing)
    assert hearing.ledgers[-1] == batch.results[0].ledger
    assert [hearing.tokens[k] for k in range(law.length)] == batch.sequences[0].tolist()
    alone = cp.sample(law.oracle(), "sequential", count, seed=5, progress=False)
    assert (alone.sequences == batch.sequences).all()


def test_what_was_shared_is_heard_as_it_was_charged(forest_law):
    hearing = Hearing()
    source = cp.run.Run(forest_law.oracle(), keep_notes=True)
    source.do(cp.run.Preprocess())
    source.note("found", edges=np.empty((0, 2)))
    taker = cp.run.Run(forest_law.oracle(), on_event=hearing)
    taker.adopt(source.transcript.entries)
    assert hearing.heard == ["preprocess", "noted found"]
    assert hearing.ledgers == [source.ledger]


NOWHERE, NO_PRINTS = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)


@pytest.mark.parametrize("keep_notes", [False, True])
@pytest.mark.parametrize("sequence", [None, 0, 1])
def test_details_are_told_of_one_sequence_and_only_notes_are_kept(law, keep_notes, sequence):
    heard: list[Any] = []
    listener = Listener(heard.append, (), sequence)
    door = cp.run.Run(law.oracle(), keep_notes=keep_notes, on_event=listener, sequence=1)
    event = Event("probe", 1, 1, NOWHERE, NO_PRINTS)
    door.note("found", edges=2)
    door.detail("seen", tokens=3)
    door.record(event)
    kept = ["found"] if keep_notes or sequence == 1 else []
    assert [note.name for note in door.transcript.notes] == kept
    assert door.transcript.events == [event] and len(door.transcript.entries) == len(kept) + 1
    if sequence != 1:
        assert heard == []
        return
    *noted, charged = heard
    assert [told.name for told in noted] == [*kept, "seen"]
    assert charged == Charged(event, cp.Ledger(probes=1, stages=1, rows_read=1, widest_stage=1))


# ----- Who hears what -----------------------------------------------------------------------

KINDS = [kind for kind in vars(events).values() if kind in events.RunEvent.__args__]


@pytest.fixture
def made(monkeypatch) -> Counter[type]:
    """Counts the events that are made."""
    count: Counter[type] = Counter()
    for kind in KINDS:

        def init(self, *args, _kind=kind, _init=kind.__init__, **named):
            count[_kind] += 1
            _init(self, *args, **named)

        monkeypatch.setattr(kind, "__init__", init)
    return count


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("sampler", ["spread", "punt", "compressed"])
def test_no_event_is_made_that_nobody_wants(made, sampler, count):
    assert len(KINDS) == 10
    law = cp.families.path(24, target_seed=3)

    def heard(*listeners: Any) -> set[type]:
        made.clear()
        told = tell_all(*listeners)
        cp.sample(law.oracle(), sampler, count, seed=1, on_event=told, progress=False)
        return {*made}

    assert heard() == set()
    assert heard(Listener(lambda event: None, ())) == set()
    for kind in (Progress, Step, Finished):
        assert heard(Listener(lambda event: None, kind)) == {kind}
    assert heard(lambda event: None) == {Progress, Step, Finished}
    details = heard(Hearing(count - 1))
    assert {Opened, Replied, Drew, Charged, Closed} <= details
    assert not details & {Progress, Step, Finished}
    assert made[Opened] == made[Closed] == 1


def test_a_discovery_and_a_single_run_make_no_event_for_nobody(made):
    law = cp.families.path(24, target_seed=3)
    cp.discover(law.oracle())
    cp.samplers.PUNT()(cp.run.Run(law.oracle()), STREAMS)
    cp.samplers.PUNT()(cp.run.Run(law.oracle(), on_event=Hearing(3)), STREAMS)
    assert not made


def test_each_of_several_listeners_hears_what_it_wants(law):
    hearing, steps, everything = Hearing(2), [], []
    told = tell_all(None, tell_all(hearing, None), Listener(steps.append, Step), everything.append)
    assert (told.kinds, told.sequence) == ((Progress, Step, Finished), 2)
    batch = cp.sample(law.oracle(), "threshold", 3, seed=5, on_event=told, progress=False)
    assert [hearing.tokens[k] for k in range(law.length)] == batch.sequences[2].tolist()
    assert {*map(type, everything)} == {Progress, Step, Finished}
    assert steps == [event for event in everything if isinstance(event, Step)]
    finished = [event.batch for event in everything if isinstance(event, Finished)]
    assert sorted(one.results[0].sequence for one in finished) == [0, 1, 2]


def test_listeners_that_cannot_be_told_are_refused(law):
    with pytest.raises(ValueError, match=r"must follow one sequence, got \[0, 2\]"):
        tell_all(Hearing(2), Hearing(0))
    with pytest.raises(TypeError, match="on_event must be a callable, got 3"):
        cp.sample(law.oracle(), "threshold", on_event=3)
