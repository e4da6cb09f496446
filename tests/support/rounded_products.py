"""What the kernels of ProteinMPNN's decoder compute in TF32, emulated on the host."""

from __future__ import annotations

from copy import copy

import torch
from torch.nn.functional import gelu

from counterprobe.models.proteins.message_passing import Decoder
from counterprobe.models.proteins.proteinmpnn import InverseFolding

__all__ = ["in_tf32"]


class RoundedLayers:
    """Stands for ``FusedLayers``: factors keep ten bits, sums are of single precision.

    Parameters
    ----------
    decoder : Decoder
    draws : bool
        Whether all products are rounded, as where the device draws; rows that are asked for take
        some of them in double precision.
    """

    tf32 = True

    def __init__(self, decoder: Decoder, *, draws: bool) -> None:
        self._decoder, self._draws = decoder, draws

    def steady(self, states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if self._draws:
            return times(states, weight)
        return (states.double() @ weight.T.double()).float()

    def layer(self, number, found, offered, below, place, position, before) -> None:
        decoder = self._decoder
        layer, parts = decoder.network.decoder_layers[number], decoder.parts[number]
        mine = decoder.nodes[position] if below is None else below[place]
        own = mine @ parts.own.T if below is None else self.steady(mine, parts.own)
        senders = (place - position)[:, None] + decoder.neighbours[position]
        message = offered.reshape(-1, offered.shape[-1])[senders]
        if before is not None:
            message = message * before
        message = message + own[:, None] + parts.around[position]
        total = gelu(times(gelu(message), layer.W2.weight) + layer.W2.bias).sum(dim=1)
        change = times(total, layer.W3.weight) + senders.shape[1] * layer.W3.bias
        states = layer.norm1(mine + change / layer.scale)
        hidden = gelu(times(states, layer.dense.W_in.weight) + layer.dense.W_in.bias)
        change = times(hidden, layer.dense.W_out.weight) + layer.dense.W_out.bias
        states = layer.norm2(states + change)
        found[place] = states if decoder.mask is None else states * decoder.mask[position]


def times(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return rounded(x) @ rounded(weight).T


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Round to ten bits, halves away from zero, as ``cvt.rna.tf32`` does."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)


def in_tf32(model: InverseFolding, *, draws: bool = False) -> InverseFolding:
    """Return a model on the host whose decoder computes as on a GPU."""
    short = copy(model)
    short.decoder = copy(model.decoder)
    short.decoder._is_looked_up = False  # a GPU has no table of the first layer
    short.decoder.fused = RoundedLayers(short.decoder, draws=draws)
    return short
