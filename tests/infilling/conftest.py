"""Models whose law is known, and counters of what they are asked."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe.models import Letters, SequenceModel


@pytest.fixture
def forest_law() -> cp.ForestLaw:
    rng = np.random.default_rng(5)
    edges = [(0, 1), (1, 2), (3, 4)]
    return cp.ForestLaw(
        np.exp(rng.normal(size=(5, 3))), edges, np.exp(2 * rng.normal(size=(3, 3, 3)))
    )


@pytest.fixture
def spelled() -> Callable[[cp.ForestLaw], SequenceModel]:
    """Return what makes a model with letters of a law; ``network.calls`` counts its states."""

    def spelled(law: cp.ForestLaw) -> SequenceModel:
        def network(ids: torch.Tensor) -> torch.Tensor:
            states = np.where(ids.numpy() == law.vocab_size, cp.MASK, ids.numpy())
            network.states += len(states)
            readouts = cp.Readouts.every_masked(states)
            logits = torch.zeros((*ids.shape, law.vocab_size), dtype=torch.float64)
            rows = law.oracle().rows(states.astype(np.int32), readouts).dense()
            logits[readouts.state_index, readouts.position] = torch.from_numpy(np.log(rows))
            return logits

        network.states = 0
        letters = Letters("ABC"[: law.vocab_size], tuple(range(law.vocab_size)), law.vocab_size)
        return SequenceModel("exact letters", network, letters, law.length)

    return spelled
