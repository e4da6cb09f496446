"""The decoder of ProteinMPNN on a GPU, a layer in two kernels and a draw in one more.

What ``message_passing.py`` says with tensors is said here again for Triton, so that messages never
leave the chip: a residue's 48 messages are gathered, passed through both hidden layers and summed
by one program; another adds the sum to the residue's states. A third gives logits, draws a residue
from them by one uniform, and writes down what the residue offers to those decoded after it. No
residue's numbers depend on how many are decoded beside it.

Products take TF32, which keeps ten bits of each factor, unless full precision is asked for.
"""

# Triton reads annotations of kernels, and knows no types but its own.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from counterprobe.extras import load_extra

if TYPE_CHECKING:
    import torch

    from counterprobe.models.proteins.device_draws import Buffers
    from counterprobe.models.proteins.message_passing import Decoder

    triton: Any
    tl: Any
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")
    import triton
    import triton.language as tl

__all__ = ["TOKENS", "WIDTH", "FusedLayers", "Rounds", "fits", "normal", "on_device"]

F = TypeVar("F", bound=Callable[..., object])

# Width of the network's states.
WIDTH = 128
# Residues of a program that sums messages, messages of each at a time, and its warps.
RESIDUES, NEAR, MESSAGE_WARPS = 1, 16, 4
# Residues of a program that updates states or draws, and its warps.
ROWS, UPDATE_WARPS = 16, 8
# Tokens of a vocabulary, padded.
TOKENS = 32


def on_device(function: F) -> Any:
    """Compile a function for a GPU; the types that it is annotated with are for readers."""
    return cast("Any", triton.jit)(function)


@on_device
def _gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@on_device
def _times(x, matrix, precision: tl.constexpr):
    """Multiply; to TF32 factors are rounded here, since the hardware would cut them off."""
    if precision == "tf32":
        bits = x.to(tl.int32, bitcast=True) + 0x1000
        x = (bits & -0x2000).to(tl.float32, bitcast=True)
    return tl.dot(x, matrix, input_precision=precision)


@on_device
def _round_of(starts, number):
    """Return where a round's residues begin, and how many they are."""
    now = tl.load(number)
    low = tl.load(starts + now)
    return low, tl.load(starts + now + 1) - low


