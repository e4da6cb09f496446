"""A finished run, cut loose from the live objects."""

import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run import Commit, Probe, Remask
from counterprobe.samplers import RandomBalanced, Sequential

STREAMS = cp.Streams(8, 9)


@pytest.fixture
def result(law) -> cp.SampleResult:
    given = [0] + [cp.MASK] * (law.length - 1)
    run = cp.run.Run(law.oracle(), given=given, sequence=2)
    return RandomBalanced(2)(run, STREAMS)


def test_the_history_shows_what_was_taken_back_where_it_stood(law):
    states = []

    @dataclass(frozen=True)
    class TakesBack(cp.samplers.Sampler):
        name: ClassVar[str] = "takes-back"
        needs: ClassVar[cp.Need] = cp.Need.REMASK

        def unmask(self, view, rng):
            states.append(view.state.tolist())
            for request in Commit([2, 0]), Remask([0]), Commit([1]), None:
                yield request or Commit(view.residual)
                states.append(view.state.tolist())

    found = TakesBack()(cp.run.Run(law.oracle()), STREAMS)
    assert found.undone == 1
    assert found.history.tolist() == states


def test_tokens_per_forward_counts_what_the_run_committed_and_paid(result, law):
    assert result.num_committed == law.length - 1  # one position was given
    assert result.tokens_per_forward == (law.length - 1) / result.ledger.evaluations
    assert result.summary()["tokens_per_forward"] == result.tokens_per_forward
    nothing = Sequential()(cp.run.Run(law.oracle(), given=result.tokens), STREAMS)
    assert np.isnan(nothing.tokens_per_forward)


def test_a_result_can_be_drawn_again_from_what_it_records(result, law):
    again = cp.samplers.build_sampler(result.sampler, result.settings)(
        cp.run.Run(law.oracle(), given=result.given, sequence=result.sequence), result.streams
    )
    assert again.tokens.tolist() == result.tokens.tolist()


def test_a_result_does_not_change_when_its_run_goes_on(law):
    run = cp.run.Run(law.oracle())
    result = Sequential()(run, STREAMS)
    run.do(Probe(run.state, []))
    assert run.ledger.probes == 1
    assert result.ledger.probes == 0
    assert result.transcript.replay() == result.ledger


def test_a_result_cannot_be_edited(result):
    with pytest.raises(FrozenInstanceError):
        result.tokens = None
    for array in (result.tokens, result.given, result.round_of_position):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_result_survives_pickling(result):
    again = pickle.loads(pickle.dumps(result))
    assert np.array_equal(again.tokens, result.tokens)
    assert again.summary() == result.summary()
    assert again.transcript.replay() == result.ledger


def test_a_result_is_shown_in_one_line():
    law = cp.families.path(4096, target_seed=196)
    result = RandomBalanced(8)(cp.run.Run(law.oracle()), STREAMS)
    text = repr(result)
    assert len(text) < 200
    assert text.startswith("SampleResult(random-balanced, 4096 positions: ")
    assert text.endswith(" ...; 8 evaluations in 8 stages, completed)")
    assert " ".join(str(token) for token in result.tokens[:10]) in text


@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_the_history_of_any_number_of_rounds_begins_with_the_context(law, rounds):
    given = [0] + [cp.MASK] * (law.length - 1)
    run = cp.run.Run(law.oracle(), given=given, max_evaluations=rounds)
    stopped = Sequential()(run, STREAMS)
    assert stopped.history.shape == (rounds + 1, law.length)
    for k, state in enumerate(stopped.history):
        assert np.flatnonzero(state != cp.MASK).tolist() == list(range(k + 1))
        assert state[: k + 1].tolist() == stopped.state[: k + 1].tolist()
    assert [batch.tolist() for batch in stopped.batches] == [[k + 1] for k in range(rounds)]
    assert stopped.num_committed == rounds
    expected = np.nan if rounds == 0 else 1.0
    assert stopped.tokens_per_forward == pytest.approx(expected, nan_ok=True)


def test_a_run_that_stopped_early_has_a_state_and_no_sequence_and_its_summary_says_so(law):
    run = cp.run.Run(law.oracle(), max_evaluations=1)
    stopped = Sequential()(run, STREAMS)
    said = stopped.summary()
    assert stopped.tokens is None and said["first_tokens"] is None
    assert (said["stop"], said["reason"]) == ("budget-spent", stopped.reason)
    assert "budget-spent" in repr(stopped) and stopped.reason in str(stopped)


def test_what_a_sampler_has_to_say_is_in_the_summary(result):
    assert result.notes == result.summary()["notes"] == []
    assert result.summary()["first_tokens"] == result.tokens[:10].tolist()

    @dataclass(frozen=True)
    class Telling:
        notes: tuple[str, ...] = ("two positions were committed singly",)

    told = replace(result, diagnostics=Telling())
    assert told.notes == told.summary()["notes"] == ["two positions were committed singly"]
