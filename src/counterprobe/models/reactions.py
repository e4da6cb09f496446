"""RXNMapper: a masked language model of chemical reactions, written as SMILES.

Schwaller and others, "Extraction of organic chemistry grammar from unsupervised learning of
chemical reactions", Science Advances 2021. The package ``rxnmapper`` (MIT) carries the weights,
0.8 million parameters: an ALBERT whose twelve layers share theirs. It needs an old transformers
and RDKit to run; its files are read here without importing it.

Its tokens are atoms, bonds and brackets. A hard case for everything that looks at pairs: where a
ring closes or a bracket opens, what may stand at a place depends on many others together.
"""

from __future__ import annotations

import json
from typing import Any

from counterprobe.extras import install_command, load_extra
from counterprobe.files import read_bytes
from counterprobe.models.letters import Letters, SequenceModel
from counterprobe.models.weights import (
    default_device,
    fill_in,
    package_folder,
    read_checkpoint,
    tensors_of,
)

__all__ = ["INSTALL", "load_rxnmapper"]

INSTALL = f"{install_command('transformers')} && pip install --no-deps rxnmapper==0.4.3"
FOLDER = "models/transformers/albert_heads_8_uspto_all_1310k"
# Bytes of its settings and of its vocabulary: a few kilobytes.
MOST_BYTES = 1 << 20
# A star stands for any atom, and so for no mask.
MASKS = ("[MASK]", "<mask>", "_")


def load_rxnmapper(*, device: Any = None) -> SequenceModel:
    """Load RXNMapper, for reactions of at most 510 tokens.

    Parameters
    ----------
    device : optional
        A GPU where there is one, by default.
    """
    folder = package_folder("rxnmapper", INSTALL, "rxnmapper") / FOLDER
    transformers = load_extra("transformers", "transformers", "rxnmapper")
    settings = json.loads(read_bytes(folder / "config.json", MOST_BYTES))
    config = transformers.AlbertConfig(**{
        name: settings[name]
        for name in (
            "vocab_size", "embedding_size", "hidden_size", "intermediate_size", "hidden_act",
            "num_attention_heads", "num_hidden_layers", "max_position_embeddings",
            "type_vocab_size", "layer_norm_eps", "pad_token_id",
        )
    })  # fmt: skip
    network = transformers.AlbertForMaskedLM(config)
    file = folder / "pytorch_model.bin"
    fill_in(network, tensors_of(read_checkpoint(file), file), file, unused=("albert.pooler.",))
    words = read_bytes(folder / "vocab.txt", MOST_BYTES).decode("utf-8").splitlines()
    id_of = {word: k for k, word in enumerate(words)}
    # Special tokens come first, down to the mask; atoms in brackets are tokens like others.
    drawn = words[id_of["[MASK]"] + 1 :]
    letters = Letters(
        tuple(drawn),
        tuple(id_of[word] for word in drawn),
        id_of["[MASK]"],
        prefix=(id_of["[CLS]"],),
        suffix=(id_of["[SEP]"],),
        masks=MASKS,
    )
    longest = config.max_position_embeddings - 2
    return SequenceModel("rxnmapper", network.eval().to(default_device(device)), letters, longest)
