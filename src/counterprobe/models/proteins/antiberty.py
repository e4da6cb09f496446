"""AntiBERTy: a masked language model of 558 million natural antibody sequences.

Ruffolo, Gray and Sulam, "Deciphering antibody affinity maturation with language models and weakly
supervised learning", 2021. The package ``antiberty`` 0.1.3 (MIT) carries the weights, 26 million
parameters, which are those of a plain BERT with three further heads (species, chain, grafting)
that are not needed here.
"""

from __future__ import annotations

from typing import Any

from counterprobe.extras import install_command, load_extra
from counterprobe.models.letters import AMINO_ACIDS, Letters, SequenceModel
from counterprobe.models.weights import (
    default_device,
    fill_in,
    package_folder,
    read_checkpoint,
    tensors_of,
)

__all__ = ["INSTALL", "load_antiberty"]

INSTALL = install_command("antiberty")
# Padding, unknown, start, end, mask, then the residues alphabetically.
START, END, MASK_ID = 2, 3, 4
LETTERS = Letters(AMINO_ACIDS, tuple(range(5, 25)), MASK_ID, prefix=(START,), suffix=(END,))
# What the file holds beside a BERT for masked language modelling.
FURTHER_HEADS = (
    "bert.embeddings.position_ids",
    "bert.pooler.",
    "cls.species.",
    "cls.chain.",
    "cls.graft.",
)


def load_antiberty(*, device: Any = None) -> SequenceModel:
    """Load AntiBERTy, for sequences of at most 510 residues.

    Parameters
    ----------
    device : optional
        A GPU where there is one, by default.
    """
    folder = package_folder("antiberty", INSTALL, "antiberty")
    transformers = load_extra("transformers", "antiberty", "antiberty")
    config = transformers.BertConfig(
        vocab_size=25,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=8,
        num_attention_heads=8,
        max_position_embeddings=512,
        type_vocab_size=2,
        hidden_act="gelu",
        layer_norm_eps=1e-12,
        pad_token_id=0,
    )
    file = folder / "trained_models" / "AntiBERTy_md_smooth" / "pytorch_model.bin"
    network = transformers.BertForMaskedLM(config)
    fill_in(network, tensors_of(read_checkpoint(file), file), file, unused=FURTHER_HEADS)
    longest = config.max_position_embeddings - 2
    return SequenceModel("antiberty", network.eval().to(default_device(device)), LETTERS, longest)
