"""States that an oracle calls impossible: found, noted, charged once."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.refusals import Refusals

MASK = cp.MASK
pytestmark = pytest.mark.filterwarnings("ignore::counterprobe.ZeroProbabilityWarning")


@pytest.fixture
def copies() -> cp.TableLaw:
    """Three tokens, of which the first two are equal."""
    table = np.zeros((3, 3, 3))
    table[np.arange(3), np.arange(3)] = np.arange(1.0, 10.0).reshape(3, 3)
    return cp.TableLaw(table)


def every_pair() -> np.ndarray:
    states = np.full((9, 3), MASK)
    states[:, 0], states[:, 1] = np.divmod(np.arange(9), 3)
    return states


@pytest.mark.parametrize("seed", range(20))
def test_possible_states_are_answered_and_the_others_noted(copies, seed):
    rng = np.random.default_rng(seed)
    states = rng.permutation(np.concatenate([every_pair(), every_pair()]))[: 1 + seed % 10]
    is_possible = states[:, 0] == states[:, 1]
    run = cp.Unmasking(copies.oracle())
    refusals = Refusals()
    rows = run.probe(states, [2], refusals).dense()
    assert len(rows) == len(states)
    for k in np.flatnonzero(is_possible):
        assert rows[k].tolist() == copies.conditional(states[k], [2]).tolist()
    assert refusals.states == np.flatnonzero(~is_possible).tolist()
    assert (run.ledger.probes, run.ledger.depth) == (len(states), 1)
    assert run.ledger.rows_read == is_possible.sum()
    assert run.transcript.replay() == run.ledger


def test_without_a_place_to_note_them_impossible_states_are_an_error(copies):
    with pytest.raises(cp.ImpossibleState, match="x0=0, x1=1 has probability zero"):
        cp.Unmasking(copies.oracle()).probe(every_pair(), [2])


def test_only_a_refused_state_that_is_reached_is_an_error(copies):
    refusals = Refusals()
    cp.Unmasking(copies.oracle()).probe(every_pair(), [2], refusals)
    refusals.require_answered(1)
    with pytest.raises(cp.ImpossibleState, match="x0=0, x1=1"):
        refusals.require_answered(2)


def test_requests_answered_ahead_are_asked_again_one_by_one(copies):
    class Streaming(cp.testing.CountingOracle):
        def stream(self, requests):
            asked = list(requests)
            yield from [self.rows(*request) for request in asked]

    run = cp.Unmasking(Streaming(copies.oracle()))
    noted = [Refusals() for _ in range(3)]
    requests = [
        cp.Request(every_pair()[3 * k : 3 * k + 3], cp.Readouts.same(3, [2]), refusals=noted[k])
        for k in range(3)
    ]
    run.stage(requests, lambda request, rows: None)
    assert [refusals.states for refusals in noted] == [[1, 2], [0, 2], [0, 1]]
    assert run.ledger.probes == 9
