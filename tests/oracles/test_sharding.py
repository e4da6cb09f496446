"""A sharded oracle gives the rows of one process, bit for bit, and the same ledgers."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import counterprobe as cp
import executor_jobs
from counterprobe import testing
from counterprobe.executors import AHEAD, ExecutorError, local_processes
from counterprobe.oracles import FollowsRuns
from counterprobe.run import Probe, Stream

LAW = cp.families.path(40, 7)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture
def sharded(threads):
    """The path's oracle in two threads, in pieces of three states."""
    return LAW.oracle().sharded(threads, piece=3)


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


# ----- Pieces -------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 3, 7, 100])
def test_pieces_cover_every_state_and_row_once(threads, piece):
    oracle = LAW.oracle().sharded(threads, piece=piece)
    for seed in range(20):
        rng = np.random.default_rng([51, seed])
        states, readouts = draw_request(rng, int(rng.integers(1, 12)), bool(seed % 2))
        parts = oracle._split(cp.Query(states, readouts))
        np.testing.assert_array_equal(np.concatenate([part for part, *_ in parts]), states)
        rows = np.concatenate([index for *_, index in parts])
        assert sorted(rows.tolist()) == list(range(len(readouts)))
        for part, asked, index in parts:
            assert len(part) <= piece
            np.testing.assert_array_equal(asked.position, readouts.position[index])
            assert (np.diff(asked.state_index) >= 0).all()


@pytest.mark.parametrize(
    ("batch", "sizes"), [(24, [48, 48, 4]), (40, [40, 40, 20]), (4096, [32, 32, 32, 4])]
)
def test_pieces_are_whole_batches_of_a_model(threads, batch, sizes):
    plain = cp.CallableOracle(executor_jobs.smoothed, length=5, vocab_size=4, batch_size=batch)
    states = np.full((100, 5), cp.MASK, dtype=np.int32)
    parts = plain.sharded(threads)._split(cp.Query(states, cp.Readouts.same(100, [1])))
    assert [len(part) for part, *_ in parts] == sizes


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


def test_queries_of_a_stage_are_asked_at_once_and_answered_in_order(threads):
    own = LAW.oracle()
    build = partial(executor_jobs.Noting, own)
    asked = testing.CountingOracle(own.sharded(threads, piece=3, build=build))
    rng = np.random.default_rng(54)
    queries = [
        cp.Query(*draw_request(rng, int(rng.integers(1, 9)), k % 2 == 0)) for k in range(25)
    ]
    answered = []

    def consume(probe, rows):
        same_rows(rows, own.ask(queries[probe.label]).rows)
        answered.append(probe.label)

    requests = (Probe(one.states, one.readouts, label=k) for k, one in enumerate(queries))
    cp.run.Run(asked).do(Stream(requests, consume))
    assert answered == list(range(len(queries)))
    assert all(len(states) >= AHEAD * 2 * 3 for states in asked.seen[:-1])
    # A piece holds states of one query, which one process would compute together.
    sizes = [len(one.states) for one in queries]
    pieces = [min(3, size - low) for size in sizes for low in range(0, size, 3)]
    assert sorted(executor_jobs.Noting.sizes) == sorted(pieces)


def test_it_is_an_oracle_that_keeps_the_contract(sharded):
    assert sharded.info == replace(LAW.oracle().info, stream_states=AHEAD * 2 * 3)
    assert sharded.ability(FollowsRuns) is None
    assert sharded.digest == LAW.oracle().digest
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


@pytest.mark.parametrize("kind", ["processes", "loky"])
def test_rows_and_ledgers_of_processes_are_those_of_one(kind):
    sampler = cp.samplers.Packed(num_colorings=8, num_colors=4)
    alone = sampler(cp.run.Run(LAW.oracle()), cp.Streams(3, 4))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, spawn) if kind == "processes" else local_processes(2) as where:
        oracle = LAW.oracle().sharded(where, piece=5)
        result = sampler(cp.run.Run(oracle), cp.Streams(3, 4))
    np.testing.assert_array_equal(result.tokens, alone.tokens)
    assert result.ledger == alone.ledger


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


@pytest.mark.slow
def test_a_killed_replica_is_asked_elsewhere_and_counted_once(tmp_path):
    build, losses = partial(executor_jobs.Fragile, LAW, str(tmp_path / "dead")), []
    with local_processes(2) as make:
        oracle = LAW.oracle().sharded(make, build=build, piece=4, on_loss=losses.append)
        rows, ledger = probing_run(oracle, mark=1)
    assert len(losses) == 1 and "SIGKILL" in losses[0]
    expected, alone = probing_run(LAW.oracle(), mark=1)
    same_rows(rows, expected)
    assert ledger == alone


