"""The update of pairs of ``point_attention.py`` on a GPU, in one kernel.

An update passes every pair of residues through three maps and normalises it: as tensors, what is
between them goes through memory a dozen times, and that takes longer than the products. Here a
program takes some pairs through all of it on the chip, and says at once how the next block's heads
attend to them.

Factors of products are rounded to half precision, whose ten bits are those of TF32, at twice its
rate; sums are of single precision, and so is what is normalised. Pairs are kept in half precision
too, since nothing reads them more exactly.
"""

# Triton reads annotations of kernels, and knows no types but its own.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from counterprobe.extras import load_extra
from counterprobe.models.proteins.fused import normal, on_device

if TYPE_CHECKING:
    import torch
    from torch import nn

    from counterprobe.models.proteins.point_attention import Block, Network, PairUpdate

    tl: Any
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")
    import triton.language as tl

__all__ = ["FusedUpdate", "fuse"]

# Hidden states of a pair, and what its update is made of inside.
WIDTH, INNER = 128, 256
# Pairs of a program, columns of the second map that it takes at a time, and its warps. Triton 3.6
# compiles products of fewer than 64 columns wrongly here, and more stages are slower.
PAIRS, COLUMNS, WARPS, STAGES = 128, 64, 8, 1


@on_device
def _update_pairs(
    found, biases, old, rows, mine, others, mine_last, others_last,
    w_first, w_second, b_second, w_old, w_last, scale, shift, w_bias, b_bias,
    num_rows, length, state_stride,
    has_rows: tl.constexpr, heads: tl.constexpr, pairs: tl.constexpr, width: tl.constexpr,
    inner: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Update some pairs of one state, and say what they add to the scores of the next heads."""
    state = tl.program_id(1).to(tl.int64)
    pair = tl.program_id(0) * pairs + tl.arange(0, pairs)
    is_pair = pair < num_rows * length
    pair = tl.where(is_pair, pair, 0)
    row, other = pair // length, pair % length
    one = row
    if has_rows:
        one = tl.load(rows + row)
    column, wide = tl.arange(0, width), tl.arange(0, inner)
    here = (one * length + other)[:, None] * width + column[None, :]
    x = tl.load(old + state * state_stride + here).to(tl.float16)
    row, other = state * num_rows + row, state * length + other
    hidden = tl.dot(x, tl.load(w_first + column[:, None] * inner + wide[None, :]))
    hidden += tl.load(mine + row[:, None] * inner + wide[None, :])
    hidden += tl.load(others + other[:, None] * inner + wide[None, :])
    inside = tl.maximum(hidden, 0.0).to(tl.float16)
    new = tl.dot(x, tl.load(w_old + column[:, None] * width + column[None, :]))
    for first in tl.static_range(0, inner, columns):
        part = first + tl.arange(0, columns)
        step = tl.dot(inside, tl.load(w_second + wide[:, None] * inner + part[None, :]))
        step = tl.maximum(step + tl.load(b_second + part)[None, :], 0.0).to(tl.float16)
        new += tl.dot(step, tl.load(w_last + part[:, None] * width + column[None, :]))
    new += tl.load(mine_last + row[:, None] * width + column[None, :])
    new += tl.load(others_last + other[:, None] * width + column[None, :])
    new = normal(new, tl.load(scale + column), tl.load(shift + column), width)
    there = state * num_rows * length * width + pair.to(tl.int64)[:, None] * width
    tl.store(found + there + column[None, :], new.to(tl.float16), mask=is_pair[:, None])
    for head in tl.static_range(heads):
        bias = tl.sum(new * tl.load(w_bias + head * width + column)[None, :], axis=1)
        at = (state * heads + head) * num_rows * length + pair
        tl.store(biases + at, bias + tl.load(b_bias + head), mask=is_pair)


def fuse(network: Network) -> bool:
    """Let a network on a GPU update its pairs by the kernel, where it has the kernel's sizes."""
    blocks = cast("list[Block]", list(network.blocks))
    fits = network.sizes.width == network.sizes.pair_width == WIDTH
    if fits:
        for block, after in pairwise(blocks):
            assert block.pairs is not None  # all but the last update pairs
            block.fused = FusedUpdate(block.pairs, after.attention.pair_bias)
    return fits


class FusedUpdate:
    """An update of pairs and the next block's bias of them, as the kernel reads both.

    Parameters
    ----------
    update : PairUpdate
        On a GPU.
    bias : Linear
        What the heads of the next block make of a pair.
    """

    def __init__(self, update: PairUpdate, bias: nn.Linear) -> None:
        self._update, self._bias = update, bias
        first, last = update.first.weight.detach(), update.last.weight.detach()
        maps = [first[:, :WIDTH], update.second.weight.detach(), last[:, :WIDTH], last]
        self._maps = [one.T.contiguous().half() for one in maps]

    def __call__(
        self, hidden: torch.Tensor, pairs: torch.Tensor, rows: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the next hidden states of pairs, and what they add to scores: (B, H, R, L).

        Parameters
        ----------
        hidden, pairs, rows
            As for :class:`PairUpdate`; pairs of half precision are written over where they can be.
        """
        batch, length = len(hidden), pairs.shape[-2]
        num_rows, heads = length if rows is None else len(rows), self._bias.out_features
        is_kept = pairs.ndim == 4 and rows is None and pairs.dtype == torch.float16
        found = pairs if is_kept else _room(pairs, torch.float16, batch, num_rows, length, WIDTH)
        biases = _room(pairs, torch.float32, batch, heads, num_rows, length)
        norm, (w_first, w_second, w_old, w_last) = self._update.norm, self._maps
        _update_pairs[(-(-num_rows * length // PAIRS), batch)](
            found, biases, pairs, found if rows is None else rows.to(torch.int32),
            *self._update.by_residue(hidden, rows),
            w_first, w_second, self._update.second.bias, w_old, w_last, norm.weight, norm.bias,
            self._bias.weight, self._bias.bias, num_rows, length,
            pairs.stride(0) if pairs.ndim == 4 else 0, has_rows=rows is not None, heads=heads,
            pairs=PAIRS, width=WIDTH, inner=INNER, columns=COLUMNS,
            num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
        return found, biases


def _room(like: torch.Tensor, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device)
