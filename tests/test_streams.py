"""Randomness by purpose: what moves a stream, and what must not."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.streams import STREAMS_VERSION, keyed_generator, require_streams

EVERYWHERE = np.arange(40)


def draws(streams: cp.Streams, purpose: str, *index: int) -> list[float]:
    return streams.decisions(purpose, *index).random(4).tolist()


def test_decisions_depend_on_the_decision_seed_alone():
    assert draws(cp.Streams(1, 2), "order") == draws(cp.Streams(1, 99), "order")
    assert draws(cp.Streams(1, 2), "order") != draws(cp.Streams(3, 2), "order")
    assert not hasattr(cp.Streams(1, 2).decisions, "commit_seed")


def test_each_purpose_and_index_has_its_own_generator():
    streams = cp.Streams(5, 6)
    keys = [("order",), ("coloring",), ("coloring", 0), ("coloring", 1), ("coloring", 0, 1)]
    assert len({tuple(draws(streams, *key)) for key in keys}) == len(keys)


def test_how_much_one_round_drew_never_shifts_the_next():
    streams = cp.Streams(5, 6)
    before = draws(streams, "coloring", 1)
    streams.decisions("coloring", 0).random(1000)
    assert draws(streams, "coloring", 1) == before


def test_decisions_cannot_ask_for_commit_noise():
    with pytest.raises(ValueError, match="'commit' is reserved"):
        cp.Streams(7, 7).decisions("commit", 0, 0)


def test_commit_uniforms_depend_on_seed_sequence_and_draw():
    def key(seed: int, sequence: int, draw: int) -> tuple[float, ...]:
        noise = cp.Streams(0, seed).commit_noise(40, sequence)
        return tuple(noise.uniforms(EVERYWHERE, draw))

    keys = [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1), (0, 1, 1)]
    columns = [key(*k) for k in keys]
    assert len(set(columns)) == len(keys)
    assert len({u for column in columns for u in column}) == 40 * len(keys)
    assert all(0 <= u < 1 for column in columns for u in column)
    assert key(1, 0, 0) == key(1, 0, 0)


def test_commit_uniforms_ignore_the_decision_seed():
    one = cp.Streams(1, 9).commit_noise(40).uniforms(EVERYWHERE)
    other = cp.Streams(2, 9).commit_noise(40).uniforms(EVERYWHERE)
    assert (one == other).all()


def test_commit_uniforms_do_not_depend_on_how_a_batch_is_split():
    whole = cp.Streams(1, 2).commit_noise(40).uniforms(EVERYWHERE)
    noise = cp.Streams(1, 2).commit_noise(40)
    order = np.random.default_rng(0).permutation(40)
    noise.uniforms(EVERYWHERE, draw=3)
    for part in np.array_split(order, 7):
        assert (noise.uniforms(part) == whole[part]).all()


def test_commit_uniforms_of_a_shorter_sequence_are_a_prefix():
    short = cp.Streams(1, 2).commit_noise(10).uniforms(np.arange(10))
    assert (short == cp.Streams(1, 2).commit_noise(40).uniforms(np.arange(10))).all()


def test_one_seed_sets_every_stream():
    streams = cp.Streams.from_seed(3)
    assert streams == cp.Streams.from_seed(3)
    assert streams.decision_seed != streams.commit_seed
    other = cp.Streams.from_seed(4)
    assert streams.decision_seed != other.decision_seed
    assert streams.commit_seed != other.commit_seed


@pytest.mark.parametrize("seed", [-1, 1.5, True, "1", None])
def test_seeds_are_non_negative_integers(seed):
    with pytest.raises(ValueError, match="decision_seed must be a non-negative integer"):
        cp.Streams(seed, 0)
    with pytest.raises(ValueError, match="commit_seed must be a non-negative integer"):
        cp.Streams(0, seed)
    with pytest.raises(ValueError, match=r"^seed must be a non-negative integer"):
        cp.Streams.from_seed(seed)


def test_fixed_seeds_keep_their_values():
    # A change here alters what users draw: raise STREAMS_VERSION and say so in the changelog.
    assert STREAMS_VERSION == 2
    assert keyed_generator(1, "order", 2).integers(1000, size=4).tolist() == [148, 114, 111, 225]
    uniforms = cp.Streams(1, 2).commit_noise(3, sequence=4).uniforms(np.arange(3), draw=5)
    assert uniforms.round(12).tolist() == [0.310451743824, 0.135740161575, 0.979436377507]


def test_exponentials_belong_to_position_and_entry_whatever_else_is_asked():
    noise = cp.Streams(1, 2).commit_noise(40, sequence=4)
    whole = noise.exponentials(EVERYWHERE, 6)
    assert whole.shape == (40, 6)
    assert (whole >= 0).all() and len(np.unique(whole)) == whole.size
    assert np.array_equal(noise.exponentials(np.array([7, 3]), 6), whole[[7, 3]])
    assert np.array_equal(noise.exponentials(np.array([7]), 2), whole[[7], :2])
    for other in (cp.Streams(1, 3).commit_noise(40, 4), cp.Streams(1, 2).commit_noise(40, 5)):
        assert not np.isin(other.exponentials(EVERYWHERE, 6), whole).any()


def test_a_stream_of_its_own_depends_on_its_whole_index():
    noise = cp.Streams(1, 2).commit_noise(40)
    first = {index: noise.generator(*index).random() for index in [(), (0,), (0, 0), (1,), (0, 1)]}
    assert len(set(first.values())) == len(first)
    assert noise.generator(0, 1).random() == first[0, 1]
    drawn = {noise.uniforms(EVERYWHERE, draw)[0] for draw in range(3)}
    assert drawn.isdisjoint(first.values())
    assert cp.Streams(5, 2).commit_noise(40).generator().random() == first[()]
    assert cp.Streams(1, 2).commit_noise(40, 1).generator().random() != first[()]


def test_fresh_decisions_differ_by_sequence_and_seed_and_keep_the_commit_seed():
    cases = [(seed, sequence) for seed in (1, 3) for sequence in (0, 1)]
    fresh = {case: cp.Streams(case[0], 2).with_fresh_decisions(case[1]) for case in cases}
    assert len({streams.decision_seed for streams in fresh.values()}) == 4
    assert {streams.commit_seed for streams in fresh.values()} == {2}
    other = cp.Streams(1, 7).with_fresh_decisions(0)
    assert (other.decision_seed, other.commit_seed) == (fresh[1, 0].decision_seed, 7)


def test_fixed_seeds_keep_their_exponentials_and_fresh_decisions():
    # As above: a change alters what users draw.
    drawn = cp.Streams(1, 2).commit_noise(40).exponentials(np.array([3]), 2)
    assert drawn.round(12).tolist() == [[0.388816771193, 0.039038902065]]
    assert cp.Streams(1, 2).with_fresh_decisions(1) == cp.Streams(5501585685305528746, 2)
    own = cp.Streams(1, 2).commit_noise(40).generator(3)
    assert own.integers(10**6, size=3).tolist() == [169884, 93875, 644281]


def test_an_input_has_a_commit_seed_of_its_own_and_the_decisions_of_all():
    inputs = [(bytes([k] * 16), occurrence) for k in range(3) for occurrence in range(3)]
    streams = [cp.Streams(1, seed).of_input(*one) for seed in (2, 3) for one in inputs]
    assert {one.decision_seed for one in streams} == {1}
    assert len({one.commit_seed for one in streams} | {2, 3}) == 20
    # A change alters what users draw.
    assert cp.Streams(1, 2).of_input(bytes(range(16)), 1) == cp.Streams(1, 3888406611868249112)


def test_what_is_no_streams_is_refused_with_the_call_that_makes_one():
    with pytest.raises(ValueError, match=r"got 7; from one seed: Streams.from_seed\(7\)"):
        require_streams(7)
    with pytest.raises(ValueError, match=r"got None; from one seed: Streams.from_seed\(seed\)"):
        require_streams(None)
