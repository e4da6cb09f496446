"""Rounds that an oracle draws by itself are those that a run would have committed one by one."""

from typing import ClassVar

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import MASK
from counterprobe.errors import OracleError
from counterprobe.oracles import Drawing, Drawn
from counterprobe.run import CommitAll
from counterprobe.samplers import Sampler
from drawing_itself import DrawsItself

N = 12


@pytest.fixture
def law() -> cp.ForestLaw:
    return cp.families.path(length=N, target_seed=3)


class Plans(Sampler):
    """Batches of its own in every group: cuts of a random order."""

    name: ClassVar[str] = "plans"
    summary: ClassVar[str] = "random cuts"
    source: ClassVar[str] = "a test"

    def unmask(self, view, rng):
        order = rng("order").permutation(view.residual)
        yield CommitAll(np.array_split(order, int(rng("number").integers(1, 5))))


@pytest.mark.parametrize("at_once", [256, 2])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("given", [None, np.r_[MASK, MASK, 1, 1, 1, np.full(N - 5, MASK)]])
def test_groups_with_a_plan_each(law, at_once, temperature, given):
    mine, theirs = (
        cp.sample(
            oracle, Plans(), 5, seed=cp.Streams(1, 2), orders=3, at_once=at_once,
            temperature=temperature, given=given, log_probs=True,
        )
        for oracle in (DrawsItself(law.oracle()), law.oracle())
    )  # fmt: skip
    np.testing.assert_array_equal(mine.sequences, theirs.sequences)
    assert mine.ledger == theirs.ledger
    assert mine.ledgers == theirs.ledgers
    np.testing.assert_allclose(mine.log_probs, theirs.log_probs)
    np.testing.assert_allclose(mine.scores, theirs.scores)
    for a, b in zip(mine.results, theirs.results, strict=True):
        np.testing.assert_array_equal(a.round_of_position, b.round_of_position)
        for left, right in zip(a.transcript.events, b.transcript.events, strict=True):
            np.testing.assert_array_equal(left.fingerprints, right.fingerprints)


@pytest.mark.parametrize(
    "options", [{"max_evaluations": 1}, {"temperature": 0}, {"on_event": lambda event: None}]
)
def test_what_has_to_be_done_round_by_round_is_drawn_so(law, options):
    oracle = DrawsItself(law.oracle())
    cp.sample(oracle, "random-balanced", 3, batches=4, seed=5, progress=False, **options)
    assert oracle.num_drawn == 0


def test_sample_uses_it_unless_somebody_stands_between(law, tmp_path):
    oracle = DrawsItself(law.oracle())
    drawn = cp.sample(oracle, "random-balanced", 3, batches=4, seed=5)
    assert oracle.num_drawn == 1
    plain = cp.sample(law.oracle(), "random-balanced", 3, batches=4, seed=5)
    np.testing.assert_array_equal(drawn.sequences, plain.sequences)
    assert drawn.ledger == plain.ledger
    alone = cp.sample(oracle, "random-balanced", 1, batches=4, seed=5)
    np.testing.assert_array_equal(alone.sequences[0], plain.sequences[0])
    assert oracle.num_drawn == 2
    for around in (
        oracle.cached(tmp_path / "replies"),
        oracle.retrying(2),
        oracle.rechecking(1.0),
    ):
        again = cp.sample(around, "random-balanced", 3, batches=4, seed=5)
        np.testing.assert_array_equal(again.sequences, plain.sequences)
    assert oracle.num_drawn == 2


def test_what_is_no_token_is_refused(law):
    class Wrong(DrawsItself):
        def draw(self, states, drawing: Drawing) -> Drawn:
            drawn = super().draw(states, drawing)
            drawn.tokens[0, 0] = self.vocab_size
            return drawn

    with pytest.raises(OracleError, match="no token"):
        cp.sample(Wrong(law.oracle()), "random-balanced", 3, batches=4)
