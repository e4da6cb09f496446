"""The one door: what it charges, what it forbids, and what survives an error."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Need, Readouts
from counterprobe.radii import RowRadii
from counterprobe.run import Commit, Draft, Keep, Preprocess, Probe, Read, Remask, Share, Stream
from counterprobe.run.driver import Shared
from counterprobe.run.events import Announced, Charged, Drew, Replied
from counterprobe.run.transcript import Note
from counterprobe.samplers import Packed, RandomBalanced, Sequential
from counterprobe.states import fingerprint
from selecting import commit_selected

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)


def begun(oracle: cp.Oracle, **options) -> cp.run.Run:
    run = cp.run.Run(oracle, **options)
    run.begin(STREAMS)
    return run


@dataclass
class ScriptedOracle:
    """Uniform rows over two tokens, except for what the script puts at a call."""

    script: dict[int, Callable[[np.ndarray], object]] = field(default_factory=dict)
    length: int = 4
    vocab_size: int = 2
    row_error: float = 0.0
    trusted: bool = False
    calls: int = 0
    name: str = "scripted"

    def rows(self, states, readouts):
        good = np.full((len(readouts), 2), 0.5)
        reply = self.script.get(self.calls, cp.rows.DenseRows)(good)
        self.calls += 1
        return reply


# ----- Counting -----------------------------------------------------------------------------


def test_the_counting_example_of_the_paper(law):
    # One preprocessing readout, two probes of the same state, one commit of all N positions.
    run = begun(law.oracle())
    run.do(Preprocess())
    probe = run.state
    probe[0] = 1
    run.do(Probe(probe, [1, 2]))
    run.do(Probe(probe, [1, 2]))
    run.do(Commit(np.arange(law.length)))
    assert run.ledger.preprocessing == 1
    assert run.ledger.probes == 2
    assert run.ledger.commits == 1
    assert run.ledger.noncommit == 3
    assert run.ledger.evaluations == 4
    assert run.ledger.stages == 4
    assert run.is_complete
    assert run.round_of_position.tolist() == [0] * law.length  # rounds count commits alone


def test_a_second_all_mask_readout_is_a_probe(law):
    run = begun(law.oracle())
    run.do(Probe(run.state, run.residual))
    assert run.ledger.preprocessing == 0
    assert run.ledger.probes == 1
    first = run.do(Preprocess())
    again = run.do(Probe(run.state, run.residual)).rows
    assert (first.masses == again.masses).all()
    assert (run.ledger.preprocessing, run.ledger.probes) == (1, 2)


def test_a_selected_commit_is_one_evaluation_with_the_right_and_two_without(law):
    def last(residual, rows):
        assert len(rows) == len(residual)
        return residual[-1:]

    run = begun(law.oracle())
    positions, tokens = commit_selected(run, last)
    assert run.ledger == cp.Ledger(
        commits=1, stages=1, rows_read=law.length, widest_stage=1, selected_commits=1
    )
    assert run.used == Need.SELECT
    bare = begun(law.oracle(), allowed=Need.VERIFY)
    assert commit_selected(bare, last) == (positions, tokens)
    assert bare.ledger == cp.Ledger(
        probes=1, commits=1, stages=2, rows_read=law.length + 1, widest_stage=1
    )
    assert bare.used == Need.NONE
    assert bare.allowed == Need.VERIFY
    assert positions.tolist() == [law.length - 1]


@pytest.mark.parametrize("has_read", [False, True])
@pytest.mark.parametrize("hands_in", [False, True])
def test_a_current_state_that_was_probed_is_paid_twice_unless_the_commit_hands_it_in(
    law, counted, has_read, hands_in
):
    oracle = counted(law.oracle())
    run = begun(oracle)
    reading = run.do(Read()) if has_read else run.do(Probe(run.state, run.residual)).at(0)
    assert (run.ledger.probes, run.ledger.commits) == (1, 0)
    run.do(Commit([0], reading if hands_in else None))
    assert (run.ledger.probes, run.ledger.commits) == ((0, 1) if hands_in else (1, 1))
    assert run.ledger.evaluations == run.ledger.stages == oracle.states == 2 - hands_in
    assert run.used == (Need.SELECT if hands_in else Need.NONE)


# ----- Commits ------------------------------------------------------------------------------


def test_a_commit_draws_from_the_rows_of_the_history(law):
    run = begun(law.oracle())
    uniforms = STREAMS.commit_noise(law.length)
    for batch in ([2], [0, 3], [1]):
        rows = law.oracle().rows(run.state[None], Readouts.same(1, batch))
        expected = rows.draw(uniforms.uniforms(np.array(batch)))
        tokens = run.do(Commit(batch)).tokens
        assert tokens.tolist() == expected.tolist()
        assert run.state[batch].tolist() == expected.tolist()
    assert run.round_of_position[:4].tolist() == [1, 2, 0, 1]
    assert run.round_of_position[4:].tolist() == [-2] * (law.length - 4)


def test_committed_tokens_never_change(law):
    run = begun(law.oracle())
    known: dict[int, int] = {}
    for position in np.random.default_rng(0).permutation(law.length):
        known[int(position)] = int(run.do(Commit([position])).tokens[0])
        assert {i: int(t) for i, t in enumerate(run.state) if t != MASK} == known
    assert run.is_complete
    assert len(run.residual) == 0


def test_what_a_run_hands_out_is_a_copy(law):
    run = begun(law.oracle())
    run.state[:] = 0
    run.round_of_position[:] = 5
    run.residual[:] = 0
    assert (run.state == MASK).all()
    assert (run.round_of_position == -2).all()
    assert run.residual.tolist() == list(range(law.length))


@pytest.mark.parametrize(
    "sampler", [Sequential("entropy"), RandomBalanced(3), Packed(shared_by=1000)]
)
def test_work_that_is_kept_and_the_plain_oracle_give_the_same_bits(sampler, counted):
    target = cp.families.random_forest(40, target_seed=3)
    for allowed in (~Need.NONE, Need.NONE):
        read: tuple[list, list] = [], []
        followed, hidden = (
            cp.run.Run(oracle, allowed=allowed, on_event=cp.run.Listener(told.append, (), 0))
            for oracle, told in zip((target.oracle(), counted(target.oracle())), read, strict=True)
        )
        one, other = sampler(followed, STREAMS), sampler(hidden, STREAMS)
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.ledger == other.ledger
        for left, right in zip(one.transcript.events, other.transcript.events, strict=True):
            assert (left.fingerprints == right.fingerprints).all()
        rows = [[told.rows for told in one if isinstance(told, Replied)] for one in read]
        assert rows[0]
        for a, b in zip(*rows, strict=True):
            assert np.array_equal(a.masses, b.masses)
            assert np.array_equal(a.positions, b.positions)


def test_work_kept_beside_probes_and_context_gives_the_same_bits(counted):
    target = cp.families.path(30, target_seed=1)
    given = np.full(30, MASK)
    given[[3, 17]] = [0, 5]
    runs = [begun(oracle, given=given) for oracle in (target.oracle(), counted(target.oracle()))]
    for run in runs:
        run.do(Preprocess())
        run.do(Commit([0, 8]))
        run.do(Probe(run.state, [1]))
        commit_selected(run, lambda residual, rows: residual[::3])
        run.do(Commit(run.residual))
    assert runs[0].state.tolist() == runs[1].state.tolist()
    assert runs[0].state[[3, 17]].tolist() == [0, 5]


# ----- Stages -------------------------------------------------------------------------------


def test_a_stage_streams_and_is_one_stage(uniform_oracle):
    log: list[tuple[str, int]] = []

    def function(states):
        log.append(("ask", int(states[0, 0])))
        return np.full((*states.shape, 4), 0.25)

    def requests() -> Iterator[Probe]:
        for k in range(4):
            log.append(("make", k))
            answer = yield Probe(np.full((k + 1, 3), [k, MASK, MASK]), readouts(k + 1), label=k)
            assert answer is None  # a request is never shown a reply

    def readouts(count: int) -> Readouts:
        return Readouts.same(count, [1, 2])

    def consume(request: Probe, rows: cp.rows.Rows) -> None:
        log.append(("reduce", request.label))
        assert len(rows) == 2 * len(request.states)
        assert run.ledger == cp.Ledger()  # charged when the stage closes

    run = cp.run.Run(cp.CallableOracle(function, 3, 4))
    run.do(Stream(requests(), consume))
    assert log == [(step, k) for k in range(4) for step in ("make", "ask", "reduce")]
    assert run.ledger == cp.Ledger(probes=10, stages=1, rows_read=20, widest_stage=10)


def test_a_consumer_that_fails_leaves_what_was_submitted_charged(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle)
    made = []

    def requests() -> Iterator[Probe]:
        for k in range(5):
            made.append(k)
            yield Probe(np.repeat(run.state[None], 2, axis=0), Readouts.same(2, [0]))

    def consume(request: Probe, rows: cp.rows.Rows) -> None:
        if len(made) == 3:
            raise RuntimeError("the consumer failed")

    with pytest.raises(RuntimeError, match="the consumer failed"):
        run.do(Stream(requests(), consume))
    assert made == [0, 1, 2]
    assert run.ledger == cp.Ledger(probes=6, stages=1, rows_read=6, widest_stage=6)
    assert run.ledger.evaluations == oracle.states
    assert run.transcript.replay() == run.ledger
    run.do(Commit([0]))  # and the run can go on


@pytest.mark.parametrize("broken", ["generator", "request", "reply"])
def test_a_stage_that_breaks_half_way_keeps_its_earlier_charges(broken):
    oracle = ScriptedOracle(
        {2: lambda good: cp.rows.DenseRows(2 * good)} if broken == "reply" else {}
    )
    run = begun(oracle)

    def requests() -> Iterator[Probe]:
        good = Probe(run.state[None], Readouts.same(1, [0]))
        yield good
        yield good
        if broken == "generator":
            raise RuntimeError
        yield Probe(run.state[None], Readouts.same(1, [9])) if broken == "request" else good

    errors = {"generator": RuntimeError, "request": ValueError, "reply": cp.OracleError}
    with pytest.raises(errors[broken]):
        run.do(Stream(requests(), lambda request, rows: None))
    assert run.ledger.probes == 2
    assert run.ledger.stages == 1
    assert run.transcript.replay() == run.ledger


def test_a_selection_that_fails_was_a_probe(law, counted):
    oracle = counted(law.oracle())
    run = begun(oracle)
    run.do(Commit([0]))

    def reads(then):
        reading = yield Read()
        yield then(reading)

    def fail(reading):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run.alone(run.follow(reads(fail)))
    with pytest.raises(ValueError, match="non-empty"):
        run.alone(run.follow(reads(lambda reading: Commit([], reading))))
    with pytest.raises(ValueError, match="position 0 is committed already"):
        run.alone(run.follow(reads(lambda reading: Commit([0], reading))))
    assert (run.ledger.commits, run.ledger.probes) == (1, 3)
    assert run.ledger.evaluations == oracle.states
    assert run.ledger.rows_read == oracle.rows_read
    assert run.transcript.replay() == run.ledger
    assert run.used == Need.NONE


# ----- What is forbidden --------------------------------------------------------------------


def test_preprocessing_happens_once_and_first(law):
    run = begun(law.oracle())
    run.do(Preprocess())
    with pytest.raises(
        ValueError, match=r"already preprocessed; .* use Probe\(view.state, view.residual"
    ):
        run.do(Preprocess())
    late = begun(law.oracle())
    late.do(Commit([0]))
    with pytest.raises(ValueError, match="must come before the first commit"):
        late.do(Preprocess())
    assert run.ledger.preprocessing == 1
    assert late.ledger.preprocessing == 0


@pytest.mark.parametrize("value", [MASK, 0])
def test_a_probe_must_keep_the_history(law, value):
    run = begun(law.oracle(), given=[1] + [MASK] * (law.length - 1))
    token = int(run.do(Commit([2])).tokens[0])
    changed = np.repeat(run.state[None], 2, axis=0)
    changed[1, 0] = value
    with pytest.raises(ValueError, match=f"position 0 is committed to 1 but state 1 has {value}"):
        run.do(Probe(changed, [3]))
    changed = run.state
    changed[2] = (token + 1) % law.vocab_size
    with pytest.raises(ValueError, match=f"position 2 is committed to {token} but state 0 has"):
        run.do(Probe(changed, [3]))
    assert run.ledger.probes == 0


@pytest.mark.parametrize(
    ("state", "readouts", "message"),
    [
        ([0, MASK, MASK], [0], "position 0 is revealed in state 0"),
        ([MASK] * 3, [3], r"readout positions must lie in 0\.\.2"),
        ([MASK] * 3, [-1], r"readout positions must lie in 0\.\.2"),
        ([MASK] * 3, Readouts.pairs([1], [0]), r"state indices must lie in 0\.\.0"),
        ([MASK] * 3, [True, False, False], "flat list of integers"),
        ([4, MASK, MASK], [1], r"tokens 0\.\.3 or MASK \(-1\), got 4 in state 0 at position 0"),
        ([-2, MASK, MASK], [1], "got -2 in state 0 at position 0"),
        ([MASK] * 2, [1], r"shape \(B, 3\) or \(3,\), got \(2,\)"),
        ([0.0] * 3, [1], "must hold integers"),
    ],
)
def test_a_bad_probe_is_refused_before_it_is_submitted(
    uniform_oracle, counted, state, readouts, message
):
    oracle = counted(uniform_oracle())
    run = begun(oracle)
    with pytest.raises(ValueError, match=message):
        run.do(Probe(state, readouts))
    assert oracle.calls == 0
    assert run.ledger == cp.Ledger()


@pytest.mark.parametrize("batch", [[], [0, 0], [1], [3], [-1], [0.0], [True, False, True], [[0]]])
def test_a_bad_batch_is_refused_before_it_is_submitted(uniform_oracle, counted, batch):
    oracle = counted(uniform_oracle())
    run = begun(oracle, given=[MASK, 2, MASK])
    with pytest.raises(ValueError, match=r"batch|position 1 is committed already"):
        run.do(Commit(batch))
    assert oracle.calls == 0
    assert run.state.tolist() == [MASK, 2, MASK]


# ----- Bad replies --------------------------------------------------------------------------


def spoil(values: list[float]) -> Callable[[np.ndarray], cp.rows.DenseRows]:
    def reply(good: np.ndarray) -> cp.rows.DenseRows:
        good[-1] = values
        return cp.rows.DenseRows(good)

    return reply


BAD_REPLIES: dict[str, tuple[Callable[[np.ndarray], object], str]] = {
    "nan": (spoil([np.nan, 0.5]), "state 0, position 2 holds a value that is not finite"),
    "negative": (spoil([-0.5, 1.5]), "state 0, position 2 holds a negative probability -0.5"),
    "unnormalised": (spoil([1.0, 1.0]), "state 0, position 2 sums to 2 instead of 1"),
    "too few rows": (lambda good: cp.rows.DenseRows(good[1:]), "2 asked, 1 returned"),
    "with mask": (
        lambda good: cp.rows.DenseRows(np.full((len(good), 3), 1 / 3)),
        "rows over 2 tokens, got 3; one too many: leave the mask token out",
    ),
    "one axis": (lambda good: cp.rows.DenseRows(good[:, 0]), r"shape \(n, V\), got \(2,\)"),
    "no rows": (lambda good: good, "must return Rows, got ndarray"),
}


@pytest.mark.parametrize(("reply", "message"), BAD_REPLIES.values(), ids=list(BAD_REPLIES))
def test_a_bad_reply_is_an_error_and_loses_nothing(reply, message):
    run = begun(ScriptedOracle({1: reply, 2: reply, 3: reply, 4: reply}))
    undisturbed = begun(ScriptedOracle())
    first = run.do(Commit([3, 0])).tokens
    assert first.tolist() == undisturbed.do(Commit([3, 0])).tokens.tolist()
    before = run.state, run.ledger
    for ask in (
        lambda: run.do(Commit([1, 2])).tokens,
        lambda: run.do(Probe(run.state, [1, 2])).rows,
        lambda: run.do(
            Stream([Probe(run.state[None], Readouts.same(1, [1, 2]))], lambda request, rows: None)
        ),
        lambda: commit_selected(run, lambda residual, rows: residual),
    ):
        with pytest.raises(cp.OracleError, match=message) as error:
            ask()
        assert "oracle 'scripted'" in str(error.value)
        assert run.state.tolist() == before[0].tolist()
        assert run.ledger.commits == before[1].commits
    # The oracle is well again: the run goes on as if nothing had happened.
    assert run.do(Commit([1, 2])).tokens.tolist() == undisturbed.do(Commit([1, 2])).tokens.tolist()
    assert run.round_of_position.tolist() == undisturbed.round_of_position.tolist()
    assert run.transcript.replay() == run.ledger


def test_an_oracle_that_raises_loses_nothing(law):
    class Breaking:
        length, vocab_size, row_error, trusted = law.length, law.vocab_size, 0.0, False
        calls = 0

        def rows(self, states, readouts):
            self.calls += 1
            if self.calls == 2:
                raise ConnectionError("the model is away")
            return law.oracle().rows(states, readouts)

    run, undisturbed = begun(Breaking()), begun(law.oracle())
    run.do(Commit([0]))
    with pytest.raises(ConnectionError, match="the model is away"):
        run.do(Commit([1]))
    run.do(Commit([1]))
    undisturbed.do(Commit([0]))
    undisturbed.do(Commit([1]))
    assert run.state.tolist() == undisturbed.state.tolist()


def test_an_oracle_cannot_change_the_history(law):
    class Scribbling:
        length, vocab_size, row_error, trusted = law.length, law.vocab_size, 0.0, False

        def rows(self, states, readouts):
            reply = law.oracle().rows(states, readouts)
            states[:] = 0
            return reply

    run = begun(Scribbling())
    run.do(Preprocess())
    run.do(Commit([1]))
    commit_selected(run, lambda residual, rows: residual[:1])
    assert run.residual.tolist() == list(range(2, law.length))


# ----- What a run says of itself ------------------------------------------------------------


def test_progress_is_told_after_every_stage_and_inside_a_long_one(law):
    told: list[cp.run.Progress] = []
    run = begun(law.oracle(), on_event=cp.run.Listener(told.append, cp.run.Progress))
    run.do(Preprocess())
    requests = [Probe(run.state[None], Readouts.same(1, [0]))] * 3
    run.do(Stream(requests, lambda request, rows: None))
    run.do(Commit([0, 1]))
    assert [p.operation for p in told] == ["preprocess", *["probe"] * 4, "commit"]
    assert [p.ledger.evaluations for p in told] == [1, 2, 3, 4, 4, 5]
    assert [p.committed for p in told] == [0] * 5 + [2]
    assert {p.masked for p in told} == {law.length}
    assert told[-1].ledger == run.ledger


def declared(**options) -> cp.CallableOracle:
    return cp.CallableOracle(
        lambda states: np.full((*states.shape, 2), 0.5), 3, 2, name="declared", **options
    )


def test_a_run_repeats_what_its_oracle_declares_and_its_own_terms():
    oracle = declared(row_error=0.25, row_hellinger_radius=0.125, row_kl_radius=0.5)
    allowed = Need.VERIFY | Need.REMASK
    run = cp.run.Run(oracle, allowed=allowed, temperature=0.5, sequence=7)
    assert (run.length, run.vocab_size, run.row_error) == (3, 2, 0.25)
    assert run.row_radii == RowRadii(0.25, 0.125, 0.5)
    assert (run.oracle_name, run.oracle.digest, run.offers_attention) == ("declared", None, False)
    assert (run.allowed, run.temperature, run.sequence) == (allowed, 0.5, 7)
    assert run.used is Need.NONE
    for sequence, said in ((-1, "at least 0, got -1"), (1.5, r"a whole number, got 1\.5")):
        with pytest.raises(ValueError, match=f"sequence must be {said}"):
            cp.run.Run(declared(), sequence=sequence)


def test_what_stands_follows_every_commit_and_every_step_back():
    run = begun(declared(), given=[MASK, 1, MASK])
    assert not run.is_complete
    assert run.residual.tolist() == [0, 2]
    assert run.round_of_position.tolist() == [-2, -1, -2]
    run.do(Commit([2]))
    run.do(Commit([0]))
    assert run.is_complete and len(run.residual) == 0
    assert run.round_of_position.tolist() == [1, -1, 0]
    assert (run.num_undone, run.ledger.commits) == (0, 2)
    run.do(Remask([2]))
    assert not run.is_complete
    assert (run.num_undone, run.residual.tolist()) == (1, [2])


@pytest.mark.parametrize("sequence", [0, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_values_are_drawn_with_the_noise_of_the_sequence_at_the_temperature(
    law, sequence, temperature
):
    run = begun(law.oracle(), sequence=sequence, temperature=temperature)
    where = run.residual
    rows = law.oracle().rows(run.state[None], Readouts.same(1, where))
    if temperature != 1:
        rows = rows.tempered(temperature)
    uniforms = STREAMS.commit_noise(law.length, sequence).uniforms(where)
    assert run.do(Commit(where)).tokens.tolist() == rows.draw(uniforms).tolist()


def test_streams_are_bound_once_and_must_be_streams(law):
    run = cp.run.Run(law.oracle())
    with pytest.raises(ValueError, match=r"got 3; from one seed: Streams.from_seed\(3\)"):
        run.begin(3)
    run.begin(STREAMS)
    with pytest.raises(ValueError, match="already used by a sampler; build a new one"):
        run.begin(STREAMS)


# ----- What runs remember ---------------------------------------------------------------------


def test_results_are_shared_by_name_seed_context_and_history(table_law):
    shared = Shared()
    given = np.array([1, MASK, MASK, MASK])

    def always_one(state, positions, rows, index):
        return np.ones(len(positions), dtype=np.int64)

    def run(seeds=STREAMS, context=None, batch=(), **options) -> cp.run.Run:
        one = cp.run.Run(
            table_law.oracle(), shared=shared, given=context, draw=always_one, **options
        )
        one.begin(seeds)
        for position in batch:
            one.do(Commit([position]))
        return one

    def once(one: cp.run.Run, value, name="edges"):
        def compute():
            yield from ()
            return value

        return one.do(Share(name, compute()))

    first = run()
    assert once(first, "computed") == "computed"
    for same in (run(), run(cp.Streams(1, 99)), run(sequence=4), run(allowed=Need.NONE)):
        assert once(same, "again") == "computed"
    others = [
        run(cp.Streams(6, 6)), run(context=given), run(batch=[0]), run(batch=[1]),
        run(batch=[0, 1]), run(context=given, batch=[1]),
    ]  # fmt: skip
    for k, other in enumerate(others):
        assert once(other, k) == k
    assert once(first, "another name", "layers") == "another name"
    assert once(run(batch=[1, 0]), "again") == 4, "the order does not matter"
    unbound = cp.run.Run(table_law.oracle(), shared=shared)
    assert once(unbound, "for itself") == "for itself"


# ----- What those who listen hear of a commit, and what is left of it ---------------------------


class Hearing:
    """Keeps, in order, what was drawn from which rows, charged, announced and noted."""

    sequence, kinds = 0, ()

    def __init__(self):
        self.heard = []

    def __call__(self, event):
        match event:
            case Drew(positions, tokens, rows):
                masses = None if rows is None else np.asarray(rows.dense()).tolist()
                self.heard.append(("drew", positions.tolist(), tokens.tolist(), masses))
            case Charged(stage):
                self.heard.append(("charged", stage.operation, stage.positions.tolist()))
            case Announced(purpose, facts):
                self.heard.append(("announced", purpose, facts))
            case Note() as note:
                self.heard.append(("noted", note.name, note.content))


def rows_at(law, state, positions) -> list:
    found = law.oracle().rows(state[None], Readouts.same(1, positions)).dense()
    return np.asarray(found).tolist()


def beside(run: cp.run.Run) -> cp.run.Reading:
    """Read the current state in one stage with another state, which masks position 1 again."""
    states = np.repeat(run.state[None], 2, axis=0)
    states[0, 1] = MASK
    return run.do(Probe(states, Readouts.every_masked(states))).at(1)


KNOWING = {
    "commit": lambda run, batch: run.do(Commit(batch)).tokens,
    "selected": lambda run, batch: commit_selected(run, lambda residual, rows: batch)[1],
    "known": lambda run, batch: run.do(Commit(batch, run.do(Draft()))).tokens,
    "candidates": lambda run, batch: (run.do(Draft()), run.do(Keep(batch)))[1],
    "beside": lambda run, batch: run.do(Commit(batch, beside(run))).tokens,
}


@pytest.mark.parametrize("way", KNOWING)
@pytest.mark.parametrize("allowed", [~Need.NONE, ~Need.SELECT])
def test_every_commit_settles_its_own_values_from_its_own_rows_and_is_charged_after(
    law, way, allowed
):
    hearing, told = Hearing(), []
    watching = cp.run.Listener(told.append, cp.run.Progress)
    run = begun(law.oracle(), allowed=allowed, on_event=cp.run.tell_all(hearing, watching))
    run.do(Commit([1]))
    before, prints = run.state, fingerprint(run.state)
    del hearing.heard[:], told[:]
    batch = np.array([3, 0])
    tokens = KNOWING[way](run, batch)
    assert run.state[batch].tolist() == tokens.tolist()
    drew = [heard for heard in hearing.heard if heard[0] == "drew"]
    assert drew == [("drew", [3, 0], tokens.tolist(), rows_at(law, before, batch))]
    assert hearing.heard[-2:] == [*drew, ("charged", "commit", [3, 0])]
    event = run.transcript.events[-1]
    assert event.operation == "commit" and event.fingerprints.tolist() == prints.tolist()
    is_spared = Need.SELECT in allowed and way != "commit"
    assert (event.promoted, event.evaluations) == (is_spared, int(not is_spared))
    assert event.selected == is_spared
    assert (told[-1].operation, told[-1].committed) == ("commit", 3)
    assert told[-1].ledger == run.ledger == run.transcript.replay()
    expected = Need.NONE if way == "commit" else allowed & Need.SELECT
    if way == "candidates":
        expected |= Need.CANDIDATES
    if way == "beside":
        expected |= Need.REMASK
    assert run.used == expected
    assert run.round_of_position[[1, 3, 0]].tolist() == [0, 1, 1]


@pytest.mark.parametrize("allowed", [~Need.NONE, ~Need.SELECT])
def test_a_selection_from_known_rows_is_checked_like_any_other(law, allowed):
    run = begun(law.oracle(), allowed=allowed)
    run.do(Commit([1]))
    run.do(Draft())
    for batch, message in (([1], "position 1 is committed already"), ([], "non-empty list")):
        with pytest.raises(ValueError, match=message):
            commit_selected(run, lambda residual, rows, batch=batch: batch)
    seen = []
    commit_selected(run, lambda residual, rows: seen.append((residual, rows)) or residual[:1])
    residual, rows = seen[0]
    assert residual.tolist() == [k for k in range(law.length) if k != 1]
    assert len(rows) == len(residual)


@pytest.mark.parametrize(
    ("operation", "act"),
    [
        ("Draft", lambda run: run.do(Draft())),
        ("Read", lambda run: run.do(Read())),
    ],
)
def test_what_needs_an_uncommitted_position_says_so_by_its_name(law, operation, act):
    run = begun(law.oracle())
    run.do(Commit(run.residual))
    said = f"{operation} needs an uncommitted position; the run is complete"
    with pytest.raises(ValueError, match=said):
        act(run)


def test_nothing_is_drawn_before_the_noise_is_bound(law, counted):
    oracle = counted(law.oracle())
    run = cp.run.Run(oracle)
    for act in (
        lambda: run.do(Commit([0])).tokens,
        lambda: commit_selected(run, lambda residual, rows: residual),
        lambda: run.do(Draft()),
    ):
        with pytest.raises(ValueError, match=r"no commit noise yet: call begin\(streams\)"):
            act()
    assert oracle.calls == 0
