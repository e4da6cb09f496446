"""Drafts: what they may see, what is refused, and where their tokens go."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.banks import read_banks
from counterprobe.discovery.packed.fillers import (
    FillerContext,
    make_filler,
    most_likely_filler,
    rare_filler,
)
from counterprobe.samplers.packed import Packed, run_packed

STREAMS = cp.Streams(31, 32)


@pytest.fixture
def context() -> FillerContext:
    """Five positions over four tokens, the second and the last one committed."""
    marginals = np.tile([0.1, 0.4, 0.4, 0.1], (5, 1))
    marginals[3] = 0.7, 0.1, 0.1, 0.1
    oracle = cp.CallableOracle(lambda s: np.broadcast_to(marginals, (len(s), 5, 4)), 5, 4)
    state = np.array([cp.MASK, 3, cp.MASK, cp.MASK, 0], dtype=np.int32)
    return FillerContext(state, cp.run.Run(oracle, given=state).call(read_banks, 0.3, 0.0))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_standard_filler_is_the_most_likely_token_with_ties_to_the_smallest(context, rng):
    filler = make_filler(most_likely_filler, context, rng, 4)
    assert filler.tolist() == [1, 3, 1, 0, 0]
    assert filler.dtype == np.int64


def test_committed_positions_take_their_values_whatever_a_filler_says(context, rng):
    # A filler need not know the history: what it says of a committed position is not even checked.
    filler = make_filler(lambda c, r: np.array([2, -1, 3, 0, 99]), context, rng, 4)
    assert filler.tolist() == [2, 3, 3, 0, 0]


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ([0, 1, 2], r"5 tokens, got shape \(3,\)"),
        ([[0, 1, 2, 3, 0]], r"5 tokens, got shape \(1, 5\)"),
        (2, r"5 tokens, got shape \(\)"),
        ([0.0, 1.0, 2.0, 3.0, 0.0], "dtype float64"),
        ([True, False, True, False, True], "dtype bool"),
        ([4, 0, 0, 0, 0], r"lie in 0..3, got 0..4"),
        ([0, 0, cp.MASK, 0, 0], r"lie in 0..3, got -1..3"),
    ],
)
def test_bad_fillers_are_refused(reply, complaint, context, rng):
    with pytest.raises(ValueError, match=complaint):
        make_filler(lambda c, r: reply, context, rng, 4)


def test_a_filler_cannot_change_what_preprocessing_learned(context, rng):
    def careless(context, rng):
        context.banks.most_likely[0] = 3
        return context.banks.most_likely

    with pytest.raises(ValueError, match="read-only"):
        make_filler(careless, context, rng, 4)


# ----- In a run -------------------------------------------------------------------------------


# So many sequences share a screen that it pays at any size.
SHARED = {"shared_by": 10**6}


def run_with(filler, law, oracle=None, **settings):
    """Run the box with a filler of one's own; return the run and its report."""
    run = cp.run.Run(law.oracle() if oracle is None else oracle)
    run.begin(STREAMS)
    plan = Packed(**settings, **SHARED).setup(run.length, run.vocab_size, run.row_error)
    return run, run.call(run_packed, STREAMS.decisions, plan, filler=filler)


@pytest.fixture
def star() -> cp.ForestLaw:
    """One hub and nine leaves: with a cutoff of 4 the hub is peeled, and a second screen comes."""
    edges = [[0, i] for i in range(1, 10)]
    return cp.families.from_edges(10, edges, np.full(9, 0.4), 5, relabel=False)


def test_a_filler_sees_the_history_and_the_number_of_screens(star):
    seen = []

    def filler(context, rng):
        seen.append((len(context.earlier), context.state))
        return most_likely_filler(context, rng)

    run, report = run_with(filler, star, degree_cutoff=4, num_colorings=40)
    assert [index for index, _ in seen] == [0, 1] == list(range(len(report.screens)))
    assert (seen[0][1] == cp.MASK).all()
    assert np.flatnonzero(seen[1][1] != cp.MASK).tolist() == [0]
    assert seen[1][1][0] == run.state[0]


def test_filler_tokens_are_the_background_of_every_probe(star, counted):
    # Token 77 is in no bank and no tail: it can only come from the filler.
    oracle = counted(star.oracle())
    _, report = run_with(
        lambda context, rng: np.full(10, 77), star, oracle, degree_cutoff=4, num_colors=8
    )
    assert len(report.screens) == 2
    probes = [states for states in oracle.seen if (states == 77).any()]
    assert sum(len(states) for states in probes) == sum(s.probes for s in report.screens)
    values = set(np.unique(np.concatenate(probes)).tolist())
    assert {cp.MASK, 0, 1, 2, 77} <= values


