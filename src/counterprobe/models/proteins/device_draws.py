"""Whole designs on a GPU: batches that were fixed before are drawn there, round after round.

A plan says beforehand which residues are committed together, so that nothing has to come back to
the host between its rounds: the tokens of one round are drawn and revealed where the next is
decoded. All rounds run the same six kernels (``fused.py``), which find their residues by the
number of the round; they are captured once for each number of sequences and then only started,
which takes microseconds.

What a sequence draws rests on its own noise and numbers alone, so that sequences which do not fit
into memory together are drawn in parts.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.extras import load_extra
from counterprobe.models.memory import BatchSize
from counterprobe.models.proteins import fused
from counterprobe.models.template import Template
from counterprobe.oracles import Drawing, Drawn
from counterprobe.states import MASK

if TYPE_CHECKING:
    import torch

    from counterprobe.models.proteins.message_passing import Decoder
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["Buffers", "DeviceDraws"]

# Buffers and captured rounds that are kept, of different numbers of sequences.
MOST_KEPT = 4
# Residues of all sequences together: kernels count what a round writes, 128 numbers of each, in 32
# bits, and a round may hold all of them.
MOST_RESIDUES = 1 << 23


class DeviceDraws:
    """Draws sequences of one template by plans, on the device of a decoder.

    Parameters
    ----------
    decoder : Decoder
    template : Template
    temperature : float
        Of the law.
    name : str
        For messages about memory.

    Attributes
    ----------
    size : BatchSize
        Sequences that are drawn together, at most.
    """

    def __init__(
        self, decoder: Decoder, template: Template, temperature: float, name: str
    ) -> None:
        self._decoder = decoder
        self._name = name
        self.size = BatchSize(max(1, MOST_RESIDUES // decoder.length))
        self._temperature = temperature
        assert decoder.fused is not None
        self._layers = decoder.fused
        self._out = _Output.of(decoder, template)
        self._kept: OrderedDict[tuple[int, int], Buffers] = OrderedDict()

    def draw(self, states: StateArray, drawing: Drawing) -> Drawn:
        """Draw every round of every sequence.

        Parameters
        ----------
        states : ndarray of int, shape (B, N)
            Given context, which counts as decoded by index, and masks.
        drawing : Drawing
        """
        work = partial(self._draw_part, states, drawing)
        parts = self.size.run(len(states), work, name=self._name)
        if len(parts) == 1:
            return parts[0]
        return Drawn(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("tokens", "log_probs", "scores")
            )
        )

    def _draw_part(self, states: StateArray, drawing: Drawing, low: int, high: int) -> Drawn:
        """Draw the sequences from ``low`` to ``high``."""
        states = states[low:high]
        drawing = replace(
            drawing, rounds=drawing.rounds[low:high], uniforms=drawing.uniforms[low:high]
        )
        sizes = np.bincount(drawing.rounds.ravel() + 1)[1:]  # of what is not below 0
        work = self._buffers(len(states), int(sizes.max(initial=1)))
        work.load(states, drawing, sizes, self._decoder, self._temperature)
        for _ in sizes:
            work.advance()
        return work.drawn()

    def _buffers(self, count: int, widest: int) -> Buffers:
        """Return buffers for so many sequences and residues a round, with their captured round."""
        for size in (16, 64, 256):
            if widest <= size:
                break
        else:
            size = -(-widest // 512) * 512
        key = count, size
        if key not in self._kept:
            while len(self._kept) >= MOST_KEPT:
                self._kept.popitem(last=False)
            self._kept[key] = self._new_buffers(count, size)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _new_buffers(self, count: int, size: int) -> Buffers:
        """Make buffers; those that are kept give way where memory is short."""
        while self._kept:
            try:
                return Buffers(self._layers, self._out, count, size)
            except torch.OutOfMemoryError:
                self._kept.popitem(last=False)
            torch.cuda.empty_cache()
        return Buffers(self._layers, self._out, count, size)


@dataclass(frozen=True, slots=True)
class _Output:
    """The last map of the network, for the tokens of a template.

    Attributes
    ----------
    weight : Tensor, shape (H, 32)
    bias : Tensor, shape (32,)
    shifts : Tensor, shape (N, 32)
        Added to the logits of a position: what is favoured there, and minus infinity for what is
        not allowed.
    ids : Tensor of int, shape (32,)
        The network's letters of tokens.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    shifts: torch.Tensor
    ids: torch.Tensor
    vocab_size: int

    @classmethod
    def of(cls, decoder: Decoder, template: Template) -> _Output:
        last, device = decoder.network.W_out, decoder.device
        ids = torch.as_tensor(template.vocabulary.copy(), device=device)
        size = len(ids)
        weight = torch.zeros((last.weight.shape[1], fused.TOKENS), device=device)
        bias = torch.zeros(fused.TOKENS, device=device)
        assert decoder.fused is not None
        weight[:, :size] = fused.rounded(last.weight.detach()[ids].T, decoder.fused.tf32)
        bias[:size] = last.bias.detach()[ids]
        shifts = np.full((template.length, fused.TOKENS), -np.inf, dtype=np.float32)
        shifts[:, :size] = 0.0 if template.bias is None else template.bias
        if template.has_restrictions and template.permitted is not None:
            shifts[:, :size][~template.permitted[template.kind]] = -np.inf
        padded = torch.zeros(fused.TOKENS, dtype=torch.int32, device=device)
        padded[:size] = ids.to(torch.int32)
        return cls(
            weight,
            bias,
            torch.as_tensor(shifts, device=device),
            padded,
            size,
        )


