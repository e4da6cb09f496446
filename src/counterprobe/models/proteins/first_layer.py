"""The decoder's first layer, looked up: what a neighbour sends there takes 22 values.

A message of the first layer rests on the backbone and on the letter of the neighbour that sends
it, or on none where nothing is revealed, and on no state that was computed before. So all of them
are computed once, 22 for every pair of neighbours, and a residue's sum is one look into a table
for each of its 48 neighbours in place of a product. That takes as long as the layer takes for 22
sequences, and 2.5 kB for every pair: on a processor, for backbones whose table is not too large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterprobe.extras import load_extra

if TYPE_CHECKING:
    import torch

    from counterprobe.models.proteins.message_passing import DecoderStates, LayerParts
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["FirstLayer", "is_worth_a_table"]

# Bytes of the largest table: of backbones of up to 496 residues.
MOST_BYTES = 1 << 28
# Positions whose messages are computed at a time.
AT_ONCE = 4


class FirstLayer:
    """Sums of messages of the first layer.

    Parameters
    ----------
    parts : LayerParts
        Of the first layer.
    layer : DecLayer
        The same layer, as the package has it.
    nodes : Tensor, shape (N, H)
        What the encoder knows of every residue.

    Attributes
    ----------
    unseen : int
        What stands in place of the letter of a neighbour that is not seen.
    """

    def __init__(self, parts: LayerParts, layer: Any, nodes: torch.Tensor) -> None:
        size, degree, width = parts.around.shape
        self.unseen = len(parts.letters)
        letters = torch.cat([parts.letters, parts.letters.new_zeros((1, width))])
        bare = parts.around + (nodes @ parts.own.T)[:, None]
        table = torch.empty((size, degree, len(letters), width), device=nodes.device)
        with torch.no_grad():
            for low in range(0, size, AT_ONCE):
                message = bare[low : low + AT_ONCE, :, None] + letters
                table[low : low + AT_ONCE] = layer.act(layer.W2(layer.act(message)))
        self._table = table.view(-1, width)
        starts = torch.arange(size * degree, device=nodes.device) * len(letters)
        self._starts = starts.view(size, degree)

    def letters(
        self,
        states: DecoderStates,
        senders: torch.Tensor,
        before: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the letters of neighbours that are seen, shape (n, K).

        Parameters
        ----------
        states : DecoderStates
        senders : Tensor of int, shape (n, K)
            Where the neighbours are when sequences follow one another.
        before : Tensor of bool, shape (n, K, 1), optional
            Which of them may be seen at all.
        """
        flat = senders.flatten()
        seen = states.revealed.view(-1).index_select(0, flat).view(senders.shape)
        if before is not None:
            seen &= before[:, :, 0]
        letters = states.tokens.view(-1).index_select(0, flat).view(senders.shape)
        return letters.masked_fill_(~seen, self.unseen)

    def sums(self, position: torch.Tensor, letters: torch.Tensor) -> torch.Tensor:
        """Return the sum of all messages to some residues, shape (n, H).

        Parameters
        ----------
        position : Tensor of int, shape (n,)
        letters : Tensor of int, shape (n, K)
            Of their neighbours, ``unseen`` where nothing is seen.
        """
        where = self._starts.index_select(0, position) + letters
        return torch.nn.functional.embedding_bag(where, self._table, mode="sum")


def is_worth_a_table(parts: LayerParts) -> bool:
    """Whether a table stands on a processor, and is small enough."""
    size, degree, width = parts.around.shape
    needed = size * degree * (len(parts.letters) + 1) * width * parts.around.element_size()
    return parts.around.device.type == "cpu" and needed <= MOST_BYTES
