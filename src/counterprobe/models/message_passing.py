"""The decoder of ProteinMPNN, residue by residue: one function for every decoding order.

The network reads a backbone once (the encoder). Its decoder then gives a residue's logits from
its 48 nearest neighbours: those that are revealed *and* come before it in the decoding order are
seen with their residue and their decoder states, all others with what the encoder knows. Nothing
of a residue's decoder states depends on residues that come later, so that states once computed
can be kept: this module computes those of any set of residues, given those of the residues before
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from counterprobe.extras import load_extra
from counterprobe.models.backbones import Backbone
from counterprobe.models.memory import BatchSize

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["Decoder", "DecoderStates"]

# Residues at once: each needs its neighbours' features three times over.
HOST_RESIDUES = 1 << 11
DEVICE_RESIDUES = 1 << 16


@dataclass(slots=True)
class DecoderStates:
    """What is known of some sequences on one backbone.

    Attributes
    ----------
    tokens : Tensor of int, shape (B, N)
        Residues; what stands where nothing is revealed is of no account.
    revealed : Tensor of bool, shape (B, N)
    hidden : list of Tensor, shape (B, N, H)
        Output of every decoder layer, for the residues that were decoded.
    """

    tokens: torch.Tensor
    revealed: torch.Tensor
    hidden: list[torch.Tensor]


class Decoder:
    """The decoder of a network, for one backbone.

    Parameters
    ----------
    network : ProteinMPNN
        Of the package ``proteinmpnn``, in evaluation mode.
    backbone : Backbone
    name : str
        For messages about memory.
    """

    def __init__(self, network: Any, backbone: Backbone, name: str) -> None:
        self.network = network
        self.device = next(network.parameters()).device
        self.length = len(backbone)
        self._name = name
        most = HOST_RESIDUES if self.device.type == "cpu" else DEVICE_RESIDUES
        self._batch = BatchSize(most)
        with torch.no_grad():
            self._encode(backbone)

    def _encode(self, backbone: Backbone) -> None:
        """Read the backbone: states of residues, of pairs of neighbours, and who is one."""
        network, device = self.network, self.device
        mask = torch.ones((1, self.length), device=device)
        edges, self.neighbours = (
            part[0]
            for part in network.features(
                torch.as_tensor(backbone.coordinates.copy(), device=device)[None],
                mask,
                torch.as_tensor(backbone.residue_index.copy(), device=device)[None],
                torch.as_tensor(backbone.chain.copy(), device=device)[None],
            )
        )
        near = self.neighbours[None]
        pairs = network.W_e(edges[None])
        nodes = torch.zeros((1, self.length, pairs.shape[-1]), device=device)
        everyone = torch.ones(near.shape, device=device)
        for layer in network.encoder_layers:
            nodes, pairs = layer(nodes, pairs, near, mask, everyone)
        self.nodes, self.pairs = nodes[0], pairs[0]

    def start(self, count: int) -> DecoderStates:
        """Return the states of sequences of which nothing is known."""
        shape = (count, self.length)
        width = self.nodes.shape[1]
        return DecoderStates(
            torch.zeros(shape, dtype=torch.int64, device=self.device),
            torch.zeros(shape, dtype=torch.bool, device=self.device),
            [
                torch.zeros((*shape, width), device=self.device)
                for _ in self.network.decoder_layers
            ],
        )

    def decode(
        self,
        states: DecoderStates,
        index: torch.Tensor,
        position: torch.Tensor,
        *,
        in_index_order: bool,
        layers: range | None = None,
    ) -> None:
        """Compute the decoder states of some residues from those before them, in place.

        Parameters
        ----------
        states : DecoderStates
        index, position : Tensor of int, shape (n,)
            Which residues, of which sequences.
        in_index_order : bool
            Whether a revealed residue comes after revealed ones of smaller index only; a masked
            one comes after all revealed ones. Otherwise each comes after all revealed ones.
        layers : range, optional
            All of them by default.
        """

        def one_layer(number: int, low: int, high: int) -> None:
            b, i = index[low:high], position[low:high]
            near = self.neighbours[i]
            before = states.revealed[b[:, None], near]
            if in_index_order:
                before &= ~states.revealed[b, i][:, None] | (near < i[:, None])
            before = before[:, :, None]
            residues = self.network.W_s(states.tokens[b[:, None], near]) * before
            inner = self.nodes[near]
            mine = self.nodes[i]
            if number > 0:
                below = states.hidden[number - 1]
                inner = torch.where(before, below[b[:, None], near], inner)
                mine = below[b, i]
            message = torch.cat([self.pairs[i], residues, inner], dim=-1)
            layer = self.network.decoder_layers[number]
            states.hidden[number][b, i] = layer(mine[None], message[None])[0]

        with torch.no_grad():
            for number in layers or range(len(states.hidden)):
                self._batch.run(len(index), partial(one_layer, number), name=self._name)

    def logits(
        self, states: DecoderStates, index: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits of residues that were decoded, shape (n, 21)."""
        with torch.no_grad():
            logits: torch.Tensor = self.network.W_out(states.hidden[-1][index, position])
        return logits