@pytest.mark.slow
def test_a_replica_that_always_dies_is_an_error_with_the_oracles_name():
    with local_processes(1) as make:
        oracle = LAW.oracle().sharded(make, build=partial(executor_jobs.Fragile, LAW), piece=4)
        with pytest.raises(ExecutorError, match=r"oracle 'exact path': a worker died.*3 times"):
            probing_run(oracle, mark=1)
        same_rows(probing_run(oracle)[0], probing_run(LAW.oracle())[0])  # it goes on


def test_a_replica_that_hangs_is_an_error_with_oracle_and_limit():
    build = partial(executor_jobs.Hanging, LAW)
    with local_processes(1) as make:
        LAW.oracle().sharded(make, build=build).rows(  # starts the worker, without a limit
            np.full((1, LAW.length), cp.MASK, dtype=np.int32), cp.Readouts.same(1, [1])
        )
        oracle = LAW.oracle().sharded(make, build=build, piece=4, timeout=1.0)
        with pytest.raises(ExecutorError, match="oracle 'exact path': no worker has ans"):
            probing_run(oracle, mark=1)


def test_an_exception_inside_a_replica_has_the_oracles_own_message(threads):
    build = partial(executor_jobs.Refusing, LAW)
    oracle = LAW.oracle().sharded(threads, build=build, piece=4)
    with pytest.raises(cp.OracleError, match="has no answer for token 1"):
        probing_run(oracle, mark=1)
    same_rows(probing_run(oracle)[0], probing_run(LAW.oracle())[0])  # it goes on


# ----- Other oracles --------------------------------------------------------------------------


def test_a_users_function_is_sharded_with_its_rows_checked(threads):
    plain = cp.CallableOracle(executor_jobs.smoothed, length=5, vocab_size=4)
    oracle = plain.sharded(threads, piece=2)
    assert not oracle.info.trusted
    result = cp.samplers.Sequential()(cp.run.Run(oracle), cp.Streams(1, 2))
    alone = cp.samplers.Sequential()(cp.run.Run(plain), cp.Streams(1, 2))
    np.testing.assert_array_equal(result.tokens, alone.tokens)


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16"])
def test_torch_rows_lose_no_bit(threads, name):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)

    def network(states):
        return torch.as_tensor(executor_jobs.smoothed(states)).to(dtype)

    oracle = cp.CallableOracle(network, length=5, vocab_size=4)
    states = np.array([[0, 1, -1, -1, 2], [3, 3, -1, 0, -1]], dtype=np.int32)
    readouts = cp.Readouts.every_masked(states)
    expected, rows = oracle.rows(states, readouts), oracle.sharded(threads).rows(states, readouts)
    assert type(rows) is type(expected)
    assert rows.probabilities.dtype == dtype
    assert torch.equal(rows.probabilities, expected.probabilities)


def test_tempered_rows_bring_those_of_temperature_one(threads):
    torch = pytest.importorskip("torch")

    def network(ids):
        return torch.nn.functional.one_hot(ids, 5).float().cumsum(dim=1)

    oracle = cp.models.TorchOracle(network, length=4, mask_id=4, temperature=0.1, row_error=1e-6)
    states = np.array([[0, 1, -1, -1], [3, 3, -1, 0]], dtype=np.int32)
    readouts = cp.Readouts.every_masked(states)
    expected = oracle.rows(states, readouts)
    rows = oracle.sharded(threads, build=lambda: oracle).rows(states, readouts)
    assert torch.equal(rows.own.dense(), expected.own.dense())
    assert torch.equal(rows.dense(), expected.dense())


# ----- What replicas are ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (cp.families.path(12, target_seed=2), "with digest '[0-9a-f]{32}', got '[0-9a-f]{32}'"),
        (cp.families.path(13, target_seed=1), "with length 12, got 13"),
    ],
)
def test_replicas_of_another_oracle_are_refused(threads, other, words):
    oracle = cp.families.path(12, target_seed=1).oracle().sharded(threads, build=other.oracle)
    with pytest.raises(
        cp.OracleError, match=f"a replica must be of the oracle 'exact path' {words}"
    ):
        cp.samplers.Sequential()(cp.run.Run(oracle), cp.Streams(1, 2))


def test_a_replica_that_cannot_tell_its_content_is_taken_at_its_name(threads, uniform_oracle):
    oracle = uniform_oracle(3, 4).sharded(threads, build=lambda: uniform_oracle(3, 4))
    assert oracle.digest is None
    assert len(oracle.rows(np.full((1, 3), cp.MASK), cp.Readouts.same(1, [0, 2]))) == 2


def test_what_is_no_oracle_and_a_bad_piece_are_refused(threads):
    states = np.full((1, LAW.length), cp.MASK, dtype=np.int32)
    with pytest.raises(ValueError, match=r"oracle must have length.* law.oracle\(\)"):
        LAW.oracle().sharded(threads, build=lambda: LAW).rows(states, cp.Readouts.same(1, [0]))
    with pytest.raises(ValueError, match="piece must be at least 1, got -1"):
        LAW.oracle().sharded(threads, piece=-1)
