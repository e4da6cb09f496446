"""The uniforms of many sequences are NumPy's own, to the last bit."""

import numpy as np
import pytest

from counterprobe.philox import keyed_uniforms
from counterprobe.streams import Streams, commit_uniforms


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**63 + 5, 2**100 + 7, 2**130 + 9])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 33])
def test_rows_are_those_of_a_generator_each(seed: int, count: int) -> None:
    index = np.array([0, 1, 77, 2**32 - 1])
    found = keyed_uniforms(seed, (5, 2**40), index, (0, 3), count)
    for row, key in zip(found, index.tolist(), strict=True):
        source = np.random.SeedSequence(seed, spawn_key=(5, 2**40, key, 0, 3))
        expected = np.random.Generator(np.random.Philox(source)).random(count)
        np.testing.assert_array_equal(row, expected)


def test_sequences_have_the_noise_that_each_would_have_alone() -> None:
    streams = Streams(1, 2)
    found = commit_uniforms(streams, 21, np.array([3, 0, 9]))
    for row, sequence in zip(found, (3, 0, 9), strict=True):
        alone = streams.commit_noise(21, sequence).uniforms(np.arange(21))
        np.testing.assert_array_equal(row, alone)


def test_a_number_too_large_for_its_word_is_refused() -> None:
    with pytest.raises(ValueError, match="index must lie in"):
        commit_uniforms(Streams(1, 2), 5, np.array([2**32]))


def test_nobody_has_no_noise() -> None:
    assert commit_uniforms(Streams(1, 2), 5, np.arange(0)).shape == (0, 5)
