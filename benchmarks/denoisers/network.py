"""The denoiser: a small transformer encoder that reads tokens and masks and gives logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["Denoiser", "Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a denoiser.

    Parameters
    ----------
    length, vocab_size : int
        Of the sequences; id ``vocab_size`` is the mask.
    width, layers, heads : int
    """

    length: int
    vocab_size: int
    width: int = 128
    layers: int = 4
    heads: int = 4


class Denoiser(nn.Module):
    """Embeddings of token and position, pre-norm encoder layers, an output bias a position.

    The bias lets the network have the marginals right from the start.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocab_size + 1, shape.width)
        # As large as tokens: attention looks for positions first, and so learns much faster.
        self.positions = nn.Parameter(torch.randn(shape.length, shape.width))
        layer = nn.TransformerEncoderLayer(
            shape.width,
            shape.heads,
            4 * shape.width,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, shape.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(shape.width)
        self.output = nn.Linear(shape.width, shape.vocab_size)
        self.bias = nn.Parameter(torch.zeros(shape.length, shape.vocab_size))

    @property
    def mask_id(self) -> int:
        """The id that stands for a masked position."""
        return self.shape.vocab_size

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits of shape (B, N, V) for ids of shape (B, N)."""
        hidden = self.encoder(self.tokens(ids) + self.positions)
        return self.output(self.norm(hidden)) + self.bias

    def log_rows(self, states: Tensor, at_once: int = 4096) -> Tensor:
        """Return log-rows in double precision for states with -1 at masks, without gradients."""
        with torch.inference_mode():
            parts = [
                self(torch.where(part < 0, self.mask_id, part)).double().log_softmax(dim=-1)
                for part in states.split(at_once)
            ]
            return torch.cat(parts)
