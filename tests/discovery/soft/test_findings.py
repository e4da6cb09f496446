"""Settings refuse what they cannot use; findings cannot be changed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from counterprobe.discovery.soft import SoftSettings
from counterprobe.discovery.soft.findings import nothing_to_screen


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("probes", 0, "probes must be at least 1, got 0"),
        ("first", 2.5, "first must be a whole number, got 2.5"),
        ("shown", 0, "shown must be at least 1, got 0"),
        ("max_sources", -1, "max_sources must be at least 0, got -1"),
        ("mask_rate", 1.0, "mask_rate must lie strictly between 0 and 1, got 1.0"),
        ("false_discovery_rate", 0, "false_discovery_rate must lie strictly between 0 and 1"),
        ("held_out", 1, "held_out must lie strictly between 0 and 1, got 1"),
        ("floor", 1.5, r"floor must lie in \[0, 1\], got 1.5"),
        ("f_threshold", -1.0, "f_threshold must be finite and not negative, got -1.0"),
        ("f_threshold", float("inf"), "f_threshold must be finite and not negative, got inf"),
        ("f_threshold", float("nan"), "f_threshold must be finite and not negative, got nan"),
    ],
)
def test_impossible_settings_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SoftSettings(**{name: value})


def test_nothing_to_screen_is_nothing_found() -> None:
    found = nothing_to_screen(3)
    assert found.strength.shape == found.strength_se.shape == (3, 3)
    assert not found.strength.any() and not found.strength_se.any()
    assert found.edges.dtype == np.int64 and found.explained.tolist() == [0.0, 0.0, 0.0]
    assert (found.false_discovery_rate, found.noise_floor, found.num_probes) == (0.0, 0.0, 0)
    assert found.sample is None and found.batches == ()


def test_the_strength_of_an_edge_is_that_of_its_pair() -> None:
    strength = np.arange(9.0).reshape(3, 3)
    edges = np.array([[1, 2], [0, 2]])
    found = replace(nothing_to_screen(3), strength=strength + strength.T, edges=edges)
    assert found.edge_strength.tolist() == [12.0, 8.0]
