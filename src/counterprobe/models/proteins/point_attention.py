"""Invariant point attention over residues and their pairs: the network of Frame2seq.

Akpinaroglu and others, "Structure-conditioned masked language models for protein sequence design
generalize beyond the native sequence space", 2023. Every residue has a frame (its N, CA and C) and
hidden states, every pair of residues hidden states of its own. A block lets residues attend to one
another (Jumper and others, Nature 2021, algorithm 22): by products of queries and keys, by what
their pair says, and by how close points lie that residues place in their frames. Then residues
and, but for the last block, pairs are updated.

Frames never move, so that much is known before any residue is. What a pair of places says is
computed once for a backbone and is shared by all states until the first update of pairs. A squared
distance of points is taken apart by origin and offset: with ``p = t_i + a`` of one residue and
``q = t_j + b`` of another,

    |p - q|^2 = |t_i - t_j|^2 + 2 (t_i - t_j) . (a - b) + |a - b|^2,

whose first term is fixed and whose others are products of what belongs to i with what belongs to
j, or belong to j alone; what belongs to i alone is nothing to a softmax over j. So one matrix
product gives the scores. Offsets are a few angstroms, so that nothing large is subtracted from
something large.

Nearly all of the work is in updating pairs: maps of that update are applied to what comes from the
pair, from i and from j apart, and everything goes through in pieces, or by the one kernel of
``fused_pairs.py``. The last block and update are computed only for residues that are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterprobe.extras import load_extra

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn import functional

    from counterprobe.models.proteins.fused_pairs import FusedUpdate
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")
    nn, functional = torch.nn, torch.nn.functional

__all__ = ["Frames", "Network", "Sizes", "matrix_precision"]

# Points that a residue places to attend and to be attended by, and to be read.
NUM_POINTS, NUM_READ = 4, 8
# Pairs of residues that are updated at once: what fits into a cache, and what keeps a GPU busy.
HOST_PAIRS = 1 << 11
DEVICE_PAIRS = 1 << 18


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a network is.

    Attributes
    ----------
    num_blocks, num_heads : int
    width, pair_width : int
        Of the hidden states of residues and of pairs.
    num_letters : int
    widening : int
        How much wider residues are while they are updated.
    single_features, pair_features : int
        What is known of a residue, and of a pair, before any letter is.
    """

    num_blocks: int
    num_heads: int
    width: int
    pair_width: int
    num_letters: int
    widening: int
    single_features: int
    pair_features: int


@dataclass(frozen=True, slots=True)
class Frames:
    """Where residues are, for every network on a backbone.

    Attributes
    ----------
    rotations : Tensor, shape (L, 3, 3)
        Columns are the axes of each frame.
    origins : Tensor, shape (L, 3)
        Relative to their centre.
    square : Tensor, shape (L, L)
        Squared distances of origins.
    barred : Tensor of bool, shape (L, L), or None
        Pairs that do not attend to one another, since a place is unknown; None for none.
    """

    rotations: torch.Tensor
    origins: torch.Tensor
    square: torch.Tensor
    barred: torch.Tensor | None

    def of_readers(self, rows: torch.Tensor | None) -> Frames:
        """Return what belongs to the residues that attend: those of some rows, or all of them."""
        if rows is None:
            return self
        barred = None if self.barred is None else self.barred[rows]
        return Frames(self.rotations[rows], self.origins[rows], self.square[rows], barred)


