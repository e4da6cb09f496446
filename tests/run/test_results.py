"""A finished run, cut loose from the live objects."""

import json
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.results import versions
from counterprobe.run.transcript import Transcript
from counterprobe.samplers import RandomBalanced, Sequential

STREAMS = cp.Streams(8, 9)


@pytest.fixture
def result(law) -> cp.SampleResult:
    given = [0] + [cp.MASK] * (law.length - 1)
    run = cp.Unmasking(law.oracle(), given=given, sequence=2)
    return RandomBalanced(2)(run, STREAMS)


def test_batches_are_the_commits_in_order_with_positions_increasing(result):
    commits = [e for e in result.transcript.events if e.operation == "commit"]
    assert len(result.batches) == 2
    for batch, event in zip(result.batches, commits, strict=True):
        assert batch.tolist() == sorted(event.positions)
    assert result.round_of_position[0] == -1
    for k, batch in enumerate(result.batches):
        assert (result.round_of_position[batch] == k).all()


def test_the_history_goes_from_the_context_to_the_end_one_batch_at_a_time(result):
    state = result.given.copy()
    expected = [state.tolist()]
    for batch in result.batches:
        state[batch] = result.state[batch]
        expected.append(state.tolist())
    assert result.history.tolist() == expected
    assert result.history.dtype == np.int32


def test_the_history_shows_what_was_taken_back_where_it_stood(law):
    states = []

    @dataclass(frozen=True)
    class TakesBack(cp.samplers.Sampler):
        name: ClassVar[str] = "takes-back"
        rights: ClassVar[cp.Right] = cp.Right.REMASK

        def unmask(self, run, decisions):
            states.append(run.state.tolist())
            for act in (lambda: run.commit([2, 0]), lambda: run.remask([0]),
                        lambda: run.commit([1]), lambda: run.commit(run.residual)):  # fmt: skip
                act()
                states.append(run.state.tolist())

    found = TakesBack()(cp.Unmasking(law.oracle()), STREAMS)
    assert found.undone == 1
    assert found.history.tolist() == states


def test_tokens_per_forward_counts_what_the_run_committed_and_paid(result, law):
    assert result.num_committed == law.length - 1  # one position was given
    assert result.tokens_per_forward == (law.length - 1) / result.ledger.total
    assert result.summary()["tokens_per_forward"] == result.tokens_per_forward
    nothing = Sequential()(cp.Unmasking(law.oracle(), given=result.tokens), STREAMS)
    assert np.isnan(nothing.tokens_per_forward)


def test_a_result_says_where_it_came_from(result, law):
    assert result.sampler == "random-balanced"
    assert result.settings == {"batches": 2, "larger_first": True}
    assert result.streams == STREAMS
    assert result.sequence == 2
    assert result.oracle_name == law.oracle().name
    assert result.versions == versions()
    assert result.versions["counterprobe"] == cp.__version__
    assert set(result.versions) == {"counterprobe", "streams", "numpy", "python"}
    assert result.seconds >= 0
    assert result.reason == cp.StopReason.COMPLETED.value


def test_a_result_can_be_drawn_again_from_what_it_records(result, law):
    again = cp.samplers.build_sampler(result.sampler, result.settings)(
        cp.Unmasking(law.oracle(), given=result.given, sequence=result.sequence), result.streams
    )
    assert again.tokens.tolist() == result.tokens.tolist()


def test_a_summary_is_plain_values(result):
    summary = json.loads(json.dumps(result.summary()))
    assert summary["sampler"] == "random-balanced"
    assert summary["settings"] == {"batches": 2, "larger_first": True}
    assert summary["total"] == summary["commits"] == 2
    assert (summary["decision_seed"], summary["commit_seed"], summary["sequence"]) == (8, 9, 2)
    assert summary["stop"] == "completed"
    assert summary["rights"] == []
    assert "tokens" not in summary
    assert "transcript" not in summary


def test_rights_used_are_named_in_the_summary(law):
    result = Sequential("entropy")(cp.Unmasking(law.oracle()), STREAMS)
    assert result.summary()["rights"] == ["select-after-reply"]


def test_a_result_does_not_change_when_its_run_goes_on(law):
    run = cp.Unmasking(law.oracle())
    result = Sequential()(run, STREAMS)
    run.probe(run.state, [])
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


def test_stop_reasons_have_short_names_and_say_what_to_try():
    names = [str(reason) for reason in cp.StopReason]
    assert names == ["completed", "infeasible", "budget-spent"]
    assert "use an oracle with smaller row error" in cp.StopReason.INFEASIBLE.value
    assert "choose a sampler that needs fewer" in cp.StopReason.BUDGET_SPENT.value


def test_a_result_is_shown_in_one_line():
    law = cp.families.path(4096, target_seed=196)
    result = RandomBalanced(8)(cp.Unmasking(law.oracle()), STREAMS)
    text = repr(result)
    assert len(text) < 200
    assert text.startswith("SampleResult(random-balanced, 4096 positions: ")
    assert text.endswith(" ...; 8 submissions, depth 8, completed)")
    assert " ".join(str(token) for token in result.tokens[:10]) in text


def test_a_summary_shows_the_first_tokens(result, law):
    assert result.summary()["first_tokens"] == result.tokens[:10].tolist()
    run = cp.Unmasking(law.oracle(), max_submissions=1)
    stopped = Sequential()(run, STREAMS)
    assert stopped.summary()["first_tokens"] is None
    assert stopped.summary()["stop"] == "budget-spent"
    assert repr(stopped).count("_") == law.length - 1


@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_the_history_of_any_number_of_rounds_begins_with_the_context(law, rounds):
    given = [0] + [cp.MASK] * (law.length - 1)
    run = cp.Unmasking(law.oracle(), given=given, max_submissions=rounds)
    stopped = Sequential()(run, STREAMS)
    assert stopped.history.shape == (rounds + 1, law.length)
    for k, state in enumerate(stopped.history):
        assert np.flatnonzero(state != cp.MASK).tolist() == list(range(k + 1))
        assert state[: k + 1].tolist() == stopped.state[: k + 1].tolist()
    assert [batch.tolist() for batch in stopped.batches] == [[k + 1] for k in range(rounds)]
    assert stopped.num_committed == rounds
    expected = np.nan if rounds == 0 else 1.0
    assert stopped.tokens_per_forward == pytest.approx(expected, nan_ok=True)


def test_a_result_without_its_transcript_shows_what_stood_in_the_end(result):
    read = replace(result, undone=2, transcript=Transcript())
    assert read.history.tolist() == result.history.tolist()
    assert len(read.history) == 3
