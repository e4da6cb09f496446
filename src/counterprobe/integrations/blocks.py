"""One block of ids that is filled in from logits which somebody else's forwards give.

What pipelines and servers hand over is a tensor of logits for a block of ids with masks. A
:class:`SteppedBlock` turns the logits of masked places into the rows that a model's oracle would
have given, hands them to a driver (``pending()``, ``answer(replies)``), and says which ids to put
where. So the rule, the draws and the ledger are those of ``sample``, and every forward is charged
once. Nobody computes what a rule would probe: rules that read rows of the current state, and
plans, are all that can be fed so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.extras import load_extra
from counterprobe.models.rows import Softmax
from counterprobe.models.template import Template
from counterprobe.oracles import Oracle, OracleInfo, Query, Reply
from counterprobe.rows import to_numpy
from counterprobe.run import Driver
from counterprobe.run.ledger import Ledger, Need
from counterprobe.run.run import Run
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.registry import SAMPLERS
from counterprobe.states import MASK
from counterprobe.streams import Streams

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a block of ids", package="PyTorch")

__all__ = ["DrawnIds", "SteppedBlock", "reads_rows_alone", "require_rows_alone"]


def reads_rows_alone(rule: Sampler) -> bool:
    """Whether a rule makes one evaluation per round and needs nothing but its rows."""
    return not rule.needs & (Need.PROBE | Need.ATTENTION | Need.VERIFY | Need.REMASK)


def require_rows_alone(rule: Sampler, caller: str) -> None:
    """Refuse a rule that asks the model about states of its own.

    Parameters
    ----------
    rule : Sampler
    caller : str
        Who makes the forwards, for the message.
    """
    if not reads_rows_alone(rule):
        known = sorted(name for name, cls in SAMPLERS.items() if reads_rows_alone(cls()))
        raise ValueError(
            f"sampler {rule.name!r} asks the model about states of its own, but {caller} hands "
            f"over the logits of its own forwards alone; take one of {', '.join(known)}, or draw "
            "with counterprobe.infill"
        )


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


class _Outside(Oracle):
    """The size of an oracle whose forwards somebody else makes."""

    def __init__(self, name: str, template: Template) -> None:
        self._info = OracleInfo(name, len(template.given), template.vocab_size, trusted=True)

    @property
    def info(self) -> OracleInfo:
        return self._info

    def ask(self, query: Query) -> Reply:
        raise AssertionError("rows are handed in, and never asked for")


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
        self._run = Run(
            _Outside(name, self.template),
            given=self.template.given,
            sequence=sequence,
            temperature=1.0 if temperature > 0 else 0.0,
        )
        self._run.begin(streams)
        rule_of_block = rule.unmask(self._run, streams.decisions)
        self._driver = Driver(lambda _: self._run.follow(rule_of_block))
        self._asked = [] if self.is_complete else self._pending()

    @property
    def is_complete(self) -> bool:
        """Whether nothing is masked."""
        return self._run.is_complete

    @property
    def ledger(self) -> Ledger:
        """What it was charged: one commit a round."""
        return self._run.ledger

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
        residual, before = self._run.residual, self._run.state
        dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
        shape = (len(residual), self.template.vocab_size)
        out = torch.empty(shape, dtype=dtype, device=logits.device)
        first = np.zeros(len(residual), dtype=np.int64)
        self._softmax.write(logits[None], first, self.template.slots[residual], residual, out)
        rows = self._softmax.rows(out)
        wanted = self._asked[0].readouts.position
        self._driver.answer([Reply(rows.take(np.searchsorted(residual, wanted)))])
        self._asked = self._pending()
        state = self._run.state
        positions = np.flatnonzero((before == MASK) & (state != MASK))
        tokens = state[positions].astype(np.int64)
        chosen = rows.take(np.searchsorted(residual, positions))
        chances = np.asarray(to_numpy(chosen.prob(tokens)), dtype=np.float64)
        return self.template.slots[positions], self.template.vocabulary[tokens], chances

    def _pending(self) -> list[Query]:
        """Return what the rule asks next: the current state, or nothing."""
        asked = self._driver.pending()
        for query in asked:
            if len(query.states) != 1 or not np.array_equal(query.states[0], self._run.state):
                raise ValueError(
                    "this rule asks about states of its own, but only rows of the current state "
                    "are handed over; such a rule needs PROBE"
                )
        return asked
