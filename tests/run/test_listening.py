"""A listener hears everything in order, and changes nothing."""

from typing import Any

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.record import OracleIdentity
from counterprobe.run.transcript import Event, Note

STREAMS = cp.Streams(3, 4)


class Hearing:
    """Keeps the names of what it heard, and the ledgers."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.ledgers: list[cp.Ledger] = []
        self.tokens: dict[int, int] = {}
        self.rows_read = 0
        self.submissions = 0
        self.result: cp.SampleResult | None = None
        self.opening: Any = None

    def opened(self, opening: Any) -> None:
        self.heard.append("opened")
        self.opening = opening
        self.tokens = {k: int(t) for k, t in enumerate(opening.record.given) if t != cp.MASK}

    def announced(self, purpose: str, facts: dict[str, Any]) -> None:
        self.heard.append(f"announced {purpose}")

    def replied(self, states: Any, readouts: cp.Readouts, rows: cp.rows.Rows) -> None:
        assert len(rows) == len(readouts)
        assert (states[readouts.state_index, readouts.position] == cp.MASK).all()
        self.submissions += len(states)
        self.rows_read += len(rows)

    def settled(self, positions: Any, tokens: Any, rows: cp.rows.Rows | None) -> None:
        assert len(positions) == len(tokens)
        assert rows is None or len(rows) == len(tokens)
        self.tokens.update(zip(positions.tolist(), tokens.tolist(), strict=True))

    def charged(self, event: Event, ledger: cp.Ledger) -> None:
        self.heard.append(event.operation)
        self.ledgers.append(ledger)

    def noted(self, note: Note) -> None:
        self.heard.append(f"noted {note.name}")

    def closed(self, result: cp.SampleResult) -> None:
        self.heard.append("closed")
        self.result = result


def test_a_listener_hears_every_reply_commit_and_ledger(forest_law, sampler):
    law = forest_law
    told = sampler.informed_by(law)
    hearing = Hearing()
    result = told(cp.Unmasking(law.oracle(), listener=hearing), STREAMS)
    alone = told(cp.Unmasking(law.oracle()), STREAMS)
    assert result.ledger == alone.ledger == hearing.ledgers[-1]
    assert (result.state == alone.state).all()
    assert hearing.heard[0] == "opened" and hearing.heard[-1] == "closed"
    assert hearing.result is result
    assert hearing.submissions == result.ledger.total
    assert hearing.rows_read == result.ledger.rows_read
    assert hearing.tokens == {k: int(t) for k, t in enumerate(result.state)}


def test_the_opening_says_what_is_needed_to_draw_the_same_again(forest_law):
    hearing = Hearing()
    given = np.full(forest_law.length, cp.MASK)
    given[1] = 2
    noisy = cp.FrozenNoise(forest_law.oracle(), radius=0.01, seed=3)
    run = cp.Unmasking(noisy, given=given, sequence=7, temperature=0.5, listener=hearing)
    drawn = cp.samplers.RandomBalanced(3)(run, STREAMS)
    told, record = hearing.opening, hearing.opening.record
    assert (told.task, told.row_error) == ("sample", noisy.info.row_error)
    assert record.oracle == OracleIdentity(
        noisy.info.name, forest_law.length, forest_law.vocab_size, noisy.digest
    )
    again = cp.samplers.build_sampler(record.sampler, record.settings)(
        cp.Unmasking(
            noisy, given=record.given, sequence=told.sequence, temperature=record.temperature
        ),
        record.streams,
    )
    assert again.tokens.tolist() == drawn.tokens.tolist()
    assert again.settings == drawn.settings


def test_a_listener_is_told_that_a_discovery_draws_nothing():
    hearing = Hearing()
    cp.discover(cp.families.path(24, target_seed=3).oracle(), listener=hearing)
    assert (hearing.opening.record.sampler, hearing.opening.task) == ("discover", "discover")
    assert hearing.heard[0] == "opened" and hearing.heard[-1] == "closed"


def test_a_listener_raises_the_level_of_the_transcript_to_trace(law):
    run = cp.Unmasking(law.oracle(), listener=Hearing())
    assert run.transcript.level == cp.run.Level.TRACE
    full = cp.Unmasking(law.oracle(), listener=Hearing(), record=cp.run.Level.FULL)
    assert full.transcript.level == cp.run.Level.FULL


def test_what_comes_next_is_announced_before_it_is_charged(table_law):
    hearing = Hearing()
    run = cp.Unmasking(table_law.oracle(), listener=hearing)
    cp.samplers.PUNT()(run, STREAMS)
    first = hearing.heard[:8]
    assert first[:3] == ["opened", "announced draft", "probe"]
    assert first[3] == "noted candidates"
    assert "noted tests" in hearing.heard
    assert hearing.heard.index("announced test") < hearing.heard.index("noted tests")


@pytest.mark.parametrize("count", [1, 3])
def test_sample_lets_a_listener_hear_the_first_sequence_alone(law, count):
    hearing = Hearing()
    batch = cp.sample(law.oracle(), "sequential", count, seed=5, progress=False, listener=hearing)
    assert hearing.ledgers[-1] == batch.results[0].ledger
    assert [hearing.tokens[k] for k in range(law.length)] == batch.sequences[0].tolist()
    alone = cp.sample(law.oracle(), "sequential", count, seed=5, progress=False)
    assert (alone.sequences == batch.sequences).all()


def test_a_copied_transcript_has_no_listener(law):
    hearing = Hearing()
    result = cp.samplers.Sequential()(cp.Unmasking(law.oracle(), listener=hearing), STREAMS)
    assert result.transcript.listener is None
    heard = len(hearing.heard)
    result.transcript.note("afterwards")
    assert len(hearing.heard) == heard


def test_what_was_shared_is_heard_as_it_was_charged(forest_law):
    hearing = Hearing()
    source = cp.Unmasking(forest_law.oracle(), record=cp.run.Level.STRUCTURE)
    source.preprocess()
    source.transcript.note("found", edges=np.empty((0, 2)))
    taker = cp.Unmasking(forest_law.oracle(), listener=hearing)
    taker._door.adopt(source.transcript.entries)
    assert hearing.heard == ["preprocess", "noted found"]
    assert hearing.ledgers == [source.ledger]