class PointAttention(nn.Module):
    """Attention between residues with frames."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, self.heads = sizes.width, sizes.num_heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.query_points = nn.Linear(width, self.heads * NUM_POINTS * 3)
        self.key_value_points = nn.Linear(width, self.heads * (NUM_POINTS + NUM_READ) * 3)
        self.pair_bias = nn.Linear(sizes.pair_width, self.heads)
        self.head_weights = nn.Parameter(torch.zeros(self.heads))
        self.out = nn.Linear(self.heads * (sizes.pair_width + 4 * NUM_READ) + width, width)

    def forward(
        self,
        hidden: torch.Tensor,
        pairs: torch.Tensor,
        frames: Frames,
        rows: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what residues read, shape ``(B, R, width)``, and attention, ``(B, H, R, L)``.

        Parameters
        ----------
        hidden : Tensor, shape (B, L, width)
        pairs : Tensor, shape (B, R, L, pair_width), or (R, L, pair_width) where all states share
            them
        frames : Frames
        rows : Tensor of int, shape (R,), optional
            The residues that read; all of them by default, R = L.
        bias : Tensor, shape (B, H, R, L), optional
            What pairs add to scores, where it is known already.
        """
        batch, _, width = hidden.shape
        share = width // self.heads
        reading, readers = hidden if rows is None else hidden[:, rows], frames.of_readers(rows)
        query = self.query(reading).view(*reading.shape[:2], self.heads, share)
        key, value = (
            self.key_value(hidden).view(*hidden.shape[:2], self.heads, 2, share).unbind(-2)
        )
        asked = self._offsets(self.query_points(reading), readers)
        placed = self._offsets(self.key_value_points(hidden), frames)
        offered, shown = placed[..., :NUM_POINTS, :], placed[..., NUM_POINTS:, :]
        # Variances of a product of unit terms, and of a sum of squared distances of points.
        weight = functional.softplus(self.head_weights) / math.sqrt(3 * NUM_POINTS * 4.5)
        weight = weight[:, None]
        here, there = (
            part.origins[:, None].expand(batch, -1, self.heads, 3) for part in (readers, frames)
        )
        total = offered.sum(dim=-2)
        own = (there * total).sum(-1) + offered.square().sum((-1, -2)) / 2
        queries = [
            query / math.sqrt(3 * share),
            weight * asked.flatten(-2),
            weight * asked.sum(dim=-2),
            weight * here,
            -weight.expand(*query.shape[:-1], 1),
        ]
        keys = [key, offered.flatten(-2), there, total, own[..., None]]
        scores = torch.cat(queries, -1).transpose(1, 2) @ torch.cat(keys, -1).permute(0, 2, 3, 1)
        scores -= (NUM_POINTS / 2) * weight[:, None] * readers.square
        bias = self.pair_bias(pairs).movedim(-1, -3) if bias is None else bias
        scores.add_(bias, alpha=1 / math.sqrt(3))
        if readers.barred is not None:
            scores.masked_fill_(readers.barred, -torch.inf)
        weights = scores.softmax(dim=-1)
        values = torch.cat([value, (shown + there[:, :, :, None]).flatten(-2)], dim=-1)
        seen = (weights @ values.transpose(1, 2)).transpose(1, 2)
        points = seen[..., share:].view(*here.shape[:-1], NUM_READ, 3) - here[:, :, :, None]
        points = points @ readers.rotations[:, None]  # by the inverse, into the reader's frame
        parts = [
            seen[..., :share].flatten(-2),
            *(points[..., axis].flatten(-2) for axis in range(3)),
            (points.square().sum(-1) + 1e-8).sqrt().flatten(-2),
            _read_pairs(weights, pairs).flatten(-2),
        ]
        return self.out(torch.cat(parts, dim=-1)), weights

    def _offsets(self, places: torch.Tensor, frames: Frames) -> torch.Tensor:
        """Turn points of residues' frames, shape (B, L, 3 H P), into space: (B, L, H, P, 3)."""
        # The weights list all first coordinates, then all second ones, then all third ones.
        num_points = places.shape[-1] // (3 * self.heads)
        local = places.view(*places.shape[:-1], 3, self.heads, num_points).movedim(-3, -1)
        return local @ frames.rotations.mT[:, None]


