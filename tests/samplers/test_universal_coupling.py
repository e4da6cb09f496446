"""Universal coupling: the sequential coupled chain bit for bit, and what it costs."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import ASSD, UniversalCoupling
from counterprobe.samplers.peers.universal_coupling import balanced_block

MASK = cp.MASK


def raced(rows: cp.rows.Rows, position: int, noise: cp.streams.CommitNoise) -> int:
    """One race, told plainly: the token, or the class and then the token, that arrives first."""
    masses = np.asarray(rows.masses)[0]
    exponentials = noise.exponentials(np.array([position]), len(masses))[0]
    first, soonest = -1, math.inf
    for k, mass in enumerate(masses):
        if mass > 0 and exponentials[k] / mass < soonest:
            first, soonest = k, exponentials[k] / mass
    if not isinstance(rows, cp.rows.ClassedRows):
        return first
    classes = rows.classes
    kind = classes.kind[position]
    uniform = noise.uniforms(np.array([position]))[0]
    members = [v for v in range(rows.vocab_size) if classes.token_class[kind, v] == first]
    reached = 0.0
    for token in members:
        reached += classes.within[kind, token]
        if uniform < reached:
            return token
    return members[-1]


def coupled_chain(oracle: cp.Oracle, order, streams: cp.Streams, given, sequence: int = 0):
    """One position at a time, each raced with its own noise."""
    state = np.array(given, dtype=np.int32)
    noise = streams.commit_noise(oracle.length, sequence)
    for position in order:
        rows = oracle.rows(state[None], cp.Readouts.same(1, [position]))
        state[position] = raced(rows, int(position), noise)
    return state


def ordered(sampler: UniversalCoupling, residual: np.ndarray, streams: cp.Streams) -> np.ndarray:
    if sampler.order == "index":
        return residual
    return streams.decisions("order").permutation(residual)


@pytest.mark.parametrize("size", [None, 1, 2, 3, 5, 100])
@pytest.mark.parametrize("full_prefix", [False, True])
@pytest.mark.parametrize("order", ["random", "index"])
def test_the_output_is_the_coupled_chain_bit_for_bit(size, full_prefix, order, law):
    sampler = UniversalCoupling(size, full_prefix=full_prefix, order=order)
    given = np.full(law.length, MASK)
    for seed in range(6):
        streams = cp.Streams(seed, 100 + seed)
        if seed == 5:
            given[[1, 3]] = law.sample(1, np.random.default_rng(1))[0][[1, 3]]
        run = cp.run.Run(law.oracle(), given=given, sequence=seed)
        chain = coupled_chain(
            law.oracle(),
            ordered(sampler, run.residual, streams),
            streams,
            given,
            seed,
        )
        result = sampler(run, streams)
        assert result.tokens.tolist() == chain.tolist()


@pytest.mark.parametrize("family", ["path", "growing-stars"])
def test_the_chain_comes_out_in_a_large_vocabulary_whatever_the_block(family):
    law = cp.families.build(family, 120, target_seed=3)
    streams = cp.Streams(4, 5)
    order = streams.decisions("order").permutation(120)
    chain = coupled_chain(law.oracle(), order, streams, np.full(120, MASK))
    for size in (None, 1, 7, 120):
        for full_prefix in (False, True):
            sampler = UniversalCoupling(size, full_prefix=full_prefix)
            result = sampler(cp.run.Run(law.oracle()), streams)
            assert result.tokens.tolist() == chain.tolist()


def product(length: int, vocab_size: int = 3) -> cp.ForestLaw:
    unary = np.random.default_rng(1).uniform(0.5, 1.5, size=(length, vocab_size))
    return cp.ForestLaw(unary, [], np.ones((vocab_size, vocab_size)))


def chain(flip: float) -> cp.ForestLaw:
    """Forty bits, each mostly a copy of the one before."""
    edges = np.stack([np.arange(39), np.arange(1, 40)], axis=1)
    return cp.ForestLaw(np.ones((40, 2)), edges, [[1.0, flip], [flip, 1.0]])


@pytest.mark.parametrize(("length", "size"), [(12, 4), (13, 4), (14, 4), (5, 1), (6, 6), (1, 4)])
@pytest.mark.parametrize("rule", ["coupling", "assd"])
def test_a_product_target_takes_n_evaluations_in_two_stages_a_block(length, size, rule):
    sampler = UniversalCoupling(size) if rule == "coupling" else ASSD(size)
    result = sampler(cp.run.Run(product(length).oracle()), cp.Streams(1, 2))
    blocks = math.ceil(length / size)
    singles = sum(1 for k in range(0, length, size) if min(size, length - k) == 1)
    assert result.ledger.evaluations == length
    assert result.ledger.stages == 2 * blocks - singles
    assert result.ledger.commits == blocks
    assert result.diagnostics.kept == result.diagnostics.drafted
    assert sum(result.diagnostics.kept) == length


@pytest.mark.parametrize(("length", "size"), [(12, 4), (13, 4), (14, 4), (5, 1), (6, 6), (1, 4)])
def test_with_the_full_prefix_a_clean_round_costs_one_stage(length, size):
    sampler = UniversalCoupling(size, full_prefix=True)
    result = sampler(cp.run.Run(product(length).oracle()), cp.Streams(1, 2))
    blocks = math.ceil(length / size)
    last_is_single = length % size == 1 or size == 1
    assert result.ledger.evaluations == length
    assert result.ledger.stages == 1 + blocks - last_is_single
    assert result.ledger.commits == blocks


def test_the_full_prefix_costs_one_evaluation_a_mismatch_and_saves_a_stage_a_clean_round():
    law = chain(0.1)
    streams = cp.Streams(3, 6)
    plain, ahead = (
        UniversalCoupling(5, full_prefix=full, order="index")(cp.run.Run(law.oracle()), streams)
        for full in (False, True)
    )
    assert ahead.tokens.tolist() == plain.tokens.tolist()
    assert ahead.round_of_position.tolist() == plain.round_of_position.tolist()
    assert ahead.diagnostics == plain.diagnostics
    drafted, kept = plain.diagnostics.drafted, plain.diagnostics.kept
    before = np.cumsum([0, *(len(batch) for batch in plain.batches[:-1])])
    goes_on = before + drafted < law.length
    clean = int((np.equal(drafted, kept) & goes_on).sum())
    mismatches = int((np.not_equal(drafted, kept) & goes_on).sum())
    assert clean > 0 and mismatches > 0
    assert plain.ledger.stages == sum(min(2, size) for size in drafted)
    assert ahead.ledger.stages == plain.ledger.stages - clean
    assert plain.ledger.evaluations == sum(drafted)
    assert ahead.ledger.evaluations == plain.ledger.evaluations + mismatches


@pytest.mark.parametrize("sampler", [UniversalCoupling(4), ASSD(4)], ids=["coupling", "assd"])
def test_every_round_keeps_two_or_more_until_one_is_left(sampler):
    law = chain(0.05)
    sizes = []
    for seed in range(10):
        result = sampler(cp.run.Run(law.oracle()), cp.Streams(seed, seed))
        kept = [len(batch) for batch in result.batches]
        assert all(size >= 2 for size in kept[:-1])
        assert result.ledger.stages <= law.length
        sizes += kept
    assert 2 in sizes and 4 in sizes


@pytest.mark.parametrize(
    ("length", "vocab_size", "expected"),
    [(16384, 2, 29), (16384, 2048, 13), (1, 2, 1), (3, 2048, 1), (7, 1, 7)],
)
def test_the_default_block_is_the_public_formula(length, vocab_size, expected):
    assert balanced_block(length, vocab_size) == expected
