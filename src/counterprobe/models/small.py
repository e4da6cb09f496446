"""A small learned model that comes with the package and needs nothing but NumPy.

A transformer encoder of 0.8 million weights was trained to fill in masks of 64 tokens drawn from a
hidden tree (``benchmarks/denoiser.py train``); its matrices are kept as bytes with one scale for
each row (``tools/small_model.py``). It knows its law about as well as any trained model does, and
here the law is known too, so that what a sampler draws can be held against the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from counterprobe.arrays import StateArray
from counterprobe.oracles import CallableOracle
from counterprobe.states import MASK
from counterprobe.targets import ForestLaw

__all__ = ["SmallModel", "load_small_model"]

WEIGHTS = Path(__file__).parent / "data" / "tree.npz"
NUM_HEADS = 4
# States that go through the network at once: what stays in a cache.
BATCH = 16
# Generously what single precision does to a row in batches of another size.
ROUNDING = 1e-5

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class SmallModel:
    """A transformer in NumPy, and the law that it was trained on.

    Parameters
    ----------
    weights : dict of str to ndarray
        By the names that PyTorch gives them.
    law : ForestLaw
    """

    weights: dict[str, Floats]
    law: ForestLaw

    @property
    def length(self) -> int:
        """Number of positions."""
        return self.law.length

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return self.law.vocab_size

    def oracle(self) -> CallableOracle:
        """Return the model as an oracle."""
        return CallableOracle(
            self.rows, self.length, self.vocab_size,
            row_error=ROUNDING, batch_size=BATCH, name="small tree model",
        )  # fmt: skip

    def rows(self, states: StateArray) -> NDArray[np.float64]:
        """Return a row for every position of states, shape (B, N, V)."""
        logits = self.logits(np.where(states == MASK, self.vocab_size, states)).astype(np.float64)
        rows = np.exp(logits - logits.max(axis=-1, keepdims=True))
        found: NDArray[np.float64] = rows / rows.sum(axis=-1, keepdims=True)
        return found

    def logits(self, ids: NDArray[np.integer[Any]]) -> Floats:
        """Return logits of ids, the vocabulary's size standing for a mask: shape (B, N, V)."""
        hidden = self.weights["tokens.weight"][ids] + self.weights["positions"]
        for layer in range(self._num_layers):
            name = f"encoder.layers.{layer}"
            hidden = hidden + self._attention(self._norm(hidden, f"{name}.norm1"), name)
            wide = self._map(self._norm(hidden, f"{name}.norm2"), f"{name}.linear1")
            wide *= 0.5 * (1 + scipy.special.erf(wide / np.float32(np.sqrt(2))))
            hidden = hidden + self._map(wide, f"{name}.linear2")
        return self._map(self._norm(hidden, "norm"), "output") + self.weights["bias"]

    @cached_property
    def _num_layers(self) -> int:
        return sum(name.endswith("in_proj_weight") for name in self.weights)

    def _attention(self, hidden: Floats, name: str) -> Floats:
        batch, length, width = hidden.shape
        joined = hidden @ self.weights[f"{name}.self_attn.in_proj_weight"].T
        joined += self.weights[f"{name}.self_attn.in_proj_bias"]
        share = width // NUM_HEADS
        heads = joined.reshape(batch, length, 3, NUM_HEADS, share).transpose(2, 0, 3, 1, 4)
        query, key, value = heads
        scores = query @ key.swapaxes(-1, -2) / np.float32(np.sqrt(share))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        seen = (scores @ value).transpose(0, 2, 1, 3).reshape(batch, length, width)
        return self._map(seen, f"{name}.self_attn.out_proj")

    def _norm(self, hidden: Floats, name: str) -> Floats:
        hidden = hidden - hidden.mean(axis=-1, keepdims=True)
        spread = np.sqrt(np.square(hidden).mean(axis=-1, keepdims=True) + np.float32(1e-5))
        scaled: Floats = hidden / spread * self.weights[f"{name}.weight"]
        return scaled + self.weights[f"{name}.bias"]

    def _map(self, hidden: Floats, name: str) -> Floats:
        mapped: Floats = hidden @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return mapped


def load_small_model() -> SmallModel:
    """Load the small learned model that comes with the package.

    Examples
    --------
    >>> import counterprobe as cp
    >>> model = cp.models.load_small_model()
    >>> drawn = cp.sample(model.oracle(), "random-balanced", 2, batches=8, seed=1, progress=False)
    >>> drawn.ledger.evaluations, drawn.sequences.shape
    (16, (2, 64))
    """
    with np.load(WEIGHTS) as file:
        stored = dict(file)
    law = ForestLaw(stored["law.unary"], stored["law.edges"].astype(int), stored["law.pair"])
    weights = {
        name: value.astype(np.float32) * stored.get(f"{name}.scale", np.float32(1))
        for name, value in stored.items()
        if not name.startswith("law.") and not name.endswith(".scale")
    }
    return SmallModel(weights, law)
