"""Candidates: drawn before the batch is chosen, charged once, reused when looked ahead."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Need
from counterprobe.run import Commit, Draft, Keep, Preprocess, Probe, Read, Remask, Share

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)


def begun(oracle: cp.Oracle, **options) -> cp.run.Run:
    run = cp.run.Run(oracle, **options)
    run.begin(STREAMS)
    return run


def test_a_draft_is_a_probe_until_it_is_committed_from(law):
    run = begun(law.oracle())
    draft = run.do(Draft())
    assert draft.positions.tolist() == list(range(law.length))
    assert len(draft.rows) == len(draft.tokens) == law.length
    assert run.ledger == cp.Ledger(probes=1, stages=1, rows_read=law.length, widest_stage=1)
    assert (run.state == MASK).all()
    tokens = run.do(Keep([2, 0]))
    assert tokens.tolist() == draft.tokens[[2, 0]].tolist()
    assert run.state[[0, 2]].tolist() == draft.tokens[[0, 2]].tolist()
    assert run.ledger == cp.Ledger(
        commits=1, stages=1, rows_read=law.length, widest_stage=1, selected_commits=1
    )
    assert run.used == Need.CANDIDATES | Need.SELECT
    assert run.transcript.replay() == run.ledger


def test_without_selecting_after_the_reply_the_history_is_submitted_again(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle, allowed=Need.CANDIDATES)
    draft = run.do(Draft())
    assert run.do(Keep([1])).tolist() == [draft.tokens[1]]
    assert run.ledger == cp.Ledger(
        probes=1, commits=1, stages=2, rows_read=law.length + 1, widest_stage=1
    )
    assert run.ledger.evaluations == oracle.states
    assert run.used == Need.CANDIDATES
    assert run.transcript.replay() == run.ledger


def test_candidates_come_from_the_rows_and_every_draft_has_fresh_noise(law):
    run = begun(law.oracle())
    everywhere = np.arange(law.length)
    noise = STREAMS.commit_noise(law.length)
    rows = cp.run.Run(law.oracle()).do(cp.run.Preprocess())
    drawn = None
    for draw in range(3):
        # A second draft from the same reading submits nothing.
        drawn = run.do(Draft(drawn))
        assert drawn.tokens.tolist() == rows.draw(noise.uniforms(everywhere, draw)).tolist()
    assert run.ledger.evaluations == 1
    run.do(Keep([0]))
    left = run.residual
    exact = law.oracle().rows(run.state[None], cp.Readouts.same(1, left))
    assert run.do(Draft()).tokens.tolist() == exact.draw(noise.uniforms(left, 3)).tolist()
    # A commit after drafts has noise that no candidate had.
    now = run.do(Commit(left)).tokens
    assert now.tolist() == exact.draw(noise.uniforms(left, 4)).tolist()


def look_ahead(run: cp.run.Run, draft: cp.run.Drafted, batches: list[list[int]]):
    states = np.stack([draft.place(np.array(batch)) for batch in batches])
    return run.do(Probe(states, cp.Readouts.every_masked(states)))


def test_a_probe_of_the_next_state_spares_its_evaluation(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle)
    draft = run.do(Draft())
    ahead = look_ahead(run, draft, [[0], [1, 2], [3]])
    assert run.ledger.probes == 4
    assert run.ledger.stages == 2
    assert run.ledger.widest_stage == 3
    for k, batch in enumerate([[0], [1, 2], [3]]):
        state = draft.place(np.array(batch))
        left = np.flatnonzero(state == MASK)
        plain = law.oracle().rows(state[None], cp.Readouts.same(1, left))
        assert ahead.at(k).positions.tolist() == left.tolist()
        assert np.allclose(np.asarray(ahead.at(k).rows.dense()), plain.dense(), atol=1e-15)
    run.do(Keep([2, 1]))
    again = run.do(Draft(ahead.at(1)))
    assert np.array_equal(again.rows.masses, ahead.at(1).rows.masses)
    run.do(Keep(again.positions))
    assert run.ledger.evaluations == oracle.states == 4
    assert (run.ledger.probes, run.ledger.commits) == (2, 2)
    assert run.transcript.replay() == run.ledger


def test_rows_of_another_state_or_spent_ones_are_refused(law):
    run = begun(law.oracle())
    draft = run.do(Draft())
    ahead = look_ahead(run, draft, [[0], [1]])
    run.do(Keep([0, 1]))
    for reading in (ahead.at(0), ahead.at(1), draft):
        with pytest.raises(ValueError, match="read at another state"):
            run.do(Draft(reading))
        with pytest.raises(ValueError, match="read at another state"):
            run.do(Commit([2], reading))
    reading = run.do(Read())
    run.do(Commit([2], reading))
    run.do(Remask([2]))
    with pytest.raises(ValueError, match="a commit was made from that probe already"):
        run.do(Commit([2], reading))
    partial = run.do(Probe(run.state, [2])).at(0)
    with pytest.raises(ValueError, match="every residual position"):
        run.do(Draft(partial))
    with pytest.raises(ValueError, match="was not read"):
        run.do(Commit([3], partial))


def test_rows_belong_to_their_positions_in_whatever_order_they_were_read(law):
    run = begun(law.oracle())
    run.do(Commit([0]))
    probed = run.do(Probe(run.state, [3, 1, 2]))
    reading = probed.at(0)
    assert reading.positions.tolist() == [1, 2, 3]
    exact = law.oracle().rows(run.state[None], cp.Readouts.same(1, [2, 1]))
    drawn = run.do(Commit([2, 1], reading, purpose="chosen"))
    assert np.array_equal(drawn.rows.masses, exact.masses)
    assert (run.ledger.probes, run.ledger.commits) == (0, 2)


def test_only_what_was_charged_as_a_probe_becomes_a_commit(law):
    run = begun(law.oracle())
    rows = run.do(Preprocess())
    own = cp.run.Reading(run.state, run.residual, rows)
    with pytest.raises(ValueError, match="the current state was not probed"):
        run.do(Commit([0], own))
    assert run.ledger == cp.Ledger(preprocessing=1, stages=1, rows_read=law.length, widest_stage=1)


@dataclass(frozen=True)
class Shares(cp.samplers.Sampler):
    """Commits from rows that all sequences of a seed have read once."""

    name: ClassVar[str] = "shares"
    needs: ClassVar[Need] = Need.SELECT

    def unmask(self, view, rng):
        def look():
            return (yield Probe(view.state, view.residual))

        probed = yield Share("look", look())
        yield Commit(view.residual, probed.at(0))


@pytest.mark.parametrize("count", [1, 3])
def test_rows_that_sequences_share_become_a_commit_of_none(law, count):
    with pytest.raises(ValueError, match="cannot become a commit of each"):
        cp.sample(law.oracle(), Shares(), count, seed=STREAMS, progress=False)


def test_a_reading_that_is_not_committed_from_stays_a_probe(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle)
    reading = run.do(Read())
    run.do(Commit(reading.positions[:1]))
    assert (run.ledger.probes, run.ledger.commits, run.ledger.stages) == (1, 1, 2)
    assert run.ledger.evaluations == oracle.states == 2
    assert run.used == Need.NONE


def test_probes_may_come_between_a_draft_and_its_commit(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle)
    draft = run.do(Draft())
    run.do(Probe(draft.place(np.array([0])), [1]))
    run.do(Keep([0]))
    assert (run.ledger.probes, run.ledger.commits, run.ledger.stages) == (1, 1, 2)
    assert run.ledger.evaluations == oracle.states


def test_candidates_need_their_right_and_a_draft(law, counted):
    oracle = counted(law.oracle())
    bare = begun(oracle, allowed=Need.SELECT)
    with pytest.raises(ValueError, match="Draft needs CANDIDATES"):
        bare.do(Draft())
    run = begun(oracle)
    with pytest.raises(ValueError, match=r"Keep needs candidates .* yield Draft\(\)"):
        run.do(Keep([0]))
    assert oracle.calls == 0
    run.do(Draft())
    run.do(Keep([0]))
    with pytest.raises(ValueError, match="needs candidates of the current state"):
        run.do(Keep([1]))
    with pytest.raises(ValueError, match="committed already"):
        run.do(Draft())
        run.do(Keep([0]))
    with pytest.raises(ValueError, match="the run is complete"):
        run.do(Keep(run.residual))
        run.do(Draft())


def test_a_sampler_is_refused_a_run_without_its_right(law, counted):
    oracle = counted(law.oracle())
    with pytest.raises(ValueError, match="'punt' needs candidates, which this"):
        cp.samplers.PUNT()(cp.run.Run(oracle, allowed=Need.NONE), STREAMS)
    assert oracle.calls == 0


# ----- Temperature ----------------------------------------------------------------------------


def test_temperature_changes_what_is_drawn_and_is_recorded(law):
    def draw(temperature: float) -> cp.SampleResult:
        run = cp.run.Run(law.oracle(), temperature=temperature)
        return cp.samplers.Sequential()(run, STREAMS)

    usual = cp.samplers.Sequential()(cp.run.Run(law.oracle()), STREAMS)
    assert draw(1.0).tokens.tolist() == usual.tokens.tolist()
    cold = draw(0.0)
    state = np.full(law.length, MASK, dtype=np.int32)
    for i in range(law.length):
        rows = law.oracle().rows(state[None], cp.Readouts.same(1, [i]))
        assert cold.tokens[i] == rows.top()[0][0]
        state[i] = cold.tokens[i]
    assert cold.temperature == cold.summary()["temperature"] == 0
    assert np.isnan(cp.evaluation.batch_kl(law, cold).value)
    assert draw(0.5).ledger == usual.ledger
