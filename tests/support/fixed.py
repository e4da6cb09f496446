"""Batches of a rule that fixes all of them before any reply."""

import numpy as np

import counterprobe as cp
from counterprobe.run import Run
from counterprobe.samplers.base import fixed_batches


def batches_of(sampler: cp.samplers.Sampler, residual: np.ndarray, rng) -> list[np.ndarray]:
    """Return the batches that a sampler fixes for some residual positions, at least one."""
    given = np.zeros(int(residual.max()) + 1, dtype=np.int64)
    given[residual] = cp.MASK
    oracle = cp.CallableOracle(lambda states: np.full((*states.shape, 2), 0.5), len(given), 2)
    fixed = fixed_batches(sampler, Run(oracle, given=given), rng)
    assert fixed is not None
    return [np.asarray(batch) for batch in fixed.batches]
