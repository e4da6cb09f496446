"""Commits that are taken back: what changes, what is charged, what is drawn afterwards."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Readouts, Right
from counterprobe.run.gathered import Gathering
from counterprobe.samplers import WINO, ReMDM, Sampler
from counterprobe.states import fingerprint
from counterprobe.testing import CountingOracle

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)


def begun(oracle: cp.Oracle, **options) -> cp.Unmasking:
    run = cp.Unmasking(oracle, **options)
    run.begin(STREAMS)
    return run


def plain_rows(law, state, positions):
    return law.oracle().rows(np.asarray(state, dtype=np.int32)[None], Readouts.same(1, positions))


def test_masking_again_submits_nothing_and_what_was_paid_stays_paid(law):
    oracle = CountingOracle(law.oracle())
    run = begun(oracle)
    run.commit([0, 2])
    paid, asked = run.ledger, oracle.states
    kept = run.state[0]
    run.remask([2])
    assert (run.ledger, oracle.states) == (paid, asked)
    assert run.transcript.replay() == run.ledger
    assert run.state.tolist() == [kept] + [MASK] * (law.length - 1)
    assert run.residual.tolist() == list(range(1, law.length))
    assert run.round_of_position[:3].tolist() == [0, -2, -2]
    assert run.num_undone == 1
    assert run.rights_used == Right.REMASK


@pytest.mark.parametrize("keeping", [True, False])
def test_rows_after_masking_again_are_those_of_the_state(law, keeping):
    oracle = law.oracle() if keeping else CountingOracle(law.oracle())
    run = begun(oracle)
    generator = np.random.default_rng(3)
    for _ in range(12):
        batch = generator.permutation(run.residual)[: generator.integers(1, 3)]
        expected = plain_rows(law, run.state, batch)
        seen = []
        run.commit(batch, lambda positions, rows, seen=seen: seen.append(rows))
        assert (seen[0].masses == expected.masses).all()
        known = np.flatnonzero(run.state != MASK)
        run.remask(generator.permutation(known)[: generator.integers(1, len(known) + 1)])
        rows = run.probe(run.state, run.residual)
        assert (rows.masses == plain_rows(law, run.state, run.residual).masses).all()


def test_a_position_is_drawn_again_with_fresh_noise(law):
    run = begun(law.oracle())
    noise = STREAMS.commit_noise(law.length)
    everywhere = np.arange(law.length)
    for draw in range(6):
        rows = plain_rows(law, run.state, everywhere)
        assert (
            run.commit(everywhere).tolist() == rows.draw(noise.uniforms(everywhere, draw)).tolist()
        )
        run.remask(everywhere)
    drawn = [noise.uniforms(everywhere, k) for k in range(6)]
    assert len(np.unique(drawn)) == 6 * law.length


def test_candidates_end_when_the_history_goes_back(law):
    run = begun(law.oracle())
    run.commit([0])
    first = run.draft()
    run.remask([0])
    with pytest.raises(ValueError, match="needs candidates of the current history"):
        run.commit_candidates([1])
    again = run.draft()
    assert run.ledger.probes == 2  # rows of the other history are not taken over
    assert again.positions.tolist() == list(range(law.length))
    assert len(first.positions) == law.length - 1


@pytest.mark.parametrize("operation", ["remask", "leave_one_out"])
def test_what_may_not_be_masked_again_is_refused(law, operation):
    given = np.full(law.length, MASK)
    given[1] = 0
    run = begun(law.oracle(), given=given)
    run.commit([0, 2])
    ask = getattr(run, operation)
    before = run.ledger
    with pytest.raises(ValueError, match=f"{operation} needs .* 1 is given context"):
        ask([0, 1])
    with pytest.raises(ValueError, match=f"{operation} needs .* 3 is not committed"):
        ask([3])
    with pytest.raises(ValueError, match="must not name a position twice"):
        ask([0, 0])
    with pytest.raises(ValueError, match="non-empty list of positions"):
        ask([])
    with pytest.raises(ValueError, match=r"must lie in 0\.\."):
        ask([law.length])
    bare = begun(law.oracle(), rights=~Right.REMASK)
    bare.commit([0])
    with pytest.raises(ValueError, match=f"{operation} needs the right REMASK"):
        getattr(bare, operation)([0])
    assert run.ledger == before
    assert run.num_undone == bare.num_undone == 0


def test_nothing_is_masked_again_inside_an_open_stage(law):
    run = begun(law.oracle())
    run.commit([0])

    def select(residual, rows):
        run.remask([0])

    with pytest.raises(ValueError, match="inside an open stage"):
        run.commit_selected(select)


def test_leaving_one_out_reads_each_position_with_only_itself_masked(law):
    oracle = CountingOracle(law.oracle())
    run = begun(oracle)
    run.commit([0, 1, 3])
    paid = run.ledger
    rows = run.leave_one_out([3, 0])
    for k, position in enumerate([3, 0]):
        state = run.state
        state[position] = MASK
        assert (rows.take(np.array([k])).masses == plain_rows(law, state, [position]).masses).all()
    assert run.ledger == paid.charge(probes=2, depth=1, rows_read=2, stage_width=2)
    assert run.ledger.total == oracle.states
    assert run.rights_used == Right.REMASK
    assert (run.state != MASK).sum() == 3


@pytest.mark.parametrize("rights", [~Right.NONE, ~Right.SELECT_AFTER_REPLY])
def test_the_history_read_beside_them_is_not_submitted_again(law, rights):
    run, plain = begun(law.oracle(), rights=rights), begun(law.oracle())
    for one in (run, plain):
        one.commit([0, 1])
    paid = run.ledger
    alone = plain.leave_one_out([1, 0])
    beside = run.leave_one_out([1, 0], with_history=True)
    assert (beside.masses == alone.masses).all()
    seen = []

    def select(residual, rows):
        seen.append(rows)
        return residual[:2]

    positions, tokens = run.commit_selected(select)
    assert (seen[0].masses == plain_rows(law, plain.state, plain.residual).masses).all()
    assert (positions.tolist(), tokens.tolist()) == ([2, 3], plain.commit([2, 3]).tolist())
    wave = paid.charge(probes=3, depth=1, rows_read=law.length, stage_width=3)
    if Right.SELECT_AFTER_REPLY in rights:
        assert run.ledger == wave.charge(probes=-1, commits=1, selected_commits=1)
    else:
        assert run.ledger == wave.charge(commits=1, depth=1, rows_read=2, stage_width=1)
    assert run.transcript.replay() == run.ledger
    if law.length > 4:
        run.commit_selected(lambda residual, rows: residual[:1])  # known rows end with the history
        assert run.ledger.total > wave.total


# ----- Results --------------------------------------------------------------------------------


class Hesitant(Sampler):
    """Commits everything, takes half of it back, and commits that again."""

    name = "hesitant"
    summary = source = "test"

    @property
    def rights(self) -> Right:
        return Right.REMASK

    def unmask(self, run, decisions):
        residual = run.residual
        run.commit(residual)
        run.remask(residual[::2])
        run.commit(residual[::2])


def test_a_result_says_how_many_commits_were_undone_and_what_stood_when(law):
    given = np.full(law.length, MASK)
    given[0] = 0
    result = Hesitant()(cp.Unmasking(law.oracle(), given=given), STREAMS)
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


def test_files_keep_how_many_commits_were_undone(law, tmp_path):
    batch = cp.sample(law.oracle(), Hesitant(), 2, seed=STREAMS, progress=False)
    batch.save(tmp_path / "drawn.jsonl")
    loaded = cp.SampleBatch.load(tmp_path / "drawn.jsonl")
    assert [result.undone for result in loaded.results] == [(law.length + 1) // 2] * 2
    assert loaded.results[0].history.shape == (3, law.length)  # what stood in the end alone
    assert loaded.results[1].rights == Right.REMASK


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
    def work(seat):
        run = begun(seat, memory=seat)
        run.commit([0])
        return run.once("masks", lambda: run.remask([0]))

    with pytest.raises(cp.CounterprobeError, match="must not commit"):
        Gathering(law.oracle(), 2).run(2, work)


# ----- Traces ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [ReMDM(12, eta=0.8), WINO(0.0, 1.0), WINO(0.0, 1.0, confidence="candidate")],
    ids=str,
)
def test_a_trace_replays_to_the_tokens_of_a_run_that_went_back(forest_law, tmp_path, rule):
    with cp.trace.Recorder(tmp_path / "run.json") as recorder:
        batch = cp.sample(forest_law.oracle(), rule, seed=3, listener=recorder, progress=False)
    replayed = cp.trace.replay(cp.trace.load_trace(tmp_path / "run.json"))
    assert batch.results[0].undone > 0
    assert replayed.num_events["remask"] > 0
    assert replayed.tokens.tolist() == batch.sequences[0].tolist()
    assert (replayed.round_of_position == batch.results[0].round_of_position).all()
