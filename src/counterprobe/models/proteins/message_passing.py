"""The decoder of ProteinMPNN, residue by residue: one function for every decoding order.

The network reads a backbone once (the encoder). Its decoder then gives a residue's logits from
its 48 nearest neighbours: those that are revealed *and* come before it in the decoding order are
seen with their residue and their decoder states, all others with what the encoder knows. Nothing
of a residue's decoder states depends on residues that come later, so that states once computed
can be kept: this module computes those of any set of residues, given those of the residues before
them.

A layer sends a message from every neighbour: two hidden layers of the joined features of both, and
a last linear map, summed over neighbours. Its first map is linear in each of the joined parts, so
that what the backbone fixes is computed once, and what a revealed residue adds once when it is
revealed; the last map is taken after the sum. What is left to do for a pair of neighbours is one
map in place of six as large, and rows agree with the network's own layers up to rounding. Where
nothing is revealed, states are the backbone's own, and come from the network's layers themselves.

Of a residue that the backbone does not model the network knows nothing: all of its states are
zero, as with the package's own mask, its neighbours read from it no more than its letter, and its
row is the same whatever stands around it.
"""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.extras import load_extra
from counterprobe.models.digests import rows_digest
from counterprobe.models.memory import BatchSize
from counterprobe.models.proteins.backbones import Backbone
from counterprobe.models.proteins.first_layer import FirstLayer, is_worth_a_table
from counterprobe.models.template import Template
from counterprobe.states import MASK

if TYPE_CHECKING:
    import torch

    from counterprobe.models.proteins.fused import FusedLayers
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["Decoder", "DecoderStates"]

# Residues at once: each needs messages from all of its neighbours.
HOST_RESIDUES = 1 << 8
DEVICE_RESIDUES = 1 << 16


