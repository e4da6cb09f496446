"""One block of ids that is filled in from logits which somebody else's forwards give.

What pipelines and servers hand over is a tensor of logits for a block of ids with masks. A
:class:`SteppedBlock` turns the logits of masked places into the rows that a model's oracle would
have given, lets the rule of a :class:`~counterprobe.integrations.stepping.Stepping` choose, and
says which ids to put where.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.extras import load_extra
from counterprobe.integrations.stepping import Stepping
from counterprobe.models.rows import Softmax
from counterprobe.models.template import Template
from counterprobe.rows import to_numpy
from counterprobe.run.ledger import Ledger
from counterprobe.samplers.base import Sampler
from counterprobe.states import MASK
from counterprobe.streams import Streams

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a block of ids", package="PyTorch")

__all__ = ["DrawnIds", "SteppedBlock"]


class DrawnIds:
    """Which ids may be drawn; looked up once for all blocks.

    Parameters
    ----------
    num_ids : int
        How many ids the model gives logits for.
    mask_id : int
        Never drawn.
    never_drawn : iterable of int
        Nor these.
    """

    def __init__(self, num_ids: int, mask_id: int, never_drawn: Iterable[int] = ()) -> None:
        self.mask_id = mask_id = whole_number("mask_id", mask_id)
        excluded = [mask_id, *never_drawn]
        self.vocabulary: IntArray = np.setdiff1d(np.arange(num_ids), excluded)
        if len(self.vocabulary) == 0:
            raise ValueError("never_drawn must leave an id to draw, got all of them")
        # No position: an id that is never drawn may stand in a prompt, as in every template.
        self._token_of = np.full(max(num_ids, mask_id + 1), MASK - 1, dtype=np.int32)
        self._token_of[self.vocabulary] = np.arange(len(self.vocabulary))
        self._token_of[mask_id] = MASK

    def template(self, ids: IntArray) -> Template:
        """Return the template of a block of ids."""
        tokens = self._token_of[ids]
        slots = np.flatnonzero(tokens >= MASK)
        return Template(
            np.array(ids, dtype=np.int64), slots, tokens[slots], self.vocabulary, self.mask_id
        )


class SteppedBlock:
    """A block that a rule fills in, round by round.

    Parameters
    ----------
    rule : Sampler
        One that needs rows alone.
    ids : ndarray of int, shape (L,)
        With masks.
    drawn : DrawnIds
    streams : Streams
    sequence : int
        Which of several with the same streams.
    temperature : float
        Logits are divided by it; 0 takes the likeliest ids.
    name : str
        Of whoever makes the forwards.
    """

    def __init__(
        self,
        rule: Sampler,
        ids: IntArray,
        drawn: DrawnIds,
        streams: Streams,
        *,
        sequence: int = 0,
        temperature: float = 1.0,
        name: str,
    ) -> None:
        self.template = drawn.template(ids)
        self._softmax = Softmax(self.template, temperature or 1.0, name)
        self._stepping = Stepping(
            rule,
            self.template.given,
            self.template.vocab_size,
            streams,
            sequence=sequence,
            temperature=1.0 if temperature > 0 else 0.0,
            name=name,
        )

    @property
    def is_complete(self) -> bool:
        """Whether nothing is masked."""
        return self._stepping.is_complete

    @property
    def ledger(self) -> Ledger:
        """What it was charged: one commit a round."""
        return self._stepping.ledger

    def step(self, logits: torch.Tensor) -> tuple[IntArray, IntArray, FloatArray]:
        """Let the rule choose.

        Parameters
        ----------
        logits : Tensor, shape (L, W)
            Of every place of the block as it is now.

        Returns
        -------
        places, ids : ndarray of int
            Where to put what.
        chances : ndarray of float
            How probable each was in the row it was drawn from.
        """
        residual = self._stepping.residual
        dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
        shape = (len(residual), self.template.vocab_size)
        out = torch.empty(shape, dtype=dtype, device=logits.device)
        first = np.zeros(len(residual), dtype=np.int64)
        self._softmax.write(logits[None], first, self.template.slots[residual], residual, out)
        rows = self._softmax.rows(out)
        positions, tokens = self._stepping.step(rows)
        chosen = rows.take(np.searchsorted(residual, positions))
        chances = np.asarray(to_numpy(chosen.prob(tokens)), dtype=np.float64)
        return self.template.slots[positions], self.template.vocabulary[tokens], chances