def test_filler_tokens_are_never_committed():
    # Token 3 has no mass at all, so that it can only come from the filler.
    marginals = np.array([0.4, 0.3, 0.3, 0.0])
    oracle = cp.CallableOracle(
        lambda s: np.broadcast_to(marginals, (len(s), 6, 4)), 6, 4, trusted=True
    )
    run = cp.run.Run(oracle)
    run.begin(STREAMS)
    plan = Packed(bank_threshold=0.2, **SHARED).setup(6, 4, oracle.row_error)
    run.call(run_packed, STREAMS.decisions, plan, filler=lambda c, r: np.full(6, 3))
    assert run.is_complete
    assert (run.state < 3).all()


def test_filler_randomness_is_its_own(star, counted):
    # A filler that draws a lot leaves the colors alone; another decision seed changes its draws.
    draws, colors = [], []
    for greedy in (0, 1000):
        for seed in (1, 2):
            streams = cp.Streams(seed, 3)

            def filler(context, rng, amount=greedy):
                rng.random(amount)
                draws.append(rng.random())
                return context.banks.most_likely

            run = cp.run.Run(star.oracle(), keep_notes=True)
            run.begin(streams)
            plan = Packed(**SHARED).setup(run.length, run.vocab_size, run.row_error)
            run.call(run_packed, streams.decisions, plan, filler=filler)
            notes = [note for note in run.transcript.notes if note.name == "screen"]
            colors.append(notes[0].content["colors"])
    np.testing.assert_array_equal(colors[0], colors[2])
    np.testing.assert_array_equal(colors[1], colors[3])
    assert not np.array_equal(colors[0], colors[1])
    assert len(set(draws)) == len(draws)


def test_a_bad_filler_stops_a_run_before_its_first_probe(star):
    run = cp.run.Run(star.oracle())
    run.begin(STREAMS)
    plan = Packed(**SHARED).setup(run.length, run.vocab_size, run.row_error)
    with pytest.raises(ValueError, match="a filler must return 10 tokens"):
        run.call(run_packed, STREAMS.decisions, plan, filler=lambda c, r: np.zeros(3, dtype=int))
    assert run.ledger.probes == run.ledger.commits == 0


def rare_choices(threshold: float, marginals: list[float]) -> list[set[int]]:
    """Every token that the rare filler gave each of two positions over many draws."""
    law = np.array([marginals, marginals[::-1]])
    size = len(marginals)
    oracle = cp.CallableOracle(lambda s: np.broadcast_to(law, (len(s), 2, size)), 2, size)
    run = cp.run.Run(oracle)
    context = FillerContext(run.state, run.call(read_banks, threshold, 0.0))
    draws = [rare_filler(context, np.random.default_rng(k)) for k in range(200)]
    return [set(column.tolist()) for column in np.array(draws).T]


def test_rare_filler_avoids_bank_and_tail_and_reaches_everything_else():
    # Banks {1, 3} and {2, 4}; tails 0 and 0.
    assert rare_choices(0.2, [0.1, 0.3, 0.1, 0.3, 0.1, 0.1]) == [{2, 4, 5}, {1, 3, 5}]
    # Empty banks: everything but the tail, which is token 0.
    assert rare_choices(0.9, [0.1, 0.3, 0.1, 0.3, 0.1, 0.1]) == [{1, 2, 3, 4, 5}] * 2


def test_rare_filler_falls_back_on_the_most_likely_token_where_nothing_is_left():
    assert rare_choices(0.0, [0.2, 0.5, 0.3]) == [{1}, {1}]  # every token is in the bank
    assert rare_choices(0.25, [0.2, 0.5, 0.3]) == [{1}, {1}]  # the tail takes the last one


def test_the_rare_filler_is_a_setting_of_the_tuned_sampler():
    law = cp.families.path(96, 5)
    plain = Packed(num_colors=3, num_colorings=2)(cp.run.Run(law.oracle()), STREAMS)
    rare = Packed(num_colors=3, num_colorings=2, filler="rare")(cp.run.Run(law.oracle()), STREAMS)
    assert plain.ledger.evaluations == rare.ledger.evaluations
    assert rare.settings["filler"] == "rare"
    with pytest.raises(ValueError, match="filler must be one of most-likely, rare; got 'none'"):
        Packed(filler="none")
