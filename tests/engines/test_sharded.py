"""A sharded oracle gives the rows of one process, bit for bit, and the same ledgers."""

import multiprocessing
from functools import partial

import numpy as np
import pytest

import counterprobe as cp
import engine_jobs
from counterprobe import testing
from counterprobe.engines import EngineError, InProcess, Processes, ShardedOracle
from counterprobe.engines.messages import Batch, RowReader, make_replica, split
from counterprobe.oracles import FollowsRuns
from counterprobe.run import Probe

LAW = cp.families.path(40, 7)


@pytest.fixture(scope="module")
def sharded():
    """The path's oracle in two processes, in micro-batches of three."""
    with ShardedOracle.copies_of(LAW.oracle(), Processes(2), batch_size=3) as oracle:
        yield oracle


def draw_request(rng, num_states, shared):
    states = rng.integers(0, LAW.vocab_size, (num_states, LAW.length)).astype(np.int32)
    masked = rng.permutation(LAW.length)[: rng.integers(1, 9)]
    states[:, masked] = cp.MASK
    if shared:
        return states, cp.Readouts.same(num_states, masked)
    readouts = cp.Readouts.every_masked(states)
    order = rng.permutation(len(readouts))[: rng.integers(0, len(readouts) + 1)]
    return states, cp.Readouts.pairs(readouts.state_index[order], readouts.position[order])


def same_rows(one, other):
    assert type(one) is type(other)
    np.testing.assert_array_equal(one.masses, other.masses)
    np.testing.assert_array_equal(one.dense(), other.dense())


# ----- Micro-batches ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_micro_batches_cover_every_state_and_row_once(size):
    for seed in range(20):
        rng = np.random.default_rng([51, seed])
        num_states = int(rng.integers(1, 12))
        _, readouts = draw_request(rng, num_states, bool(seed % 2))
        parts = split(num_states, readouts, size)
        assert [low for low, _, _ in parts] == list(range(0, num_states, size))
        assert [high for _, high, _ in parts][-1] == num_states
        rows = np.concatenate([index for _, _, index in parts])
        assert sorted(rows.tolist()) == list(range(len(readouts)))
        for low, high, index in parts:
            assert high - low <= size
            mine = readouts.state_index[index]
            assert ((low <= mine) & (mine < high)).all()
            # Within a micro-batch rows keep their order.
            assert (mine[1:] >= mine[:-1]).all()


def test_no_states_are_one_empty_micro_batch():
    assert [part[:2] for part in split(0, cp.Readouts.same(0, [1]), 4)] == [(0, 0)]


# ----- Rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
def test_rows_of_processes_are_those_of_one_process_bit_for_bit(sharded, shared):
    own = LAW.oracle()
    for seed in range(8):
        rng = np.random.default_rng([52, seed, shared])
        states, readouts = draw_request(rng, int(rng.integers(0, 20)), shared)
        kept = states.copy()
        same_rows(sharded.rows(states, readouts), own.rows(states, readouts))
        np.testing.assert_array_equal(states, kept)


def test_all_replies_share_one_class_map(sharded):
    states, readouts = draw_request(np.random.default_rng(53), 9, True)
    first, second = sharded.rows(states, readouts), sharded.rows(states, readouts)
    assert first.classes is second.classes
    assert not first.classes.token_class.flags.writeable
    assert (first.total_variation(second) == 0).all()


def test_queries_of_a_stage_are_asked_ahead_and_answered_in_order(sharded):
    own = LAW.oracle()
    rng = np.random.default_rng(54)
    queries = [
        cp.Query(*draw_request(rng, int(rng.integers(1, 9)), k % 2 == 0)) for k in range(25)
    ]
    read = []

    def reading():
        for k, query in enumerate(queries):
            read.append(k)
            yield Probe(query.states, query.readouts, label=k), query

    answered = []

    def consume(probe, query, rows):
        k = probe.label
        assert len(read) > k
        if k == 0:
            assert 1 < len(read) < len(queries)  # ahead, but not all of them
        same_rows(rows, own.ask(queries[k]).rows)
        answered.append(k)

    run = cp.run.Run(sharded)
    with run.stage("probe") as stage:
        run.alone(stage.ask_all(reading(), consume))
    assert answered == list(range(len(queries)))


