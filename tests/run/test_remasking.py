"""Commits that are taken back: what changes, what is charged, what is drawn afterwards."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Need, Readouts
from counterprobe.run import Commit, Draft, Keep, Probe, Remask, Share
from counterprobe.run.driver import Shared
from counterprobe.samplers import WINO, ReMDM, Sampler
from counterprobe.states import fingerprint
from counterprobe.testing import CountingOracle

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)


def begun(oracle: cp.Oracle, **options) -> cp.run.Run:
    run = cp.run.Run(oracle, **options)
    run.begin(STREAMS)
    return run


def plain_rows(law, state, positions):
    return law.oracle().rows(np.asarray(state, dtype=np.int32)[None], Readouts.same(1, positions))


def test_masking_again_submits_nothing_and_what_was_paid_stays_paid(law):
    oracle = CountingOracle(law.oracle())
    run = begun(oracle)
    run.do(Commit([0, 2]))
    paid, asked = run.ledger, oracle.states
    kept = run.state[0]
    run.do(Remask([2]))
    assert (run.ledger, oracle.states) == (paid, asked)
    assert run.transcript.replay() == run.ledger
    assert run.state.tolist() == [kept] + [MASK] * (law.length - 1)
    assert run.residual.tolist() == list(range(1, law.length))
    assert run.round_of_position[:3].tolist() == [0, -2, -2]
    assert run.num_undone == 1
    assert run.used == Need.REMASK


@pytest.mark.parametrize("keeping", [True, False])
def test_rows_after_masking_again_are_those_of_the_state(law, keeping):
    oracle = law.oracle() if keeping else CountingOracle(law.oracle())
    run = begun(oracle)
    generator = np.random.default_rng(3)
    for _ in range(12):
        batch = generator.permutation(run.residual)[: generator.integers(1, 3)]
        expected = plain_rows(law, run.state, batch)
        assert (run.do(Commit(batch)).rows.masses == expected.masses).all()
        known = np.flatnonzero(run.state != MASK)
        run.do(Remask(generator.permutation(known)[: generator.integers(1, len(known) + 1)]))
        rows = run.do(Probe(run.state, run.residual)).rows
        assert (rows.masses == plain_rows(law, run.state, run.residual).masses).all()


def test_a_position_is_drawn_again_with_fresh_noise(law):
    run = begun(law.oracle())
    noise = STREAMS.commit_noise(law.length)
    everywhere = np.arange(law.length)
    for draw in range(6):
        rows = plain_rows(law, run.state, everywhere)
        assert (
            run.do(Commit(everywhere)).tokens.tolist()
            == rows.draw(noise.uniforms(everywhere, draw)).tolist()
        )
        run.do(Remask(everywhere))
    drawn = [noise.uniforms(everywhere, k) for k in range(6)]
    assert len(np.unique(drawn)) == 6 * law.length


def test_candidates_end_when_the_history_goes_back(law):
    run = begun(law.oracle())
    run.do(Commit([0]))
    first = run.do(Draft())
    run.do(Remask([0]))
    with pytest.raises(ValueError, match="needs candidates of the current state"):
        run.do(Keep([1]))
    again = run.do(Draft())
    assert run.ledger.probes == 2  # rows of the other history are not taken over
    assert again.positions.tolist() == list(range(law.length))
    assert len(first.positions) == law.length - 1


def test_what_may_not_be_masked_again_is_refused(law):
    given = np.full(law.length, MASK)
    given[1] = 0
    run = begun(law.oracle(), given=given)
    run.do(Commit([0, 2]))
    before = run.ledger
    with pytest.raises(ValueError, match=r"Remask needs .* 1 is given context"):
        run.do(Remask([0, 1]))
    with pytest.raises(ValueError, match=r"Remask needs .* 3 is not committed"):
        run.do(Remask([3]))
    with pytest.raises(ValueError, match="must not name a position twice"):
        run.do(Remask([0, 0]))
    with pytest.raises(ValueError, match="non-empty list of positions"):
        run.do(Remask([]))
    with pytest.raises(ValueError, match=r"must lie in 0\.\."):
        run.do(Remask([law.length]))
    bare = begun(law.oracle(), allowed=~Need.REMASK)
    bare.do(Commit([0]))
    with pytest.raises(ValueError, match="Remask needs REMASK"):
        bare.do(Remask([0]))
    assert run.ledger == before
    assert run.num_undone == bare.num_undone == 0


def test_only_rules_that_mask_again_may_probe_with_committed_positions_masked(law):
    oracle = CountingOracle(law.oracle())
    run = begun(oracle)
    run.do(Commit([0, 1, 3]))
    paid = run.ledger
    states = np.repeat(run.state[None], 2, axis=0)
    states[[0, 1], [3, 0]] = MASK
    rows = run.do(Probe(states, Readouts.pairs([0, 1], [3, 0]))).rows
    for k, position in enumerate([3, 0]):
        plain = plain_rows(law, states[k], [position])
        assert (rows.take(np.array([k])).masses == plain.masses).all()
    assert run.ledger == paid + cp.Ledger(probes=2, stages=1, rows_read=2, widest_stage=2)
    assert run.ledger.evaluations == oracle.states
    assert run.used == Need.REMASK
    bare = begun(law.oracle(), allowed=~Need.REMASK)
    bare.do(Commit([0, 1, 3]))
    with pytest.raises(ValueError, match="must keep the history"):
        bare.do(Probe(states, [3]))
    changed = states.copy()
    changed[0, 0] = (changed[0, 0] + 1) % law.vocab_size
    with pytest.raises(ValueError, match="must keep the history"):
        run.do(Probe(changed, Readouts.pairs([0], [3])))


@pytest.mark.parametrize("allowed", [~Need.NONE, ~Need.SELECT])
def test_the_state_read_beside_others_is_not_submitted_again(law, allowed):
    run, plain = begun(law.oracle(), allowed=allowed), begun(law.oracle())
    for one in (run, plain):
        one.do(Commit([0, 1]))
    paid, left = run.ledger, run.residual
    states = np.repeat(run.state[None], 2, axis=0)
    states[0, 1] = MASK
    index = np.concatenate([[0], np.ones(len(left), dtype=int)])
    probed = run.do(Probe(states, Readouts.pairs(index, np.concatenate([[1], left]))))
    reading = probed.at(1)
    assert (reading.rows.masses == plain_rows(law, plain.state, left).masses).all()
    tokens = run.do(Commit(left[:2], reading)).tokens
    assert tokens.tolist() == plain.do(Commit(left[:2])).tokens.tolist()
    wave = paid + cp.Ledger(probes=2, stages=1, rows_read=1 + len(left), widest_stage=2)
    if Need.SELECT in allowed:
        assert run.ledger == wave + cp.Ledger(probes=-1, commits=1, selected_commits=1)
    else:
        assert run.ledger == wave + cp.Ledger(commits=1, stages=1, rows_read=2, widest_stage=1)
    assert run.transcript.replay() == run.ledger


# ----- Results --------------------------------------------------------------------------------


class Hesitant(Sampler):
    """Commits everything, takes half of it back, and commits that again."""

    name = "hesitant"
    summary = source = "test"

    @property
    def needs(self) -> Need:
        return Need.REMASK

    def unmask(self, view, rng):
        residual = view.residual
        yield Commit(residual)
        yield Remask(residual[::2])
        yield Commit(residual[::2])


def test_a_result_says_how_many_commits_were_undone_and_what_stood_when(law):
    given = np.full(law.length, MASK)
    given[0] = 0
    result = Hesitant()(cp.run.Run(law.oracle(), given=given), STREAMS)
    half = np.arange(1, law.length)[::2]
    assert result.undone == len(half) == result.summary()["undone"]
    assert result.history.shape == (4, law.length)
    first, full, back, last = result.history
    assert first.tolist() == given.tolist()
    assert (full != MASK).all()
    assert np.flatnonzero(back == MASK).tolist() == half.tolist()
    assert last.tolist() == result.tokens.tolist()
    assert full[back != MASK].tolist() == last[back != MASK].tolist()
    # Every commit was submitted at the state that the history shows before it.
    commits = [event for event in result.transcript.events if event.operation == "commit"]
    prints = [int(event.fingerprints[0]) for event in commits]
    assert prints == fingerprint(result.history[[0, 2]]).tolist()
    assert [batch.tolist() for batch in result.batches] == [
        np.setdiff1d(np.arange(1, law.length), half).tolist(),
        half.tolist(),
    ]


def test_results_count_the_commits_that_were_undone(law):
    batch = cp.sample(law.oracle(), Hesitant(), 2, seed=STREAMS, progress=False)
    assert [result.undone for result in batch.results] == [(law.length + 1) // 2] * 2
    assert batch.results[1].used == Need.REMASK


def test_scores_are_those_of_the_draw_that_stands(law):
    batch = cp.sample(law.oracle(), Hesitant(), 3, seed=STREAMS, progress=False, log_probs=True)
    for result, scores in zip(batch.results, batch.token_log_probs, strict=True):
        masked, again = result.history[0], result.history[2]
        for i in range(law.length):
            state = again if again[i] == MASK else masked
            row = plain_rows(law, state, [i])
            assert scores[i] == row.log_prob(result.tokens[[i]])[0]


# ----- Side by side ---------------------------------------------------------------------------


def test_what_is_computed_once_for_several_runs_must_not_mask_again(law):
    run = begun(law.oracle(), shared=Shared())
    run.do(Commit([0]))

    def mask():
        yield Remask([0])

    with pytest.raises(cp.CounterprobeError, match="must not draw nor commit"):
        run.do(Share("masks", mask()))


# ----- Traces ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [ReMDM(12, eta=0.8), WINO(0.0, 1.0), WINO(0.0, 1.0, confidence="candidate")],
    ids=str,
)
def test_a_trace_replays_to_the_tokens_of_a_run_that_went_back(forest_law, tmp_path, rule):
    with cp.trace.Recorder(tmp_path / "run.json") as recorder:
        batch = cp.sample(forest_law.oracle(), rule, seed=3, on_event=recorder, progress=False)
    replayed = cp.trace.replay(cp.trace.load_trace(tmp_path / "run.json"))
    assert batch.results[0].undone > 0
    assert replayed.num_events["remask"] > 0
    assert replayed.tokens.tolist() == batch.sequences[0].tolist()
    assert (replayed.round_of_position == batch.results[0].round_of_position).all()
