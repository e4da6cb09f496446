"""Rows of a torch model: from logits, on their device, large vocabularies in pieces.

Logits come in the model's precision, over all of its ids. A row is their softmax over the
template's vocabulary, at a temperature, with probability exactly zero for tokens that are not
allowed at its position. It is computed in pieces of rows, in single precision at least.

``DenseRows`` holds torch tensors already; its reductions are written for small batches, with
several temporaries of the size of the batch. Here every reduction walks over pieces of rows, so
that the temporaries of a thousand rows over 128,000 tokens fit beside the model, and cumulative
sums are taken in double precision, so that rare tokens are drawn at their own rate. What a row
gives never depends on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.errors import OracleError
from counterprobe.extras import load_extra
from counterprobe.models.template import Template
from counterprobe.rows import DenseRows, Rows, to_numpy, widened
from counterprobe.tempered import TemperedRows

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["Softmax", "TorchRows"]

# Numbers in a temporary: 2^25 are 256 MB in double precision.
PIECE = 1 << 25
Tables = tuple["torch.Tensor", "torch.Tensor | None", "torch.Tensor | None"]


@dataclass(frozen=True, slots=True)
class TorchRows(DenseRows):
    """One probability per token, in a torch tensor that stays on its device.

    Parameters
    ----------
    probabilities : Tensor of float, shape (n, V)
    """

    probabilities: Any

    def _pieces(self) -> Iterator[slice]:
        count, vocab_size = self.probabilities.shape
        step = max(1, PIECE // max(1, vocab_size))
        for low in range(0, max(1, count), step):
            yield slice(low, low + step)

    def _reduce(self, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Join what a function of a few rows returns for all of them."""
        parts = [function(widened(self.probabilities[piece])) for piece in self._pieces()]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _reduce_with(
        self, other: Rows, function: Callable[[Any, Any], torch.Tensor]
    ) -> torch.Tensor:
        """Join what a function of a few rows of two batches returns for all of them."""
        q = other.dense()
        if not isinstance(q, torch.Tensor):
            q = torch.as_tensor(q, device=self.probabilities.device)
        parts = [
            function(widened(self.probabilities[piece]), widened(q[piece]))
            for piece in self._pieces()
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def with_masses(self, masses: Any) -> TorchRows:
        """Return rows with other probabilities."""
        return TorchRows(masses)

    def take(self, index: IntArray) -> TorchRows:
        """Return the rows at ``index``, in that order; a run of neighbours is not copied."""
        index = np.asarray(index)
        if len(index) and np.array_equal(index, np.arange(index[0], index[0] + len(index))):
            return TorchRows(self.probabilities[int(index[0]) : int(index[0]) + len(index)])
        where = torch.as_tensor(index, dtype=torch.int64, device=self.probabilities.device)
        return TorchRows(self.probabilities[where])

    def entropy(self) -> torch.Tensor:
        """Return the Shannon entropy of each row, in nats."""
        return self._reduce(lambda p: torch.special.entr(p).sum(dim=1))

    def total_variation(self, other: Rows) -> torch.Tensor:
        """Return ``sum |p - q| / 2`` for each pair of rows."""
        return self._reduce_with(other, lambda p, q: (p - q).abs_().sum(dim=1) / 2)

    def squared_hellinger(self, other: Rows) -> torch.Tensor:
        """Return ``1 - sum sqrt(p q)`` for each pair of rows, without cancellation."""
        return self._reduce_with(
            other, lambda p, q: (p.sqrt() - q.sqrt()).square_().sum(dim=1) / 2
        )

    def kl(self, other: Rows) -> torch.Tensor:
        """Return ``sum p log(p / q)`` for each pair of rows, infinite where q misses mass of p."""
        # xlogy(0, 0) is 0, and xlogy(p, 0) minus infinity.
        return self._reduce_with(
            other, lambda p, q: (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(dim=1)
        )

    def tempered(self, temperature: float) -> TorchRows:
        """Return rows proportional to ``p ** (1 / temperature)``; at 0, all mass on the top."""
        out = torch.zeros_like(widened(self.probabilities))
        if temperature == 0:
            top = torch.as_tensor(self.top()[0], device=out.device)
            out[torch.arange(len(self), device=out.device), top] = 1
            return TorchRows(out)
        for piece in self._pieces():
            p = widened(self.probabilities[piece])
            # Relative to the largest, so that a small temperature underflows to 0, never to 0 / 0.
            out[piece] = (p / p.amax(dim=1, keepdim=True)) ** (1 / temperature)
            out[piece] /= out[piece].sum(dim=1, keepdim=True)
        return TorchRows(out)

    def margin(self) -> torch.Tensor:
        """Return the difference of the two largest probabilities of each row."""
        if self.vocab_size == 1:
            return self._reduce(lambda p: p[:, 0])
        return self._reduce(_top_two_difference)

    def top(self) -> tuple[IntArray, torch.Tensor]:
        """Return each row's most probable token (ties to the smallest) and its probability."""
        best = self.probabilities.amax(dim=1)
        tokens = [
            # argmax of the mask: frameworks differ in which of several maxima they return.
            (self.probabilities[piece] == best[piece, None]).to(torch.int8).argmax(dim=1)
            for piece in self._pieces()
        ]
        return to_numpy(torch.cat(tokens)).astype(np.int64), best

    def above(self, threshold: float) -> tuple[IntArray, IntArray]:
        """List the tokens of probability at least ``threshold``; see :meth:`Rows.above`."""
        counts = self._reduce(lambda p: (p >= threshold).sum(dim=1))
        tokens = self._reduce(lambda p: (p >= threshold).nonzero()[:, 1])
        start = np.concatenate([[0], np.cumsum(to_numpy(counts))]).astype(np.int64)
        return start, to_numpy(tokens).astype(np.int64)

    def draw(self, uniforms: FloatArray) -> IntArray:
        """Turn one uniform in ``[0, 1)`` per row into a token, in token order."""
        if len(self) == 0:
            return np.empty(0, dtype=np.int64)
        device = self.probabilities.device
        # Apple's devices have no double precision.
        wide = torch.float32 if device.type == "mps" else torch.float64
        u = torch.as_tensor(np.asarray(uniforms), dtype=wide, device=device)
        tokens = []
        for piece in self._pieces():
            p = self.probabilities[piece]
            cdf = p.cumsum(dim=1, dtype=wide)
            target = u[piece, None] * cdf[:, -1:]
            chosen = torch.searchsorted(cdf, target, right=True)[:, 0]
            # Rounding may push u * total up to the total: stay on the last token that has mass.
            last = self.vocab_size - 1 - (p.flip(1) > 0).to(torch.int8).argmax(dim=1)
            tokens.append(torch.minimum(chosen, last))
        return to_numpy(torch.cat(tokens)).astype(np.int64)


def _top_two_difference(p: torch.Tensor) -> torch.Tensor:
    best = p.topk(2, dim=1).values
    return best[:, 0] - best[:, 1]


# ----- From logits to rows -----------------------------------------------------------------


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
        self._on_device: dict[Any, Tables] = {}

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self._template.vocab_size

    def _tables(self, device: torch.device) -> Tables:
        """Return the vocabulary, forbidden tokens of kinds of positions, and positions' bias."""
        if device not in self._on_device:
            template = self._template
            vocabulary = torch.as_tensor(template.vocabulary.copy(), device=device)
            forbidden = bias = None
            if template.has_restrictions and template.permitted is not None:
                forbidden = torch.as_tensor(~template.permitted, device=device)
            if template.bias is not None:
                bias = torch.as_tensor(template.bias.astype(np.float32), device=device)
            self._on_device[device] = vocabulary, forbidden, bias
        return self._on_device[device]

    def rows(self, out: torch.Tensor) -> Rows:
        """Return what was written as rows of this temperature."""
        plain = TorchRows(out)
        return plain if self._temperature == 1 else TemperedRows.of(plain, self._temperature)

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
        """Write one row for each readout, at temperature 1.

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
        """Write one row for each of some scores, at temperature 1.

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
        if len(ids) != width or not (ids == np.arange(width)).all():
            scores = scores[:, self._tables(scores.device)[0]]
        self.write_tokens(scores, state_index, positions, out)

    def write_tokens(
        self, scores: torch.Tensor, state_index: IntArray, positions: IntArray, out: torch.Tensor
    ) -> None:
        """Write one row for each of some scores of the template's tokens, at temperature 1."""
        _, forbidden, bias = self._tables(scores.device)
        scores = scores.to(out.dtype)
        if bias is not None:
            scores = scores + bias[torch.as_tensor(positions, device=scores.device)]
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