def _read_pairs(weights: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """Return the pairs of each residue, averaged by attention: shape (B, R, H, pair_width)."""
    batch, heads, num_rows, length = weights.shape
    if pairs.ndim == 4:
        read = weights.to(pairs.dtype).transpose(1, 2) @ pairs
        return read.to(weights.dtype)
    # All states share them: as one product a residue, without a copy for each state.
    by_row = weights.permute(2, 0, 1, 3).reshape(num_rows, batch * heads, length)
    return (by_row @ pairs).view(num_rows, batch, heads, pairs.shape[-1]).transpose(0, 1)


class Transition(nn.Module):
    """Three maps added to what they are of, then normalised."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the next hidden states of residues."""
        step = self.second(self.first(hidden).relu()).relu()
        normalised: torch.Tensor = self.norm(hidden + self.third(step))
        return normalised


class PairUpdate(nn.Module):
    """Pairs, updated by what both residues of each have become."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        half = sizes.width // 2
        joined = sizes.pair_width + 2 * half
        self.embed = nn.Linear(sizes.width, half)
        self.first = nn.Linear(joined, joined)
        self.second = nn.Linear(joined, joined)
        self.last = nn.Linear(joined, sizes.pair_width)
        self.norm = nn.LayerNorm(sizes.pair_width)

    def forward(
        self, hidden: torch.Tensor, pairs: torch.Tensor, rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the next hidden states of pairs: in the same memory, where these are a state's.

        Parameters
        ----------
        hidden : Tensor, shape (B, L, width)
        pairs : Tensor, shape (B, L, L, pair_width), or (L, L, pair_width) where all states share
            them
        rows : Tensor of int, shape (R,), optional
            Residues whose pairs are wanted; all of them by default, R = L.
        """
        batch = len(hidden)
        pairs = pairs if rows is None else pairs.index_select(-3, rows)
        num_rows, length, width = pairs.shape[-3:]
        is_shared = pairs.ndim == 3
        updated = pairs.new_empty((batch, *pairs.shape)) if is_shared else pairs
        first, last = self.first.weight, self.last.weight
        mine, others, mine_last, others_last = self.by_residue(hidden, rows)
        most = HOST_PAIRS if hidden.device.type == "cpu" else DEVICE_PAIRS
        for states, piece in _pieces(batch, num_rows, length, most):
            old = pairs[None, piece] if is_shared else pairs[states, piece]
            inner = mine[states, piece, None] + others[states, None]
            _add_map(inner, old, first[:, :width])
            inner = functional.linear(inner.relu_(), self.second.weight, self.second.bias).relu_()
            new = mine_last[states, piece, None] + others_last[states, None]
            _add_map(new, old, last[:, :width])
            _add_map(new, inner, last)
            updated[states, piece] = self.norm(new)
        return updated

    def by_residue(
        self, hidden: torch.Tensor, rows: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return what both residues add to the first map and to the last, each by itself."""
        embedded, half = self.embed(hidden), self.embed.out_features
        own = embedded if rows is None else embedded[:, rows]
        maps = (self.first, self.last)
        mine, mine_last = (
            functional.linear(own, one.weight[:, -2 * half : -half], one.bias) for one in maps
        )
        others, others_last = (functional.linear(embedded, one.weight[:, -half:]) for one in maps)
        return mine, others, mine_last, others_last


def _add_map(total: torch.Tensor, part: torch.Tensor, weight: torch.Tensor) -> None:
    """Add a linear map of a part in place, without a pass over memory of its own."""
    if len(part) != len(total):  # one for all states
        total += functional.linear(part, weight)
    else:
        total.view(-1, total.shape[-1]).addmm_(part.reshape(-1, part.shape[-1]), weight.T)


def _pieces(batch: int, num_rows: int, length: int, most: int) -> Iterator[tuple[slice, slice]]:
    """Yield states and residues whose pairs, at most so many, are updated at once."""
    rows = max(1, min(num_rows, most // length))
    states = max(1, most // (rows * length)) if rows >= num_rows else 1
    for low in range(0, batch, states):
        for row in range(0, num_rows, rows):
            yield slice(low, low + states), slice(row, row + rows)


class Block(nn.Module):
    """One round: residues attend, residues change, pairs change."""

    def __init__(self, sizes: Sizes, *, is_last: bool) -> None:
        super().__init__()
        wide = sizes.width * sizes.widening
        self.attention = PointAttention(sizes)
        self.norm = nn.LayerNorm(sizes.width)
        self.widen = nn.Linear(sizes.width, wide) if sizes.widening > 1 else nn.Identity()
        self.transition = Transition(wide)
        self.narrow = nn.Linear(wide, sizes.width) if sizes.widening > 1 else nn.Identity()
        self.pairs = None if is_last else PairUpdate(sizes)
        self.fused: FusedUpdate | None = None

    def forward(
        self,
        hidden: torch.Tensor,
        pairs: torch.Tensor,
        frames: Frames,
        *,
        rows: torch.Tensor | None,
        bias: torch.Tensor | None,
        next_rows: torch.Tensor | None,
        fast_pairs: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Return the next states of residues and of pairs, the next bias if known, attention.

        Parameters
        ----------
        hidden, pairs, frames, rows, bias
            As for :class:`PointAttention`.
        next_rows : Tensor of int, shape (R,), optional
            The residues that the next block reads; all of them by default.
        fast_pairs : bool
            See :class:`Network`.
        """
        seen, weights = self.attention(hidden, pairs, frames, rows, bias)
        bias = None
        hidden = self.norm((hidden if rows is None else hidden[:, rows]) + seen)
        hidden = self.narrow(self.transition(self.widen(hidden)))
        if self.fused is not None:
            pairs, bias = self.fused(hidden, pairs, next_rows)
        elif self.pairs is not None:
            with matrix_precision(short=fast_pairs):
                pairs = self.pairs(hidden, pairs, next_rows)
        return hidden, pairs, bias, weights


class Network(nn.Module):
    """The masked model of sequences on a backbone.

    Parameters
    ----------
    sizes : Sizes
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.single = nn.Linear(sizes.single_features, sizes.width)
        self.pair = nn.Linear(sizes.pair_features, sizes.pair_width)
        self.letters = nn.Linear(sizes.num_letters, sizes.width)
        self.letters_norm = nn.LayerNorm(sizes.width)
        self.blocks = nn.ModuleList(
            Block(sizes, is_last=number == sizes.num_blocks - 1)
            for number in range(sizes.num_blocks)
        )
        self.head = nn.Linear(sizes.width, sizes.num_letters)

    def letter_states(self) -> torch.Tensor:
        """Return what each letter adds to a residue, the mask last: shape (letters, width)."""
        letters = self.letters.weight.T + self.letters.bias
        letters[-1] = 0.0  # nothing is known of it
        states: torch.Tensor = self.letters_norm(letters)
        return states

    def forward(
        self,
        hidden: torch.Tensor,
        pairs: torch.Tensor,
        frames: Frames,
        *,
        fast_pairs: bool = False,
        rows: torch.Tensor | None = None,
        attention: list[torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Return logits, shape ``(B, R, num_letters)``.

        Parameters
        ----------
        hidden : Tensor, shape (B, L, width)
            Residues with their letters.
        pairs : Tensor, shape (L, L, pair_width)
        frames : Frames
        fast_pairs : bool
            Whether pairs are updated in the shorter format of a GPU's matrix units.
        rows : Tensor of int, shape (R,), optional
            The residues whose logits are wanted; all of them by default.
        attention : list, optional
            Where the attention of every block goes, shape (B, H, L, L), where it is wanted.
        """
        last = len(self.blocks) - 1
        if last == 0 and rows is not None:
            pairs = pairs[rows]
        bias = None
        for number, block in enumerate(self.blocks):
            hidden, pairs, bias, weights = block(
                hidden,
                pairs,
                frames,
                rows=rows if number == last else None,
                bias=bias,
                next_rows=rows if number == last - 1 else None,
                fast_pairs=fast_pairs,
            )
            if attention is not None:
                attention.append(weights)
        logits: torch.Tensor = self.head(hidden)
        return logits


@contextmanager
def matrix_precision(*, short: bool) -> Iterator[None]:
    """Let products of matrices on a GPU be of TF32 (ten bits), or of single precision."""
    matmul = torch.backends.cuda.matmul
    name, value = ("fp32_precision", "tf32" if short else "ieee")
    if not hasattr(matmul, name):  # before PyTorch 2.9
        name, value = "allow_tf32", short  # type: ignore[assignment]
    before = getattr(matmul, name)
    setattr(matmul, name, value)
    try:
        yield
    finally:
        setattr(matmul, name, before)