@dataclass(frozen=True, slots=True)
class LayerParts:
    """A decoder layer, taken apart by what its first map is applied to.

    Attributes
    ----------
    own, inner : Tensor, shape (H, H)
        The map's columns for a residue's own states, and for its neighbour's.
    letters : Tensor, shape (21, H)
        What the residue of a revealed neighbour adds.
    nodes : Tensor, shape (N, H)
        What the encoder's states of a neighbour add.
    around : Tensor, shape (N, K, H)
        What a neighbour sends of which nothing is revealed, bias included.
    """

    own: torch.Tensor
    inner: torch.Tensor
    letters: torch.Tensor
    nodes: torch.Tensor
    around: torch.Tensor


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
    offered : list of Tensor, shape (B, N, H)
        For every layer, what a residue adds to the messages it sends once it is revealed; zero
        before.
    """

    tokens: torch.Tensor
    revealed: torch.Tensor
    hidden: list[torch.Tensor]
    offered: list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Places:
    """Some residues of some sequences.

    Attributes
    ----------
    position : Tensor of int, shape (n,)
    flat : Tensor of int, shape (n,)
        Where they are when sequences follow one another: one index is gathered faster than two.
    senders : Tensor of int, shape (n, K)
        Likewise, their neighbours.
    before : Tensor of bool, shape (n, K, 1), or None
        Which neighbours come before them; None for all that are revealed.
    letters : Tensor of int, shape (n, K), or None
        Of the neighbours that they see, where the first layer is looked up.
    """

    position: torch.Tensor
    flat: torch.Tensor
    senders: torch.Tensor
    before: torch.Tensor | None
    letters: torch.Tensor | None


class Decoder:
    """The decoder of a network, for one backbone.

    Parameters
    ----------
    network : ProteinMPNN
        Of the package ``proteinmpnn``, in evaluation mode.
    backbone : Backbone
    name : str
        For messages about memory.
    tf32 : bool
        Whether products on a GPU round their factors to TF32.

    Attributes
    ----------
    fused : FusedLayers or None
        The layers as kernels, on a GPU that Triton compiles for.
    atoms : slice
        Which of N, CA, C and O the network reads.
    is_known : ndarray of bool, shape (N,)
        Whether the backbone has these atoms of a residue.
    """

    def __init__(self, network: Any, backbone: Backbone, name: str, *, tf32: bool = True) -> None:
        self.network = network
        self.device = next(network.parameters()).device
        self.backbone = backbone
        self.length = len(backbone)
        self._name = name
        self._batch = BatchSize(HOST_RESIDUES if self.device.type == "cpu" else DEVICE_RESIDUES)
        # Networks of alpha carbons alone have this map, and need no other atom.
        self.atoms = slice(1, 2) if hasattr(network, "W_v") else slice(0, 4)
        self.is_known = backbone.has(self.atoms)
        known = torch.as_tensor(self.is_known, device=self.device, dtype=torch.float32)
        self.mask = None if self.is_known.all() else known[:, None]
        with torch.no_grad():
            self._encode(backbone, known)
            self.parts = [self._take_apart(layer) for layer in network.decoder_layers]
            self._bare = self._decode_bare()
            self.fused = self._fuse(tf32)
        self._first: FirstLayer | None = None
        self._is_looked_up = is_worth_a_table(self.parts[0])

    def content_digest(self, template: Template, *others: Any) -> str | None:
        """Return what weights, backbone, template and whatever else is named determine."""
        places = self.backbone.coordinates, self.backbone.residue_index, self.backbone.chain
        short = ("tf32",) if self.fused is not None and self.fused.tf32 else ()
        return rows_digest(self.network, template, *places, *others, *short)

    def _encode(self, backbone: Backbone, known: torch.Tensor) -> None:
        """Read the backbone: states of residues, of pairs of neighbours, and who is one."""
        network, device = self.network, self.device
        places, index, chain = (
            torch.as_tensor(part.copy(), device=device)[None]
            for part in (
                np.nan_to_num(backbone.coordinates[:, self.atoms], nan=0.0),
                backbone.residue_index,
                backbone.chain,
            )
        )
        if places.shape[2] == 1:
            places = places[:, :, 0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it takes cross products without naming the axis
            edges, self.neighbours = (
                part[0] for part in network.features(places, known[None], index, chain)
            )
        near = self.neighbours[None]
        pairs = network.W_e(edges[None])
        nodes = torch.zeros((1, self.length, pairs.shape[-1]), device=device)
        both = known[:, None] * known[self.neighbours]
        for layer in network.encoder_layers:
            nodes, pairs = layer(nodes, pairs, near, known[None], both[None])
        self.nodes, self.pairs = nodes[0], pairs[0]

    def _take_apart(self, layer: Any) -> LayerParts:
        """Split the first map of a layer, and apply it to what the backbone fixes."""
        # In double precision on the host: it is done once, and rounding is then the layer's alone.
        nodes, pairs, letters, weight, bias = (
            part.detach().cpu().double()
            for part in (
                self.nodes,
                self.pairs,
                self.network.W_s.weight,
                layer.W1.weight,
                layer.W1.bias,
            )
        )
        own, pair, residue, inner = weight.split(nodes.shape[1], dim=1)
        sent = nodes @ inner.T
        around = pairs @ pair.T + bias + sent[self.neighbours.cpu()]
        return LayerParts(
            *(
                part.to(self.nodes.dtype).to(self.device).contiguous()
                for part in (own, inner, letters @ residue.T, sent, around)
            )
        )

    def without_fusing(self) -> Decoder:
        """Return the same decoder, with layers of plain tensors in full precision."""
        plain = copy(self)
        plain.fused = None
        return plain

    def _fuse(self, tf32: bool) -> FusedLayers | None:
        """Return the layers as kernels, where there is what compiles them."""
        if self.device.type != "cuda" or find_spec("triton") is None:
            return None
        from counterprobe.models.proteins.fused import FusedLayers, fits

        return FusedLayers(self, tf32=tf32) if fits(self) else None

    def _decode_bare(self) -> list[torch.Tensor]:
        """Return the states of all residues when nothing is revealed, by the layers themselves."""
        nobody = torch.zeros((*self.neighbours.shape, self.nodes.shape[1]), device=self.device)
        message = torch.cat([self.pairs, nobody, self.nodes[self.neighbours]], dim=-1)
        states = [self.nodes]
        mask = None if self.mask is None else self.mask[None, :, 0]
        for layer in self.network.decoder_layers:
            states.append(layer(states[-1][None], message[None], mask)[0])
        return states[1:]

    def begin(self, states: StateArray, index: IntArray | None = None) -> DecoderStates:
        """Return the states of sequences of which some context is known, decoded by index."""
        known = self.start(len(states))
        known.tokens.copy_(torch.as_tensor(np.maximum(states, 0)))
        known.revealed.copy_(torch.as_tensor(states != MASK))
        given = known.revealed.nonzero(as_tuple=True)
        if len(given[0]):
            self.decode(known, *given, ranks=self.by_index(len(states), index))
        return known

    def by_index(self, count: int, index: IntArray | None = None) -> torch.Tensor:
        """Return ranks by index of so many sequences, shape ``(count, N)``.

        Parameters
        ----------
        count : int
        index : ndarray of int, shape (N,), optional
            By default 0 to N - 1.
        """
        if index is None:
            return torch.arange(self.length, device=self.device).expand(count, -1)
        return torch.as_tensor(index.copy(), device=self.device).expand(count, -1)

    def start(self, count: int) -> DecoderStates:
        """Return the states of sequences of which nothing is known."""
        shape = (count, self.length)
        width = self.nodes.shape[1]

        def of_every_layer() -> list[torch.Tensor]:
            return [torch.zeros((*shape, width), device=self.device) for _ in self.parts]

        return DecoderStates(
            torch.zeros(shape, dtype=torch.int64, device=self.device),
            torch.zeros(shape, dtype=torch.bool, device=self.device),
            of_every_layer(),
            of_every_layer(),
        )

    def reveal(
        self,
        states: DecoderStates,
        index: torch.Tensor,
        position: torch.Tensor,
        tokens: torch.Tensor,
    ) -> None:
        """Reveal residues that were decoded, for those that come after them.

        Parameters
        ----------
        states : DecoderStates
        index, position, tokens : Tensor of int, shape (n,)
            Of which sequences, where, and what.
        """
        where = index, position
        states.tokens[where] = tokens
        states.revealed[where] = True
        with torch.no_grad():
            for number, parts in enumerate(self.parts):
                if number == 0 and self._is_looked_up:
                    continue
                offer = parts.letters[tokens]
                if number > 0:
                    below = self._times(states.hidden[number - 1][where], parts.inner)
                    offer = offer + (below - parts.nodes[position])
                states.offered[number][where] = offer

    def decode(
        self,
        states: DecoderStates,
        index: torch.Tensor,
        position: torch.Tensor,
        *,
        ranks: torch.Tensor | None = None,
        layers: range | None = None,
        is_bare: bool = False,
    ) -> None:
        """Compute the decoder states of some residues from those before them, in place.

        Parameters
        ----------
        states : DecoderStates
        index, position : Tensor of int, shape (n,)
            Which residues, of which sequences.
        ranks : Tensor of int, shape (B, N), optional
            In which order revealed residues were decoded: each comes after revealed ones of
            smaller rank only, a masked one after all revealed ones. Without ranks each comes
            after all revealed ones, which must have been revealed with :meth:`reveal`.
        layers : range, optional
            All of them by default.
        is_bare : bool
            Whether nothing is revealed in any of these sequences.
        """
        numbers = layers or range(len(self.parts))
        if is_bare:
            for number in numbers:
                states.hidden[number][index, position] = self._bare[number][position]
            return
        with torch.no_grad():
            if self._is_looked_up and self._first is None:
                first = self.network.decoder_layers[0]
                self._first = FirstLayer(self.parts[0], first, self.nodes)
            places = self._places(states, index, position, ranks)
            for number in numbers:
                if ranks is not None and not (number == 0 and self._is_looked_up):
                    self._offer_all(states, number)
                work = partial(self._layer, states, places, number)
                self._batch.run(len(index), work, name=self._name)

    def _places(
        self,
        states: DecoderStates,
        index: torch.Tensor,
        position: torch.Tensor,
        ranks: torch.Tensor | None,
    ) -> Places:
        """Find residues and their neighbours in flat arrays, once for all layers."""
        near = self.neighbours[position]
        first = index * self.length
        before = None
        if ranks is not None:
            is_masked = ~states.revealed[index, position]
            is_earlier = ranks[index[:, None], near] < ranks[index, position][:, None]
            before = (is_masked[:, None] | is_earlier)[:, :, None]
        senders = first[:, None] + near
        table = self._first
        letters = None if table is None else table.letters(states, senders, before)
        return Places(position, first + position, senders, before, letters)

    def _offer_all(self, states: DecoderStates, number: int) -> None:
        """Compute what all revealed residues offer to a layer, from the states below it."""
        parts = self.parts[number]
        offer = parts.letters[states.tokens]
        if number > 0:
            below = self._times(states.hidden[number - 1], parts.inner)
            offer = offer + (below - parts.nodes)
        states.offered[number] = offer * states.revealed[:, :, None]

    def _layer(
        self, states: DecoderStates, places: Places, number: int, low: int, high: int
    ) -> None:
        """Compute one layer of the residues from ``low`` to ``high``."""
        parts, layer = self.parts[number], self.network.decoder_layers[number]
        width = self.nodes.shape[1]
        position, flat = places.position[low:high], places.flat[low:high]
        if self.fused is not None:
            before = None if places.before is None else places.before[low:high]
            below = None if number == 0 else states.hidden[number - 1].view(-1, width)
            self.fused.layer(
                number,
                states.hidden[number].view(-1, width),
                states.offered[number],
                below,
                flat,
                position,
                before,
            )
            return
        senders = places.senders[low:high]
        if number == 0:
            mine = gather(self.nodes, position)
        else:
            mine = gather(states.hidden[number - 1].view(-1, width), flat)
        if number == 0 and self._first is not None:
            assert places.letters is not None
            total = self._first.sums(position, places.letters[low:high])
        else:
            message = gather(states.offered[number].view(-1, width), senders)
            if places.before is not None:
                message *= places.before[low:high]
            message += gather(parts.around, position)
            message += (mine @ parts.own.T)[:, None]
            total = layer.act(layer.W2(layer.act(message))).sum(dim=1)
        change = total @ layer.W3.weight.T + senders.shape[1] * layer.W3.bias
        found = layer.norm1(mine + change / layer.scale)
        found = layer.norm2(found + layer.dense(found))
        if self.mask is not None:
            found *= gather(self.mask, position)
        states.hidden[number].view(-1, width)[flat] = found

    def logits(
        self, states: DecoderStates, index: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits of residues that were decoded, shape (n, 21)."""
        with torch.no_grad():
            found, last = states.hidden[-1][index, position], self.network.W_out
            logits: torch.Tensor = (
                last(found)
                if self.fused is None
                else self.fused.steady(found, last.weight) + last.bias
            )
        return logits

    def _times(self, states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Multiply by a matrix; beside kernels, steadily."""
        if self.fused is None:
            return states @ weight.T
        return self.fused.steady(states, weight)


def gather(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return ``table[index]``; on a processor several times as fast as indexing."""
    chosen = table.index_select(0, index.flatten())
    return chosen.view(*index.shape, *table.shape[1:])
