"""The hidden topic's rows are those of its joint table."""

import numpy as np
import pytest

import counterprobe as cp
from hidden_topic import HiddenTopic


@pytest.mark.parametrize(
    "topic", [HiddenTopic.concentrated(4, 3), HiddenTopic.with_equal_marginals(4)]
)
def test_rows_are_those_of_the_joint_table(topic: HiddenTopic) -> None:
    draw = np.random.default_rng(0)
    states = np.where(draw.random((40, 4)) < 0.5, cp.MASK, draw.integers(4, size=(40, 4)))
    states = states.astype(np.int32)
    readouts = cp.Readouts.every_masked(states)
    got = topic.rows(states, readouts).dense()
    wanted = topic.table_law().oracle().rows(states, readouts).dense()
    np.testing.assert_allclose(got, wanted, atol=1e-13)
