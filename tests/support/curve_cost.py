"""What a random order costs by an information curve: the sum that schedules make small."""

import numpy as np


def curve_cost(curve: np.ndarray, sizes: list[int]) -> float:
    """Return ``sum_k sum_{j < s_k} (h_{a_k} - h_{a_k + j})``: the expected KL."""
    assert sum(sizes) == len(curve) and min(sizes) >= 1
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    return float((curve[first] - curve).sum())
