"""Sapiens: masked language models of human antibody variable regions, heavy and light.

Prihoda and others, "BioPhi: a platform for antibody design, humanization, and humanness
evaluation based on natural antibody repertoires and deep learning", mAbs 2022. The package
``sapiens`` (MIT) carries the weights, 0.57 million parameters per chain. It needs an old fairseq
and an old NumPy to run, but its checkpoints are plain tensors: they are read here without
importing it, into a RoBERTa of four layers written out below.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, Literal

from counterprobe.extras import load_extra
from counterprobe.models.letters import AMINO_ACIDS, Letters, SequenceModel
from counterprobe.models.weights import (
    default_device,
    fill_in,
    package_folder,
    read_checkpoint,
    tensors_of,
)

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn import functional
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")
    nn, functional = torch.nn, torch.nn.functional

__all__ = ["INSTALL", "load_sapiens"]

INSTALL = "pip install --no-deps sapiens==1.0.3"
HEADS = 8
# The dictionary: four special tokens, the residues alphabetically, the mask.
START, PADDING, END, MASK_ID = 0, 1, 2, 24
LETTERS = Letters(AMINO_ACIDS, tuple(range(4, 24)), MASK_ID, prefix=(START,), suffix=(END,))


def load_sapiens(chain: Literal["heavy", "light"], *, device: Any = None) -> SequenceModel:
    """Load the model of one chain.

    Parameters
    ----------
    chain : {"heavy", "light"}
        Light is one model for kappa and lambda.
    device : optional
        A GPU where there is one, by default.

    Returns
    -------
    SequenceModel
        Of at most 142 residues for heavy and 126 for light chains.
    """
    if chain not in ("heavy", "light"):
        raise ValueError(f"chain must be 'heavy' or 'light', got {chain!r}")
    folder = package_folder("sapiens", INSTALL, f"sapiens-{chain}")
    file = folder / "models" / "v1" / f"checkpoint_v{chain[0]}.pt"
    checkpoint = read_checkpoint(file, safe=[argparse.Namespace])
    state = {
        _renamed(name): value for name, value in tensors_of(checkpoint, file, "model").items()
    }
    num_places = len(state.get("places.weight", ()))
    network = Roberta(
        num_ids=len(state.get("embed.weight", ())), num_places=num_places, num_layers=4
    )
    fill_in(network, state, file)
    # Places count from after the padding id, and two of them hold start and end.
    longest = num_places - (PADDING + 1) - 2
    return SequenceModel(
        f"sapiens-{chain}", network.eval().to(default_device(device)), LETTERS, longest
    )


def _renamed(name: str) -> str:
    """Turn a name of fairseq's RoBERTa into ours."""
    name = name.removeprefix("decoder.")
    for old, new in (
        (r"^sentence_encoder\.layers\.", "layers."),
        (r"^sentence_encoder\.embed_tokens", "embed"),
        (r"^sentence_encoder\.embed_positions", "places"),
        (r"^sentence_encoder\.emb_layer_norm", "norm"),
        (r"^lm_head\.layer_norm", "head_norm"),
        (r"^lm_head\.dense", "head_dense"),
        (r"^lm_head\.", "head."),
        (r"self_attn_layer_norm", "attention_norm"),
        (r"self_attn\.", ""),
    ):
        name = re.sub(old, new, name)
    return name


class RobertaLayer(nn.Module):
    """Attention, then a feed-forward step, each added and normalised afterwards."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, inner)
        self.fc2 = nn.Linear(inner, width)
        self.final_layer_norm = nn.LayerNorm(width)

    def forward(
        self, hidden: torch.Tensor, output_attentions: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the next hidden states, shape ``(B, L, width)``, and attention if asked for."""
        batch, length, width = hidden.shape
        query, key, value = (
            part(hidden).view(batch, length, HEADS, -1).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        weights = None
        if output_attentions:  # beside the fused kernel, which keeps them: rows stay the same
            weights = (query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5).softmax(dim=-1)
        seen = functional.scaled_dot_product_attention(query, key, value)
        seen = self.out_proj(seen.transpose(1, 2).reshape(batch, length, width))
        hidden = self.attention_norm(hidden + seen)
        step = self.fc2(functional.gelu(self.fc1(hidden)))
        return self.final_layer_norm(hidden + step), weights


class Roberta(nn.Module):
    """The masked language model of Liu and others (2019), as small as Sapiens has it."""

    def __init__(
        self,
        num_ids: int,
        num_places: int,
        num_layers: int,
        width: int = 128,
        inner: int = 256,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(num_ids, width)
        self.places = nn.Embedding(num_places, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(RobertaLayer(width, inner) for _ in range(num_layers))
        self.head_dense = nn.Linear(width, width)
        self.head_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_ids)

    def forward(
        self, ids: torch.Tensor, output_attentions: bool = False
    ) -> torch.Tensor | tuple[torch.Tensor, list[torch.Tensor]]:
        """Return logits of shape ``(B, L, num_ids)``, with attention if asked."""
        place = torch.arange(ids.shape[1], device=ids.device) + PADDING + 1
        hidden = self.norm(self.embed(ids) + self.places(place))
        attentions = []
        for layer in self.layers:
            hidden, weights = layer(hidden, output_attentions)
            attentions.append(weights)
        logits: torch.Tensor = self.head(self.head_norm(functional.gelu(self.head_dense(hidden))))
        return (logits, attentions) if output_attentions else logits
