"""Small torch models with known behaviour."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe.oracles import Readouts


class TinyDenoiser(torch.nn.Module):
    """A small transformer over ``vocab_size`` tokens; the mask is the id after the last."""

    def __init__(self, length: int = 12, vocab_size: int = 7, *, extra_ids: int = 1) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(vocab_size + extra_ids, 16)
        self.place = torch.nn.Parameter(torch.randn(length, 16))
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
        self.head = torch.nn.Linear(16, vocab_size)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return 3 * self.head(self.layer(2 * self.embed(ids) + self.place[: ids.shape[1]]))


@pytest.fixture
def denoiser() -> Callable[..., TinyDenoiser]:
    """Return a factory of small transformers with fixed random weights."""

    def denoiser(length: int = 12, vocab_size: int = 7, **options) -> TinyDenoiser:
        with torch.random.fork_rng():
            torch.manual_seed(3)
            return TinyDenoiser(length, vocab_size, **options).eval()

    return denoiser


@pytest.fixture
def denoiser_of() -> Callable[[cp.ForestLaw], Callable[[torch.Tensor], torch.Tensor]]:
    """Return what turns an exact law into a model whose logits are its log-rows; mask V."""

    def denoiser_of(law: cp.ForestLaw) -> Callable[[torch.Tensor], torch.Tensor]:
        def model(ids: torch.Tensor) -> torch.Tensor:
            states = np.where(ids.numpy() == law.vocab_size, cp.MASK, ids.numpy())
            readouts = Readouts.every_masked(states)
            logits = torch.zeros((*ids.shape, law.vocab_size), dtype=torch.float64)
            rows = law.oracle().rows(states.astype(np.int32), readouts).dense()
            # Logits are known up to a constant.
            logits[readouts.state_index, readouts.position] = torch.from_numpy(np.log(rows) + 2)
            return logits

        return model

    return denoiser_of
