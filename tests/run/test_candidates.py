"""Candidates: drawn before the batch is chosen, charged once, reused when looked ahead."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Right
from counterprobe.run.drawing import CandidateBook

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)


def begun(oracle: cp.Oracle, **options) -> cp.Unmasking:
    run = cp.Unmasking(oracle, **options)
    run.begin(STREAMS)
    return run


def test_a_draft_is_a_probe_until_it_is_committed_from(law):
    run = begun(law.oracle())
    draft = run.draft()
    assert draft.positions.tolist() == list(range(law.length))
    assert len(draft.rows) == len(draft.tokens) == law.length
    assert run.ledger == cp.Ledger(probes=1, depth=1, rows_read=law.length, widest_stage=1)
    assert (run.state == MASK).all()
    tokens = run.commit_candidates([2, 0])
    assert tokens.tolist() == draft.tokens[[2, 0]].tolist()
    assert run.state[[0, 2]].tolist() == draft.tokens[[0, 2]].tolist()
    assert run.ledger == cp.Ledger(
        commits=1, depth=1, rows_read=law.length, widest_stage=1, selected_commits=1
    )
    assert run.rights_used == Right.COMMIT_CANDIDATES | Right.SELECT_AFTER_REPLY
    assert run.transcript.replay() == run.ledger


def test_without_selecting_after_the_reply_the_history_is_submitted_again(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle, rights=Right.COMMIT_CANDIDATES)
    draft = run.draft()
    assert run.commit_candidates([1]).tolist() == [draft.tokens[1]]
    assert run.ledger == cp.Ledger(
        probes=1, commits=1, depth=2, rows_read=law.length + 1, widest_stage=1
    )
    assert run.ledger.total == oracle.states
    assert run.rights_used == Right.COMMIT_CANDIDATES
    assert run.transcript.replay() == run.ledger


def test_candidates_come_from_the_rows_and_every_draft_has_fresh_noise(law):
    run = begun(law.oracle())
    everywhere = np.arange(law.length)
    noise = STREAMS.commit_noise(law.length)
    rows = cp.Unmasking(law.oracle()).preprocess()
    for draw in range(3):
        # A second draft at the same history reads nothing new.
        assert run.draft().tokens.tolist() == rows.draw(noise.uniforms(everywhere, draw)).tolist()
    assert run.ledger.total == 1
    run.commit_candidates([0])
    left = run.residual
    exact = law.oracle().rows(run.state[None], cp.Readouts.same(1, left))
    assert run.draft().tokens.tolist() == exact.draw(noise.uniforms(left, 3)).tolist()
    # A commit after drafts has noise that no candidate had.
    now = run.commit(left)
    assert now.tolist() == exact.draw(noise.uniforms(left, 4)).tolist()


def test_looking_ahead_is_one_stage_and_spares_the_next_submission(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle)
    draft = run.draft()
    replies = run.lookahead([[0], [1, 2], [3]])
    assert run.ledger.probes == 4
    assert run.ledger.depth == 2
    assert run.ledger.widest_stage == 3
    for batch, rows in zip([[0], [1, 2], [3]], replies, strict=True):
        state = draft.place(run.state, np.array(batch))
        left = np.flatnonzero(state == MASK)
        plain = law.oracle().rows(state[None], cp.Readouts.same(1, left))
        assert np.allclose(np.asarray(rows.dense()), np.asarray(plain.dense()), atol=1e-15)
    run.commit_candidates([2, 1])
    asked = oracle.states
    again = run.draft()
    assert oracle.states == asked  # the reply to [1, 2] serves
    assert np.array_equal(again.rows.masses, replies[1].masses)
    run.commit_candidates(again.positions)
    assert run.ledger.total == oracle.states == 4
    assert (run.ledger.probes, run.ledger.commits) == (2, 2)
    assert run.transcript.replay() == run.ledger


def test_a_batch_that_was_not_looked_at_is_submitted_anew(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle)
    run.draft()
    run.lookahead([[0], [1]])
    run.commit_candidates([0, 1])
    run.draft()
    assert oracle.states == run.ledger.total == 4
    run.lookahead([[2]])
    run.commit([2])  # drawn afresh: most likely another value than the candidate's
    run.draft()
    assert oracle.states == run.ledger.total


def test_probes_may_come_between_a_draft_and_its_commit(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle)
    draft = run.draft()
    run.probe(draft.place(run.state, np.array([0])), [1])
    run.commit_candidates([0])
    assert (run.ledger.probes, run.ledger.commits, run.ledger.depth) == (1, 1, 2)
    assert run.ledger.total == oracle.states


def test_candidates_need_their_right_and_a_draft(law, counted):
    oracle = counted(law.oracle())
    bare = begun(oracle, rights=Right.SELECT_AFTER_REPLY)
    with pytest.raises(ValueError, match="draft needs the right COMMIT_CANDIDATES"):
        bare.draft()
    run = begun(oracle)
    with pytest.raises(ValueError, match=r"commit_candidates needs candidates .* call draft\(\)"):
        run.commit_candidates([0])
    with pytest.raises(ValueError, match="lookahead needs candidates"):
        run.lookahead([[0]])
    assert oracle.calls == 0
    run.draft()
    run.commit_candidates([0])
    with pytest.raises(ValueError, match="needs candidates of the current history"):
        run.commit_candidates([1])
    with pytest.raises(ValueError, match="committed already"):
        run.draft()
        run.commit_candidates([0])
    with pytest.raises(ValueError, match="the run is complete"):
        run.commit_candidates(run.residual)
        run.draft()


def test_a_sampler_is_refused_a_run_without_its_right(law, counted):
    oracle = counted(law.oracle())
    with pytest.raises(ValueError, match="'punt' needs the right commit-candidates, which this"):
        cp.samplers.PUNT()(cp.Unmasking(oracle, rights=Right.NONE), STREAMS)
    assert oracle.calls == 0


# ----- Temperature ----------------------------------------------------------------------------


def test_temperature_changes_what_is_drawn_and_is_recorded(law):
    def draw(temperature: float) -> cp.SampleResult:
        run = cp.Unmasking(law.oracle(), temperature=temperature)
        return cp.samplers.Sequential()(run, STREAMS)

    usual = cp.samplers.Sequential()(cp.Unmasking(law.oracle()), STREAMS)
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


# ----- The book -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_a_book_knows_what_a_plain_list_of_all_that_was_looked_at_knows(seed):
    draw = np.random.default_rng([73, seed])
    book = CandidateBook()
    history = np.full(5, MASK, dtype=np.int32)
    count, current, known, ahead = 0, None, None, []
    for _ in range(60):
        step = str(draw.choice(["draft", "look ahead", "commit", "take back"]))
        residual = np.flatnonzero(history == MASK)
        if step == "draft" and len(residual):
            rows = cp.rows.DenseRows(draw.dirichlet(np.ones(3), len(residual)))
            drawn = cp.run.Candidates(residual, rows, draw.integers(3, size=len(residual)))
            assert book.add(drawn) is drawn
            count, current, known = count + 1, drawn, rows
        elif step == "look ahead" and len(residual) > 1:
            states = np.repeat(history[None], draw.integers(1, 4), axis=0)
            for state in states:
                state[draw.permutation(residual)[: draw.integers(1, len(residual))]] = 1
            readouts = cp.Readouts.every_masked(states)
            rows = cp.rows.DenseRows(draw.dirichlet(np.ones(3), len(readouts)))
            replies = book.look_ahead(states, readouts, rows)
            for k, reply in enumerate(replies):
                expected = rows.dense()[readouts.state_index == k]
                assert np.array_equal(reply.dense(), expected)
            ahead = list(zip(states.copy(), replies, strict=True))
        elif step in ("commit", "take back"):
            if step == "take back":
                history[draw.permutation(5)[:2]] = MASK
                book.take_back()
                count += 1
            else:
                if ahead and draw.random() < 0.7:
                    history = ahead[draw.integers(len(ahead))][0].copy()
                else:
                    history[draw.permutation(residual)[:1]] = 2
                book.move(history)
            found = [reply for state, reply in ahead if state.tolist() == history.tolist()]
            current, known, ahead = None, found[-1] if found else None, []
        assert (book.count, book.current, book.known) == (count, current, known)
        if current is None:
            with pytest.raises(ValueError, match="test needs candidates of the current history"):
                book.require("test")
        else:
            assert book.require("test") is current
