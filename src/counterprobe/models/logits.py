"""From logits to rows: the softmax over the tokens that may stand at each position.

Logits come in the model's precision, over all of its ids. A row is their softmax over the
template's vocabulary, at a temperature, with probability exactly zero for tokens that are not
allowed at its position. It is computed in pieces of rows, in single precision at least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.errors import OracleError
from counterprobe.extras import load_extra
from counterprobe.models.rows import PIECE
from counterprobe.models.template import Template

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["Softmax"]


class Softmax:
    """Turns logits into probabilities for one template.

    Parameters
    ----------
    template : Template
    temperature : float
        Logits are divided by it: a declared change of the law.
    name : str
        The oracle's name, for errors.
    """

    def __init__(self, template: Template, temperature: float, name: str) -> None:
        if not 0 < temperature < np.inf:
            raise ValueError(f"temperature must be positive and finite, got {temperature!r}")
        self._template = template
        self._temperature = float(temperature)
        self._name = name
        self._on_device: dict[Any, tuple[torch.Tensor, torch.Tensor | None]] = {}

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self._template.vocab_size

    def _tables(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the vocabulary and the forbidden tokens of each kind of position."""
        if device not in self._on_device:
            template = self._template
            vocabulary = torch.as_tensor(template.vocabulary.copy(), device=device)
            forbidden = None
            if template.has_restrictions and template.permitted is not None:
                forbidden = torch.as_tensor(~template.permitted, device=device)
            self._on_device[device] = vocabulary, forbidden
        return self._on_device[device]

    def write(
        self,
        logits: torch.Tensor,
        state_index: IntArray,
        read_at: IntArray,
        positions: IntArray,
        out: torch.Tensor,
        *,
        first_state: int = 0,
    ) -> None:
        """Write one row for each readout.

        Parameters
        ----------
        logits : Tensor, shape (B, L, W)
            As the model gave them.
        state_index, read_at : ndarray of int, shape (r,)
            Where in ``logits`` each row is.
        positions : ndarray of int, shape (r,)
            The oracle's position of each row.
        out : Tensor, shape (r, V)
            Where probabilities go.
        first_state : int
            The index that errors give to state 0.
        """
        step = max(1, PIECE // int(logits.shape[-1]))
        for low in range(0, len(positions), step):
            piece = slice(low, low + step)
            states = torch.as_tensor(state_index[piece], device=logits.device)
            where = torch.as_tensor(read_at[piece], device=logits.device)
            self.write_scores(
                logits[states, where],
                first_state + state_index[piece],
                positions[piece],
                out[piece],
            )

    def write_scores(
        self, scores: torch.Tensor, state_index: IntArray, positions: IntArray, out: torch.Tensor
    ) -> None:
        """Write one row for each of some scores.

        Parameters
        ----------
        scores : Tensor, shape (r, W)
            The logits of each row.
        state_index, positions : ndarray of int, shape (r,)
            Where each row belongs: errors name the state, and positions have their own tokens.
        out : Tensor, shape (r, V)
        """
        width = int(scores.shape[1])
        ids = self._template.vocabulary
        if int(ids.max()) >= width:
            raise OracleError(
                f"oracle {self._name!r}: the model gives logits for {width} ids, but the "
                f"vocabulary reaches id {int(ids.max())}"
            )
        vocabulary, forbidden = self._tables(scores.device)
        if len(ids) != width or not (ids == np.arange(width)).all():
            scores = scores[:, vocabulary]
        scores = scores.to(out.dtype) / self._temperature
        if forbidden is not None and self._template.kind is not None:
            kind = torch.as_tensor(self._template.kind[positions], device=scores.device)
            scores = scores.masked_fill(forbidden[kind], -torch.inf)
        normalise(scores, out)
        self._check(out, scores, state_index, positions)

    def _check(
        self, rows: torch.Tensor, scores: torch.Tensor, state_index: IntArray, positions: IntArray
    ) -> None:
        """Refuse rows that are no distributions: NaN, infinite, or without any token."""
        # One bad score makes the whole row NaN, so one column tells.
        wrong = torch.isnan(rows[:, 0])
        if not bool(wrong.any()):
            return
        k = int(wrong.to(torch.int8).argmax())
        if bool(torch.isneginf(scores[k]).all()):
            problem = "give every allowed token the score minus infinity"
        else:
            bad = "NaN" if bool(torch.isnan(scores[k]).any()) else "infinite"
            problem = f"are {bad}; check the weights, or load them in a wider precision"
        raise OracleError(
            f"oracle {self._name!r}: the logits of state {int(state_index[k])} at position "
            f"{int(positions[k])} {problem}"
        )


def normalise(scores: torch.Tensor, out: torch.Tensor) -> None:
    """Write the softmax of each row.

    The sum is taken in double precision where there is one: over 128,000 tokens a sum in single
    precision is off by a hundred-thousandth, and every probability with it.
    """
    wide = torch.float32 if scores.device.type == "mps" else torch.float64
    torch.exp(scores - scores.amax(dim=1, keepdim=True), out=out)
    out /= out.sum(dim=1, keepdim=True, dtype=wide)
