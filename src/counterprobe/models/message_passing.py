"""The decoder of ProteinMPNN, residue by residue: one function for every decoding order.

The network reads a backbone once (the encoder). Its decoder then gives a residue's logits from
its 48 nearest neighbours: those that are revealed *and* come before it in the decoding order are
seen with their residue and their decoder states, all others with what the encoder knows. Nothing
of a residue's decoder states depends on residues that come later, so that states once computed
can be kept: this module computes those of any set of residues, given those of the residues before
them.

A layer sends a message from every neighbour through three linear maps. The first reads four parts
side by side, so that it is a sum of four maps: that of the pair is the same for every sequence on
a backbone, that of a residue type is a table, that of a neighbour's states is computed once when
they are. The last one can wait until messages have been added up. What is left for every pair of
neighbours is the middle one, a sixth of the work of the layer as the package runs it.
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
    sent : list of Tensor, shape (B, N, H)
        That output as the next layer's first map reads it from a neighbour; of the last, nothing.
    """

    tokens: torch.Tensor
    revealed: torch.Tensor
    hidden: list[torch.Tensor]
    sent: list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Layer:
    """One decoder layer, its first map taken apart for one backbone.

    Attributes
    ----------
    whole
        The package's layer.
    own : Tensor, shape (H, H)
        Of the residue's own states.
    unseen : Tensor, shape (N, K, H)
        Of pairs and of neighbours that are known by the encoder alone, with the offset.
    seen : Tensor, shape (N, K, H)
        Of pairs whose neighbour is seen, with the offset; its states are added.
    types : Tensor, shape (21, H)
        Of the residue types.
    state : Tensor, shape (H, H)
        Of a neighbour's states.
    """

    whole: Any
    own: torch.Tensor
    unseen: torch.Tensor
    seen: torch.Tensor
    types: torch.Tensor
    state: torch.Tensor


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
        self._layers = [self._taken_apart(layer) for layer in network.decoder_layers]

    def _taken_apart(self, layer: Any) -> _Layer:
        """Apply what the first map of a layer does to everything that sequences share."""
        own, pair, kind, state = layer.W1.weight.split(self.nodes.shape[1], dim=1)
        seen = self.pairs @ pair.T + layer.W1.bias
        unseen = seen + (self.nodes @ state.T)[self.neighbours]
        return _Layer(layer, own.T, unseen, seen, self.network.W_s.weight @ kind.T, state.T)

    def start(self, count: int) -> DecoderStates:
        """Return the states of sequences of which nothing is known."""
        shape = (count, self.length)
        width = self.nodes.shape[1]

        def zeros(number: int) -> list[torch.Tensor]:
            return [torch.zeros((*shape, width), device=self.device) for _ in range(number)]

        return DecoderStates(
            torch.zeros(shape, dtype=torch.int64, device=self.device),
            torch.zeros(shape, dtype=torch.bool, device=self.device),
            zeros(len(self._layers)),
            zeros(len(self._layers) - 1),
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
            if not states.revealed.any():
                found = self._with_nothing_revealed(states, number, b, i)
            else:
                near = self.neighbours[i]
                before = states.revealed[b[:, None], near]
                if in_index_order:
                    before &= ~states.revealed[b, i][:, None] | (near < i[:, None])
                found = self._messages(states, number, b, i, near, before)
            states.hidden[number][b, i] = found
            if number < len(states.sent):
                states.sent[number][b, i] = found @ self._layers[number + 1].state

        with torch.no_grad():
            for number in layers or range(len(states.hidden)):
                self._batch.run(len(index), partial(one_layer, number), name=self._name)

    def _messages(
        self,
        states: DecoderStates,
        number: int,
        b: torch.Tensor,
        i: torch.Tensor,
        near: torch.Tensor,
        before: torch.Tensor,
    ) -> torch.Tensor:
        """Return the output of a layer for residues whose neighbours partly come before them."""
        parts = self._layers[number]
        layer = parts.whole
        types = parts.types[states.tokens[b[:, None], near]]
        if number == 0:
            mine = self.nodes[i]
            seen = parts.unseen[i] + types
        else:
            mine = states.hidden[number - 1][b, i]
            seen = parts.seen[i] + types + states.sent[number - 1][b[:, None], near]
        first = torch.where(before[:, :, None], seen, parts.unseen[i])
        first += (mine @ parts.own)[:, None, :]
        added = layer.act(layer.W2(layer.act(first))).sum(dim=1)
        sent = added @ layer.W3.weight.T + near.shape[1] * layer.W3.bias
        state = layer.norm1(mine + sent / layer.scale)
        out: torch.Tensor = layer.norm2(state + layer.dense(state))
        return out

    def _with_nothing_revealed(
        self, states: DecoderStates, number: int, b: torch.Tensor, i: torch.Tensor
    ) -> torch.Tensor:
        """Return the output of the package's own layer, bit by bit, where it sees no residue.

        It is the same in every sequence, and computed once for each residue.
        """
        place, where = torch.unique(i, return_inverse=True)
        one = torch.empty_like(place).scatter_(0, where, torch.arange(len(i), device=i.device))
        inner = self.nodes[self.neighbours[place]]
        message = torch.cat([self.pairs[place], torch.zeros_like(inner), inner], dim=-1)
        mine = self.nodes[place] if number == 0 else states.hidden[number - 1][b[one], place]
        layer = self._layers[number].whole
        out: torch.Tensor = layer(mine[None], message[None])[0]
        return out[where]

    def logits(
        self, states: DecoderStates, index: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits of residues that were decoded, shape (n, 21)."""
        with torch.no_grad():
            logits: torch.Tensor = self.network.W_out(states.hidden[-1][index, position])
        return logits