class Buffers:
    """What a round reads and writes on the device, for some number of sequences.

    Parameters
    ----------
    layers : FusedLayers
    out : _Output
    count : int
        Sequences.
    widest : int
        Residues of a round, at most.
    """

    def __init__(self, layers: fused.FusedLayers, out: _Output, count: int, widest: int) -> None:
        self._layers, self.out = layers, out
        self.count, self.length = count, layers.length
        device, width, places = layers.device, fused.WIDTH, count * layers.length

        def empty(*shape: int, dtype: Any = torch.float32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.place, self.position = (empty(places, dtype=torch.int32) for _ in range(2))
        self.starts = empty(layers.length + 2, dtype=torch.int32)
        self.number = empty(1, dtype=torch.int32)
        self.temperatures = empty(2)
        self.uniforms = empty(places, dtype=torch.float64)
        self.tokens = empty(places, dtype=torch.int32)
        self.scored = empty(2, places)
        self.offered = [empty(places, width) for _ in layers.parts]
        self.total, self.found = empty(widest, width), empty(widest, width)
        self.own = empty(widest, width)
        self.offers = [empty(widest, width) for _ in layers.parts[1:]]
        self._graph: Any = None

    def load(
        self,
        states: StateArray,
        drawing: Drawing,
        sizes: IntArray,
        decoder: Decoder,
        temperature: float,
    ) -> None:
        """Take in what is given, what is committed when, and the noise."""
        device = self.place.device
        rounds = torch.as_tensor(drawing.rounds.astype(np.int16)).to(device).view(-1)
        order = torch.sort(rounds, stable=True).indices[rounds.numel() - int(sizes.sum()) :]
        self.place[: len(order)] = order
        self.position[: len(order)] = order % self.length
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        self.starts[: len(starts)] = torch.as_tensor(starts)
        self.number.zero_()
        self.temperatures.copy_(torch.tensor([1.0, temperature * drawing.temperature]))
        self.uniforms.copy_(torch.as_tensor(np.ascontiguousarray(drawing.uniforms)).view(-1))
        self.tokens.fill_(MASK)
        self.scored.fill_(torch.nan)
        is_given = states != MASK
        if not is_given.any():
            for offered in self.offered:
                offered.zero_()
            return
        is_same = bool((states == states[0]).all())
        known = decoder.begin(states[:1] if is_same else states)
        for offered, begun in zip(self.offered, known.offered, strict=True):
            offered.view(self.count, self.length, -1).copy_(begun)

    def advance(self) -> None:
        """Draw the next round, by what was captured of a round."""
        if self.place.device.type != "cuda":
            self._step()
            return
        if self._graph is None:
            self._capture()
        self._graph.replay()

    def drawn(self) -> Drawn:
        """Return tokens and their log-probabilities, on the host."""
        shape = self.count, self.length
        log_probs, own = self.scored.cpu().numpy().astype(np.float64)
        tokens = self.tokens.cpu().numpy().astype(np.int64)
        return Drawn(tokens.reshape(shape), log_probs.reshape(shape), -own.reshape(shape))

    def _capture(self) -> None:
        """Capture a round; kernels are compiled by a round of no residues before."""
        now = self.number.clone()
        self.number.fill_(self.length)  # nobody has so many rounds
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._step()
        self.number.copy_(now)

    def _step(self) -> None:
        """Decode a round's residues, draw them and reveal them; then it is the next round's."""
        layers, last = self._layers, len(self._layers.parts) - 1
        where = fused.Rounds(self.place, self.position, self.starts, self.number)
        for number in range(len(layers.parts)):
            layers.messages(number, self.total, self.offered[number], where, own=self.own)
            layers.update(
                number,
                self.found,
                self.total,
                where,
                mine=self.found,
                own=self.own,
                offer=self.offers[number] if number < last else None,
            )
        layers.draw(self, where)
        self.number.add_(1)
