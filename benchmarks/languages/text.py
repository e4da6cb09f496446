"""Text that Debian packages ship, as tokens of our own making.

The sources of two documentations are read, one file a document:

* ``python3.11-doc``: Python's documentation, PSF License Agreement version 2, its examples also
  under the Zero-Clause BSD licence;
* ``linux-doc-6.1``: the Linux kernel's documentation, GPL version 2 unless a file says otherwise.

``apt-get download`` fetches a package, ``dpkg -x`` unpacks it; nothing is installed. Every 20th
document of Python's, by name, is held out of everything that is trained. The byte-level pairs of
the tokenizer are counted on what is left of Python's.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

__all__ = ["BLOCK", "END", "MASK_TOKEN", "Corpus", "blocks_of", "fetch", "prepare", "read"]

BLOCK = 256
VOCAB_SIZE = 2048
END, MASK_TOKEN = "<end>", "<mask>"
HELD_OUT = 20
PACKAGES = {"python": "python3.11-doc", "linux": "linux-doc-6.1"}


@dataclass(frozen=True)
class Corpus:
    """Tokens of every part, and what spells them.

    Attributes
    ----------
    parts : dict of str to ndarray of uint16
        ``python`` and ``linux`` to train on, ``held`` to judge by.
    tokenizer : PreTrainedTokenizerFast
    """

    parts: dict[str, np.ndarray]
    tokenizer: PreTrainedTokenizerFast


def fetch(package: str, folder: Path) -> Path:
    """Download a package with apt and unpack it; return where its files lie."""
    unpacked = folder / package
    if not unpacked.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True)
        (file,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", str(file), str(unpacked)], check=True)
    return unpacked


def documents(folder: Path) -> list[str]:
    """Return the sources of every page, in the order of their names."""
    files = sorted(folder.rglob("_sources/**/*.rst.txt"))
    texts = [file.read_text(encoding="utf-8", errors="ignore").strip() for file in files]
    return [text for text in texts if len(text) > 200]


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Count pairs of bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END, MASK_TOKEN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def joined(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """Return documents one after another, each with its end."""
    end = tokenizer.token_to_id(END)
    ids: list[int] = []
    for encoded in tokenizer.encode_batch(texts):
        ids.extend(encoded.ids)
        ids.append(end)
    return np.array(ids, dtype=np.uint16)


def prepare(packages: Path, out: Path) -> dict[str, int]:
    """Write ``tokens.npz`` and ``tokenizer.json``; return how many tokens every part has."""
    python = documents(fetch(PACKAGES["python"], packages))
    held = python[::HELD_OUT]
    kept = [text for k, text in enumerate(python) if k % HELD_OUT]
    tokenizer = train_tokenizer(kept)
    parts = {
        "python": joined(tokenizer, kept),
        "held": joined(tokenizer, held),
        "linux": joined(tokenizer, documents(fetch(PACKAGES["linux"], packages))),
    }
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / "tokens.npz", **parts)
    tokenizer.save(str(out / "tokenizer.json"))
    digest = hashlib.sha256(b"".join(part.tobytes() for part in parts.values())).hexdigest()
    sizes = {name: len(part) for name, part in parts.items()}
    (out / "text.json").write_text(json.dumps({"tokens": sizes, "sha256": digest}) + "\n")
    return sizes


def read(folder: Path) -> Corpus:
    """Read what :func:`prepare` wrote."""
    with np.load(folder / "tokens.npz") as arrays:
        parts = {name: arrays[name] for name in arrays.files}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token=END, mask_token=MASK_TOKEN
    )
    return Corpus(parts, tokenizer)


def blocks_of(tokens: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return blocks of consecutive tokens from evenly spread places, shape ``(count, BLOCK)``."""
    rng = np.random.default_rng(seed)
    edges = np.linspace(0, len(tokens) - BLOCK, count + 1)
    starts = [int(rng.integers(low, high + 1)) for low, high in itertools.pairwise(edges)]
    return np.stack([tokens[start : start + BLOCK] for start in starts]).astype(np.int64)