def test_replies_that_nobody_waits_for_do_not_disturb_the_next(sharded):
    rng = np.random.default_rng(55)
    queries = [cp.Query(*draw_request(rng, 8, True)) for _ in range(6)]
    replies = [sharded.ask(query) for query in queries]
    assert all(reply.is_late for reply in replies)
    replies[3].settle()  # in any order
    for reply in replies[:5]:
        reply.drop()
    for k in (3, 5):
        same_rows(replies[k].rows, LAW.oracle().ask(queries[k]).rows)
    same_rows(sharded.ask(queries[0]).rows, LAW.oracle().ask(queries[0]).rows)


def test_it_is_an_oracle_that_keeps_the_contract(sharded):
    assert sharded.info == LAW.oracle().info
    assert sharded.ability(FollowsRuns) is None
    assert (sharded.row_error, sharded.template) == (LAW.oracle().row_error, None)
    testing.check_oracle(sharded, LAW)


# ----- Runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampler",
    [
        cp.samplers.Packed(num_colorings=8, num_colors=4),
        cp.samplers.Compressed(),
        cp.samplers.MaskGIT(steps=4),
    ],
    ids=lambda sampler: sampler.name,
)
def test_samplers_draw_the_same_and_are_charged_the_same(sharded, sampler):
    streams = cp.Streams(3, 4)
    run = cp.run.Run(sharded, keep_notes=True)
    alone = cp.run.Run(LAW.oracle(), keep_notes=True)
    result, expected = sampler(run, streams), sampler(alone, streams)
    np.testing.assert_array_equal(result.tokens, expected.tokens)
    assert result.ledger == expected.ledger
    for one, other in zip(run.transcript.events, alone.transcript.events, strict=True):
        assert (one.operation, one.evaluations, one.rows_read) == (
            other.operation,
            other.evaluations,
            other.rows_read,
        )
        np.testing.assert_array_equal(one.fingerprints, other.fingerprints)


@pytest.mark.parametrize("budget", [0, 5, 40, 100])
def test_a_budget_ends_a_stage_where_it_would_in_one_process(sharded, budget):
    sampler = cp.samplers.Packed(num_colorings=8, num_colors=4)
    results = [
        sampler(cp.run.Run(oracle, max_evaluations=budget), cp.Streams(1, 2))
        for oracle in (sharded, LAW.oracle())
    ]
    assert results[0].ledger == results[1].ledger
    assert (results[0].stop, results[0].reason) == (results[1].stop, results[1].reason)


def test_what_is_submitted_is_counted_once_by_the_replicas_too(sharded):
    before = sharded.num_evaluated
    run = cp.run.Run(sharded)
    cp.samplers.Packed(num_colorings=4, num_colors=4)(run, cp.Streams(5, 6))
    assert sharded.num_evaluated - before == run.ledger.evaluations


# ----- Faults -------------------------------------------------------------------------------


def probing_run(oracle, mark=None):
    """Thirty probes in one stage, one of them marked; returns the rows and the ledger."""
    rng = np.random.default_rng(57)
    states = rng.integers(2, LAW.vocab_size, (30, LAW.length)).astype(np.int32)
    states[:, 5:9] = cp.MASK
    if mark is not None:
        states[13, 0] = mark
    run = cp.run.Run(oracle)
    rows = run.do(Probe(states, np.arange(5, 9))).rows
    return rows, run.ledger


