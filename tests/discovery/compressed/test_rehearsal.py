"""Certificates hold where sequences live: dependence that arbitrary tokens do not show."""

import math

import numpy as np
import pytest
from tests.support.hidden_laws import HiddenBlock, block_topic, gated_pair, soft_parity

import counterprobe as cp
from counterprobe.discovery.checking import rehearsed
from counterprobe.discovery.compressed.certify import (
    hidden_shares,
    rehearsal_cost,
    show_few,
    shown_sizes,
)
from counterprobe.discovery.compressed.findings import ASSUMPTION

# Seeds of each attack. A rehearsal misses one with a chance of about 1% at most, and a law is
# looked at by validation besides; these seeds are fixed, and none of them misses.
SEEDS = range(2)


def structures(make, seeds=SEEDS) -> list[tuple[HiddenBlock, cp.Structure]]:
    """Discover one law at several orders of positions."""
    found = []
    for seed in seeds:
        law = make(seed)
        streams = cp.Streams.from_seed(seed)
        found.append((law, cp.discover(law.oracle, streams, mode="exact", fallback=True)))
    return found


@pytest.mark.parametrize("num_gates", [4, 8, pytest.param(16, marks=pytest.mark.slow)])
def test_a_pair_behind_gates_is_not_committed_together(num_gates: int) -> None:
    for law, structure in structures(lambda seed: gated_pair(num_gates, seed=seed)):
        assert max(law.sizes_together(structure)) == 1
        # The pairs beside the block stand.
        assert len(structure.unresolved) == len(law.block)
        assert structure.certificate.reason


@pytest.mark.slow
@pytest.mark.parametrize("num_gates", [16, 24])
@pytest.mark.parametrize("num_pairs", [10, 100])
def test_pairs_behind_many_gates_are_found_out_at_several_sizes(
    num_gates: int, num_pairs: int
) -> None:
    for law, structure in structures(
        lambda seed: gated_pair(num_gates, num_pairs=num_pairs, seed=seed), range(8)
    ):
        assert max(law.sizes_together(structure)) == 1


@pytest.mark.parametrize("size", [3, 12, pytest.param(24, marks=pytest.mark.slow)])
def test_a_topic_of_a_part_is_kept(size: int) -> None:
    for law, structure in structures(lambda seed: block_topic(size, seed=seed)):
        # A few of many may be committed together once the others, committed singly, say the topic:
        # by then they are independent, and nothing is broken.
        assert law.nats_broken(structure.order.batches) < 1e-9
        assert law.nats_broken([law.block]) > 1
        assert len(structure.unresolved) <= len(law.block) + 4
        # The block shows one token in 99% of the sequences of the law: fewer than 58 of 64 do with
        # a chance below 1e-5.
        drawn = cp.sample(law.oracle, structure, 64, seed=cp.Streams(1, 2), progress=False)
        block = drawn.sequences[:, law.block]
        assert (block == block[:, :1]).all(axis=1).sum() >= 58


@pytest.mark.slow
@pytest.mark.parametrize(("size", "num_pairs"), [(6, 100), (24, 100), (60, 20)])
def test_topics_of_parts_are_found_out_at_several_sizes(size: int, num_pairs: int) -> None:
    for law, structure in structures(
        lambda seed: block_topic(size, num_pairs=num_pairs, seed=seed), range(6)
    ):
        assert law.nats_broken(structure.order.batches) < 1e-9


@pytest.mark.parametrize("size", [3, 5, 8, 12])
def test_a_parity_beside_pairs_is_committed_singly(size: int) -> None:
    for law, structure in structures(lambda seed: soft_parity(size, seed=seed)):
        assert max(law.sizes_together(structure)) == 1
        assert len(structure.unresolved) == size


@pytest.mark.parametrize("num_gates", [8, 16])
def test_a_structure_refuses_an_oracle_that_differs_only_under_the_law(num_gates: int) -> None:
    for seed in SEEDS:
        free = gated_pair(num_gates, strength=0.0, seed=seed)
        structure = cp.discover(free.oracle, cp.Streams.from_seed(seed), mode="exact")
        assert len(structure.unresolved) == 0
        cp.discovery.check_oracle(structure, free.oracle)
        other = gated_pair(num_gates, seed=seed).oracle
        with pytest.raises(cp.StructureError, match="discover the structure of this oracle"):
            cp.discovery.check_oracle(structure, other)
        with pytest.raises(cp.StructureError, match="discover the structure of this oracle"):
            cp.sample(other, structure, 4, seed=cp.Streams(1, 2))
        # By the rehearsal alone, too: an old file may have stored no telling reply.
        with pytest.raises(cp.StructureError, match="depends on what it should not"):
            rehearsed(structure, other)


@pytest.mark.slow
def test_a_pair_behind_gates_is_drawn_as_the_law_has_it() -> None:
    # Deliberately statistical: 600 draws, seed fixed; P(equal) is 0.79 under the law and 0.25 for
    # independent draws, so the bound 0.7 is five standard errors from either.
    law = gated_pair(8, seed=2)
    structure = cp.discover(law.oracle, cp.Streams.from_seed(2), mode="exact")
    drawn = cp.sample(law.oracle, structure, 600, seed=cp.Streams(3, 4))
    first, second = drawn.sequences[:, law.block[0]], drawn.sequences[:, law.block[1]]
    assert np.mean(first == second) > 0.7


def test_what_is_assumed_is_one_sentence_everywhere() -> None:
    law = cp.families.path(60, target_seed=1)
    structure = cp.discover(law.oracle(), mode="exact")
    assert structure.summary()["assumption"] == structure.assumption == ASSUMPTION
    drawn = cp.sample(law.oracle(), structure, 2, seed=cp.Streams(1, 2))
    assert all(ASSUMPTION in result.notes for result in drawn.results)
    result = cp.samplers.Compressed()(cp.run.Run(law.oracle()), cp.Streams(1, 2))
    assert ASSUMPTION in result.notes


# ----- The states themselves ------------------------------------------------------------------


@pytest.mark.parametrize("num_free", [2, 3, 9, 64, 500])
def test_sizes_and_shares_cover_their_range(num_free: int) -> None:
    sizes, shares = shown_sizes(num_free, 0.01), hidden_shares(num_free, 0.01)
    assert (np.diff(sizes) >= 0).all() and sizes[0] == 1
    assert sizes[-1] == max(1, round(num_free / 8))
    assert (shares * num_free >= 1 - 1e-9).all() and (shares <= 1 / 8).all()
    assert rehearsal_cost(num_free, 0.01) == len(sizes) + len(shares)
    assert len(shown_sizes(num_free, 1e-4)) >= 2 * len(sizes) - 1
    shown = show_few(num_free, sizes, np.random.default_rng(0))
    np.testing.assert_array_equal(shown.sum(axis=1), sizes)


def test_a_block_of_any_size_stays_unseen_as_rarely_as_stated() -> None:
    # The chance that no state shows exactly one of m positions, by the hypergeometric law.
    num_free = 2048
    for size in (4, 8, 30, 100, 300):
        log_unseen = 0.0
        for shown in shown_sizes(num_free, 0.01).tolist():
            one = size * math.comb(num_free - size, shown - 1) / math.comb(num_free, shown)
            log_unseen += math.log1p(-one)
        inside = 30 <= size <= 300
        assert math.exp(log_unseen) < (0.015 if inside else 0.15)
