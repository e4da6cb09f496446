"""Many sequences with what they cost."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp

MASK = cp.MASK


@pytest.fixture(params=["one-batch", "punt", "stopped"])
def batch(request: pytest.FixtureRequest, law) -> cp.SampleBatch:
    """Sequences drawn together, side by side, and stopped by a budget."""
    given = np.full((4, law.length), MASK)
    given[:, 1] = [0, 1, 0, 1]
    name = "sequential" if request.param == "stopped" else request.param
    most = 2 if request.param == "stopped" else None
    return cp.sample(
        law.oracle(), name, 4, given=given, seed=3, max_evaluations=most, progress=False
    )


def test_a_batch_says_in_one_line_what_it_is():
    law = cp.families.path(2000, target_seed=1)
    batch = cp.sample(law.oracle(), "random-balanced", 3, batches=4, progress=False)
    text = repr(batch)
    assert len(text) < 300
    assert text.startswith("SampleBatch(3 x 2000 by random-balanced, all completed; 12 evalu")
    stopped = cp.sample(law.oracle(), "sequential", 3, max_evaluations=4, progress=False)
    assert "0 completed, budget-spent" in repr(stopped)
    assert "_ _ _" not in repr(stopped)  # nothing that looks like a result
    alone = cp.sample(law.oracle(), "one-batch", 1, progress=False)
    assert repr(alone).startswith("SampleBatch(1 x 2000 by one-batch, all completed; 1 evalu")


def test_a_batch_cannot_be_edited_and_survives_pickling(batch):
    with pytest.raises(ValueError, match="read-only"):
        batch.sequences[0, 0] = 1
    with pytest.raises(AttributeError):
        batch.ledger = cp.Ledger()
    again = pickle.loads(pickle.dumps(batch))
    assert again.sequences.tolist() == batch.sequences.tolist()
    assert again.ledgers == batch.ledgers


def test_log_probs_are_the_sums_over_what_was_drawn(law):
    drawn = cp.sample(law.oracle(), "one-batch", 3, seed=3, progress=False)
    assert drawn.log_probs is None
    scores = -np.arange(3.0 * law.length).reshape(3, law.length)
    scores[1, 0] = scores[2] = np.nan
    scored = replace(drawn, token_log_probs=scores)
    assert scored.log_probs.tolist() == [
        -sum(range(law.length)), -sum(range(law.length + 1, 2 * law.length)), 0.0,
    ]  # fmt: skip


def test_a_batch_counts_what_it_completed_and_what_that_took(law):
    drawn = cp.sample(law.oracle(), "one-batch", 3, seed=3, progress=False)
    states = drawn.sequences.copy()
    states[1, 0] = MASK
    some = replace(drawn, sequences=states)
    assert (some.num_completed, drawn.num_completed, len(some)) == (2, 3, 3)
    assert some.tokens_per_forward == (3 * law.length - 1) / 3
    assert math.isnan(replace(some, ledger=cp.Ledger()).tokens_per_forward)
    assert some.summary() == {
        "sampler": "one-batch", "settings": drawn.results[0].settings, "count": 3, "completed": 2,
        "tokens_per_forward": some.tokens_per_forward, **drawn.ledger.as_dict(),
    }  # fmt: skip