def test_a_dead_replica_is_asked_elsewhere_and_counted_once(tmp_path):
    before = set(multiprocessing.active_children())
    make = partial(engine_jobs.Fragile, LAW.oracle(), str(tmp_path / "dead"), 1)
    with ShardedOracle(Processes(2), make, batch_size=4) as oracle:
        rows, ledger = probing_run(oracle, mark=1)
        assert oracle.num_lost == 1
        assert oracle.num_evaluated == ledger.evaluations == 30
        assert len(set(multiprocessing.active_children()) - before) >= 1
    assert set(multiprocessing.active_children()) <= before  # closing ends the replicas
    expected, alone = probing_run(LAW.oracle(), mark=1)
    same_rows(rows, expected)
    assert ledger == alone


@pytest.mark.slow
def test_a_replica_that_hangs_is_asked_elsewhere_and_counted_once(tmp_path):
    make = partial(engine_jobs.Hanging, LAW.oracle(), str(tmp_path / "hung"), 1)
    # Long enough for a worker that starts beside much other work.
    with ShardedOracle(Processes(2, task_seconds=15.0), make, batch_size=4) as oracle:
        rows, ledger = probing_run(oracle, mark=1)
        assert oracle.num_lost == 1
        assert oracle.num_evaluated == ledger.evaluations == 30
    expected, alone = probing_run(LAW.oracle(), mark=1)
    same_rows(rows, expected)
    assert ledger == alone


@pytest.mark.slow
def test_a_replica_that_always_hangs_is_an_error_with_oracle_and_limit():
    make = partial(engine_jobs.Hanging, LAW.oracle(), None, 1)
    engine = Processes(1, attempts=2, task_seconds=2.0)
    with ShardedOracle(engine, make, batch_size=4) as oracle:
        with pytest.raises(EngineError, match=r"oracle 'exact path': .*after 2 seconds.*2 times"):
            probing_run(oracle, mark=1)
        same_rows(probing_run(oracle)[0], probing_run(LAW.oracle())[0])  # it goes on


@pytest.mark.slow
def test_no_replica_left_is_a_clear_error_and_nothing_is_charged():
    make = partial(engine_jobs.Fragile, LAW.oracle(), None, 1)  # dies whenever it is asked
    with ShardedOracle(Processes(1, attempts=2), make, batch_size=4) as oracle:
        with pytest.raises(EngineError, match=r"a worker process died.*2 times for one task"):
            probing_run(oracle, mark=1)


@pytest.mark.parametrize(
    "engine", [InProcess(), pytest.param(Processes(1), marks=pytest.mark.slow)]
)
def test_an_exception_inside_a_replica_has_the_oracles_own_message(engine):
    make = partial(engine_jobs.Refusing, LAW.oracle(), None, 1)
    with ShardedOracle(engine, make, batch_size=4) as oracle:
        with pytest.raises(cp.OracleError, match="has no answer for token 1"):
            probing_run(oracle, mark=1)
        same_rows(probing_run(oracle)[0], probing_run(LAW.oracle())[0])  # it goes on


# ----- Other oracles, in this process: what travels is the same --------------------------------


def through_messages(oracle, states, readouts):
    """What a reply becomes on its way, the class map known or not."""
    reader, replica = RowReader(), make_replica(lambda: oracle)
    replies = []
    for _ in range(2):
        reply = replica(Batch(states, readouts, reader.known))
        replies.append((reply, reader.read(reply, readouts)))
    return replies


def test_a_class_map_travels_once():
    states, readouts = draw_request(np.random.default_rng(58), 3, True)
    (first, rows), (second, again) = through_messages(LAW.oracle(), states, readouts)
    assert first.classes is not None
    assert second.classes is None
    assert rows.classes is again.classes
    same_rows(rows, LAW.oracle().rows(states, readouts))