@on_device
def _messages(
    total, offered, around, own, neighbours, before, place, position, starts, number, weight, bias,
    length, degree: tl.constexpr, own_by_position: tl.constexpr, has_before: tl.constexpr,
    width: tl.constexpr, residues: tl.constexpr, rows: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Sum the messages of each residue: ``sum_k gelu(W2 gelu(m_k) + b2)``."""
    low, count = _round_of(starts, number)
    column = tl.arange(0, width)
    one = tl.arange(0, residues * rows) // rows
    near = tl.arange(0, residues * rows) % rows
    matrix = tl.load(weight + column[:, None] * width + column[None, :])
    offset = tl.load(bias + column)
    for first in range(tl.program_id(0) * residues, count, tl.num_programs(0) * residues):
        who = low + first + one
        is_one = first + one < count
        where = tl.load(position + who, mask=is_one, other=0)
        start = tl.load(place + who, mask=is_one, other=0) - where
        if own_by_position:
            mine = tl.load(own + where[:, None] * width + column[None, :])
        else:
            mine = tl.load(
                own + (who - low)[:, None] * width + column[None, :],
                mask=is_one[:, None], other=0.0,
            )  # fmt: skip
        found = tl.zeros((residues, width), dtype=tl.float32)
        for block in range(0, degree, rows):
            rank = block + near
            is_near = is_one & (rank < degree)
            sender = start + tl.load(neighbours + where * degree + rank, mask=is_near, other=0)
            message = tl.load(
                offered + sender.to(tl.int64)[:, None] * width + column[None, :],
                mask=is_near[:, None], other=0.0,
            )  # fmt: skip
            if has_before:
                is_before = tl.load(before + who * degree + rank, mask=is_near, other=0)
                message = tl.where((is_before != 0)[:, None], message, 0.0)
            message += mine + tl.load(
                around + (where * degree + rank)[:, None] * width + column[None, :],
                mask=is_near[:, None], other=0.0,
            )  # fmt: skip
            sent = _times(_gelu(message), matrix, precision)
            sent = tl.where(is_near[:, None], _gelu(sent + offset[None, :]), 0.0)
            found += tl.sum(tl.reshape(sent, (residues, rows, width)), axis=1)
        row = first + tl.arange(0, residues)
        tl.store(
            total + row[:, None] * width + column[None, :], found, mask=(row < count)[:, None]
        )


@on_device
def normal(x, scale, shift, width):
    """Normalise each row, as a layer of that name does."""
    mean = tl.sum(x, axis=1) / width
    x = x - mean[:, None]
    deviation = tl.sqrt(tl.sum(x * x, axis=1) / width + 1e-5)
    return x / deviation[:, None] * scale[None, :] + shift[None, :]


@on_device
def _update(
    found, total, mine, place, position, starts, number,
    w3, b3, norm1, shift1, w_in, b_in, w_out, b_out, norm2, shift2, known,
    own, next_own, offer, next_inner, next_nodes,
    degree: tl.constexpr, scale: tl.constexpr, mine_by_position: tl.constexpr,
    has_known: tl.constexpr, has_next: tl.constexpr, to_place: tl.constexpr,
    width: tl.constexpr, rows: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Add the sum of messages to the states of residues, and get the next layer ready."""
    low, count = _round_of(starts, number)
    column = tl.arange(0, width)
    square = column[:, None] * width + column[None, :]
    for first in range(tl.program_id(0) * rows, count, tl.num_programs(0) * rows):
        row = first + tl.arange(0, rows)
        is_row = (row < count)[:, None]
        here = row[:, None] * width + column[None, :]
        where = tl.load(position + low + row, mask=row < count, other=0)
        at = where[:, None] * width + column[None, :]
        if mine_by_position:
            x = tl.load(mine + at)
        else:
            x = tl.load(mine + here, mask=is_row, other=0.0)
        summed = tl.load(total + here, mask=is_row, other=0.0)
        change = _times(summed, tl.load(w3 + square), precision)
        x += (change + degree * tl.load(b3 + column)[None, :]) / scale
        x = normal(x, tl.load(norm1 + column), tl.load(shift1 + column), width)
        change = tl.zeros((rows, width), dtype=tl.float32) + tl.load(b_out + column)[None, :]
        for part in range(4):
            inside = part * width + column
            matrix = tl.load(w_in + column[:, None] * (4 * width) + inside[None, :])
            hidden = _times(x, matrix, precision)
            hidden = _gelu(hidden + tl.load(b_in + inside)[None, :])
            matrix = tl.load(w_out + inside[:, None] * width + column[None, :])
            change += _times(hidden, matrix, precision)
        x = normal(x + change, tl.load(norm2 + column), tl.load(shift2 + column), width)
        if has_known:
            x *= tl.load(known + where)[:, None]
        if to_place:
            there = tl.load(place + low + row, mask=row < count, other=0).to(tl.int64)
            tl.store(found + there[:, None] * width + column[None, :], x, mask=is_row)
        else:
            tl.store(found + here, x, mask=is_row)
        if has_next:
            asked = _times(x, tl.load(next_own + square), precision)
            tl.store(own + here, asked, mask=is_row)
            sent = _times(x, tl.load(next_inner + square), precision)
            tl.store(offer + here, sent - tl.load(next_nodes + at), mask=is_row)


@on_device
def _draw(
    tokens, log_probs, scores, found, place, position, starts, number, uniforms,
    w_out, b_out, shifts, ids, temperatures,
    letters0, letters1, letters2, offer1, offer2, offered0, offered1, offered2,
    vocab_size: tl.constexpr, width: tl.constexpr, rows: tl.constexpr, padded: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Draw a residue from the logits of each by its uniform, and reveal it."""
    low, count = _round_of(starts, number)
    column = tl.arange(0, width)
    token = tl.arange(0, padded)
    is_token = token < vocab_size
    matrix = tl.load(w_out + column[:, None] * padded + token[None, :])
    for first in range(tl.program_id(0) * rows, count, tl.num_programs(0) * rows):
        row = first + tl.arange(0, rows)
        is_row = row < count
        here = row[:, None] * width + column[None, :]
        where = tl.load(position + low + row, mask=is_row, other=0)
        there = tl.load(place + low + row, mask=is_row, other=0).to(tl.int64)
        x = tl.load(found + here, mask=is_row[:, None], other=0.0)
        logits = _times(x, matrix, precision) + tl.load(b_out + token)[None, :]
        logits += tl.load(shifts + where[:, None] * padded + token[None, :])
        cold = logits / tl.load(temperatures + 1)
        logits /= tl.load(temperatures)
        weight = tl.exp(cold - tl.max(cold, axis=1)[:, None])
        weight = tl.where(is_token[None, :], weight, 0.0)
        total = tl.sum(weight.to(tl.float64), axis=1)
        share = (weight.to(tl.float64) / total[:, None]).to(tl.float32)
        cdf = tl.cumsum(share.to(tl.float64), axis=1)
        target = tl.load(uniforms + there, mask=is_row, other=0.0) * tl.max(cdf, axis=1)
        is_passed = (cdf <= target[:, None]) & is_token[None, :]
        last = tl.max(tl.where(share > 0, token[None, :], 0), axis=1)
        chosen = tl.minimum(tl.sum(is_passed.to(tl.int32), axis=1), last)
        is_chosen = token[None, :] == chosen[:, None]
        drawn = tl.sum(tl.where(is_chosen, share, 0.0), axis=1)
        tl.store(tokens + there, chosen, mask=is_row)
        tl.store(log_probs + there, tl.log(drawn), mask=is_row)
        warm = tl.exp(logits - tl.max(logits, axis=1)[:, None])
        warm = tl.where(is_token[None, :], warm, 0.0)
        one = tl.sum(tl.where(is_chosen, warm, 0.0), axis=1) / tl.sum(warm, axis=1)
        tl.store(scores + there, tl.log(one), mask=is_row)
        letter = tl.load(ids + chosen)[:, None] * width + column[None, :]
        at = there[:, None] * width + column[None, :]
        wide = is_row[:, None]
        tl.store(offered0 + at, tl.load(letters0 + letter), mask=wide)
        sent = tl.load(offer1 + here, mask=wide, other=0.0)
        tl.store(offered1 + at, sent + tl.load(letters1 + letter), mask=wide)
        sent = tl.load(offer2 + here, mask=wide, other=0.0)
        tl.store(offered2 + at, sent + tl.load(letters2 + letter), mask=wide)


# ----- From the host ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rounds:
    """Residues of sequences that follow one another, round after round, on the device.

    Attributes
    ----------
    place, position : Tensor of int32, shape (n,)
        Where each residue is among all sequences, and in its own.
    starts : Tensor of int32, shape (rounds + 1,)
        Where each round begins.
    number : Tensor of int32, shape (1,)
        The round that is meant.
    """

    place: torch.Tensor
    position: torch.Tensor
    starts: torch.Tensor
    number: torch.Tensor


def fits(decoder: Decoder) -> bool:
    """Whether a network has the sizes that the kernels were written for."""
    layers = decoder.network.decoder_layers
    return len(layers) == 3 and layers[0].W2.weight.shape == (WIDTH, WIDTH)


class FusedLayers:
    """The layers of a decoder, as kernels read them.

    Parameters
    ----------
    decoder : Decoder
        On a GPU.
    tf32 : bool
        Whether factors of products are rounded to ten bits.

    Attributes
    ----------
    parts : list of LayerParts
    """

    def __init__(self, decoder: Decoder, *, tf32: bool = True) -> None:
        network = decoder.network
        self.device, self.length, self.parts = decoder.device, decoder.length, decoder.parts
        self.tf32 = tf32
        # Three products of TF32 are as good as one of full precision, and faster.
        self._precision = "tf32" if tf32 else "tf32x3"
        self._nodes = decoder.nodes.contiguous()
        self._neighbours = decoder.neighbours.to(torch.int32).contiguous()
        self._degree = int(self._neighbours.shape[1])
        self._known = decoder.mask
        self._first_own = (decoder.nodes @ self.parts[0].own.T).contiguous()
        self._scale = float(network.decoder_layers[0].scale)
        self._weights = [_layer_weights(layer, tf32) for layer in network.decoder_layers]
        self._next = [
            (rounded(parts.own.T, tf32), rounded(parts.inner.T, tf32)) for parts in self.parts
        ]
        self._most = 4 * _num_processors(self.device)

    def messages(
        self,
        number: int,
        total: torch.Tensor,
        offered: torch.Tensor,
        where: Rounds,
        *,
        own: torch.Tensor,
        before: torch.Tensor | None = None,
    ) -> None:
        """Write the summed messages of each residue of a round to ``total``."""
        weights = self._weights[number]
        _messages[(min(self._most, -(-len(total) // RESIDUES)),)](
            total, offered, self.parts[number].around, self._first_own if number == 0 else own,
            self._neighbours, where.place if before is None else before,
            where.place, where.position, where.starts, where.number, weights["W2"], weights["b2"],
            self.length, degree=self._degree, own_by_position=number == 0,
            has_before=before is not None, width=WIDTH, residues=RESIDUES, rows=NEAR,
            precision=self._precision, num_warps=MESSAGE_WARPS,
        )  # fmt: skip

    def update(
        self,
        number: int,
        found: torch.Tensor,
        total: torch.Tensor,
        where: Rounds,
        *,
        mine: torch.Tensor,
        own: torch.Tensor | None = None,
        offer: torch.Tensor | None = None,
        to_place: bool = False,
    ) -> None:
        """Write the states of each residue after a layer, and what the next one needs of it."""
        w = self._weights[number]
        has_next = offer is not None
        following = number + 1 if has_next else number
        next_own, next_inner = self._next[following]
        _update[(min(self._most, -(-len(total) // ROWS)),)](
            found, total, self._nodes if number == 0 else mine,
            where.place, where.position, where.starts, where.number,
            w["W3"], w["b3"], w["norm1"], w["shift1"], w["W_in"], w["b_in"], w["W_out"],
            w["b_out"], w["norm2"], w["shift2"], total if self._known is None else self._known,
            own if has_next else total, next_own, offer if has_next else total, next_inner,
            self.parts[following].nodes,
            degree=self._degree, scale=self._scale, mine_by_position=number == 0,
            has_known=self._known is not None, has_next=has_next, to_place=to_place,
            width=WIDTH, rows=ROWS, precision=self._precision, num_warps=UPDATE_WARPS,
            num_stages=1,
        )  # fmt: skip

    def layer(
        self,
        number: int,
        found: torch.Tensor,
        offered: torch.Tensor,
        below: torch.Tensor | None,
        place: torch.Tensor,
        position: torch.Tensor,
        before: torch.Tensor | None,
    ) -> None:
        """Compute one layer of some residues, from the states of the layer below.

        Parameters
        ----------
        number : int
        found, below : Tensor, shape (B * N, H)
            States after this layer, which are written, and after the one below.
        offered : Tensor, shape (B, N, H)
        place, position : Tensor of int, shape (n,)
        before : Tensor of bool, shape (n, K, 1), optional
            Which neighbours are seen; all that are revealed by default.
        """
        count = len(place)
        bounds = torch.tensor([0, count], dtype=torch.int32, device=self.device)
        where = Rounds(
            place.to(torch.int32), position.to(torch.int32), bounds, bounds[:1]
        )  # the first of the bounds, 0, is also the number of the round
        total = torch.empty((count, WIDTH), device=self.device)
        mine = total if below is None else below.index_select(0, place)
        own = total if below is None else self.steady(mine, self.parts[number].own)
        if before is not None:
            before = before.reshape(count, -1).to(torch.uint8).contiguous()
        self.messages(number, total, offered, where, own=own, before=before)
        self.update(number, found, total, where, mine=mine, to_place=True)

    @staticmethod
    def steady(states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return ``states @ weight.T``, the same of every row whatever stands beside it.

        A library multiplies few rows and many in different ways; in double precision what that
        moves is rounded away.
        """
        return (states.double() @ weight.T.double()).float()

    def draw(self, work: Buffers, where: Rounds) -> None:
        """Draw the residues of a round from their states, and let later ones see them."""
        out, letters = work.out, [parts.letters for parts in self.parts]
        _draw[(min(self._most, -(-len(work.total) // ROWS)),)](
            work.tokens, work.scored[0], work.scored[1], work.found,
            where.place, where.position, where.starts, where.number, work.uniforms,
            out.weight, out.bias, out.shifts, out.ids, work.temperatures,
            *letters, *work.offers, *work.offered,
            vocab_size=out.vocab_size, width=WIDTH, rows=ROWS, padded=TOKENS,
            precision=self._precision, num_warps=4,
        )  # fmt: skip


def _layer_weights(layer: Any, tf32: bool) -> dict[str, torch.Tensor]:
    """Return the maps of a decoder layer, inputs first."""
    named = {
        "W2": layer.W2.weight.T,
        "b2": layer.W2.bias,
        "W3": layer.W3.weight.T,
        "b3": layer.W3.bias,
        "norm1": layer.norm1.weight,
        "shift1": layer.norm1.bias,
        "W_in": layer.dense.W_in.weight.T,
        "b_in": layer.dense.W_in.bias,
        "W_out": layer.dense.W_out.weight.T,
        "b_out": layer.dense.W_out.bias,
        "norm2": layer.norm2.weight,
        "shift2": layer.norm2.bias,
    }
    return {
        name: rounded(part.detach(), tf32) if part.ndim == 2 else part.detach().contiguous()
        for name, part in named.items()
    }


def rounded(weight: torch.Tensor, tf32: bool) -> torch.Tensor:
    """Return a matrix of weights in the precision of products, rounded and not cut off."""
    if not tf32:
        return weight.contiguous()
    return ((weight.contiguous().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)


def _num_processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1  # interpreted
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
