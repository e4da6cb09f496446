"""Portions of a lockstep: the same tokens, seeds and ledgers as the whole, finished earlier."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.joining import portions


@pytest.mark.parametrize(("sampler", "orders"), [
    ("spread", "shared"), ("sequential", "shared"), ("sequential", 3), ("spread", 4),
    ("spread", 7),
])  # fmt: skip
def test_portions_draw_what_the_whole_draws(sampler, orders):
    draw = np.random.default_rng(0)
    law = cp.TableLaw(draw.dirichlet(np.ones(3**5)).reshape((3,) * 5))
    how = {"count": 23, "seed": 5, "orders": orders, "at_once": 5, "log_probs": True}
    whole = cp.sample(law.oracle(), sampler, progress=False, **how)
    seen, told = [], []
    parts = cp.sample(law.oracle(), sampler, on_finished=seen.append, progress=told.append, **how)
    assert np.array_equal(whole.sequences, parts.sequences)
    assert np.array_equal(whole.token_log_probs, parts.token_log_probs)
    assert whole.ledger == parts.ledger and whole.ledgers == parts.ledgers
    assert [r.streams for r in whole.results] == [r.streams for r in parts.results]
    assert [r.sequence for r in parts.results] == [*range(23)]
    assert len(seen) > 4 and max(map(len, seen)) <= 5, "a few are finished at a time"
    finished = [(r.sequence, tuple(r.tokens)) for one in seen for r in one.results]
    assert finished == [(k, tuple(tokens)) for k, tokens in enumerate(whole.sequences)]
    committed = [now.committed for now in told]
    assert committed == sorted(committed) and committed[-1] == told[-1].masked == 23 * 5
    assert told[-1].ledger.total == whole.ledger.total


@pytest.mark.parametrize(("count", "groups", "at_once"), [(1, 1, 1), (10, 3, 4), (7, 7, 3)])
def test_every_sequence_is_in_one_portion_of_its_groups(count, groups, at_once):
    found = list(portions(count, groups, at_once))
    assert [k for one in found for k in range(one.low, one.high)] == [*range(count)]
    group_of = np.repeat(
        np.arange(groups), [len(part) for part in np.array_split(np.arange(count), groups)]
    )
    for one in found:
        assert one.high - one.low <= at_once
        mine = group_of[one.low : one.high]
        assert (mine[0], mine[-1] + 1) == (one.first_group, one.last_group)