def test_a_users_function_is_sharded_with_its_rows_checked():
    make = partial(cp.CallableOracle, engine_jobs.smoothed, length=5, vocab_size=4)
    with ShardedOracle(InProcess(), make, batch_size=2) as oracle:
        assert not oracle.info.trusted
        result = cp.samplers.Sequential()(cp.run.Run(oracle), cp.Streams(1, 2))
    alone = cp.samplers.Sequential()(cp.run.Run(make()), cp.Streams(1, 2))
    np.testing.assert_array_equal(result.tokens, alone.tokens)


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16"])
def test_torch_rows_lose_no_bit(name):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)

    def network(states):
        return torch.as_tensor(engine_jobs.smoothed(states)).to(dtype)

    oracle = cp.CallableOracle(network, length=5, vocab_size=4)
    states = np.array([[0, 1, -1, -1, 2], [3, 3, -1, 0, -1]], dtype=np.int32)
    readouts = cp.Readouts.every_masked(states)
    expected = oracle.rows(states, readouts)
    for _, rows in through_messages(oracle, states, readouts):
        assert type(rows) is type(expected)
        assert rows.probabilities.dtype == dtype
        assert torch.equal(rows.probabilities, expected.probabilities)


def test_tempered_rows_bring_those_of_temperature_one():
    torch = pytest.importorskip("torch")

    def network(ids):
        return torch.nn.functional.one_hot(ids, 5).float().cumsum(dim=1)

    oracle = cp.models.TorchOracle(network, length=4, mask_id=4, temperature=0.1, row_error=1e-6)
    states = np.array([[0, 1, -1, -1], [3, 3, -1, 0]], dtype=np.int32)
    readouts = cp.Readouts.every_masked(states)
    expected = oracle.rows(states, readouts)
    for _, rows in through_messages(oracle, states, readouts):
        assert torch.equal(rows.own.dense(), expected.own.dense())
        assert torch.equal(rows.dense(), expected.dense())


def test_rows_of_another_kind_travel_whole():
    class Marked(cp.rows.DenseRows):
        __slots__ = ()

    oracle = cp.CallableOracle(engine_jobs.smoothed, length=5, vocab_size=4)
    inner = type(oracle).rows
    states = np.full((2, 5), cp.MASK, dtype=np.int32)
    readouts = cp.Readouts.same(2, [1, 4])

    class Wrapped:
        name, length, vocab_size, row_error, trusted = "wrapped", 5, 4, 0.0, False

        def rows(self, states, readouts):
            return Marked(inner(oracle, states, readouts).probabilities)

    (_, rows), _ = through_messages(Wrapped(), states, readouts)
    assert type(rows) is Marked


# ----- What replicas declare ------------------------------------------------------------------


def test_the_largest_row_error_of_the_replicas_is_declared(tmp_path):
    make = partial(engine_jobs.growing_error, tmp_path / "made")

    class Two(InProcess):
        num_workers = 2

    with ShardedOracle(Two(), make) as oracle:
        assert oracle.row_error == pytest.approx(0.2)


def test_replicas_of_different_oracles_are_refused(tmp_path):
    class Two(InProcess):
        num_workers = 2

    with pytest.raises(cp.OracleError, match=r"replicas must be of one oracle: .*N = 5.* N = 6"):
        ShardedOracle(Two(), partial(engine_jobs.growing_length, tmp_path / "made"))


def test_replicas_of_one_name_and_size_with_other_contents_are_refused():
    class Two(InProcess):
        num_workers = 2

    laws = iter([cp.families.path(12, target_seed=seed) for seed in (1, 2, 1, 1)])
    with pytest.raises(
        cp.OracleError, match=r"content [0-9a-f]{32}, then .* content [0-9a-f]{32}"
    ):
        ShardedOracle(Two(), lambda: next(laws).oracle())
    with ShardedOracle(Two(), lambda: next(laws).oracle()) as oracle:
        assert oracle.digest == cp.families.path(12, target_seed=1).content_digest


def test_a_replica_that_cannot_tell_its_content_is_taken_at_its_name(uniform_oracle):
    with ShardedOracle(InProcess(), lambda: uniform_oracle(3, 4)) as oracle:
        assert oracle.digest is None


def test_what_is_no_oracle_and_a_bad_batch_size_are_refused():
    with pytest.raises(ValueError, match=r"oracle must have length.* law.oracle\(\)"):
        ShardedOracle(InProcess(), lambda: LAW)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        ShardedOracle.copies_of(LAW.oracle(), InProcess(), batch_size=0)
