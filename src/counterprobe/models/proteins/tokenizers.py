"""Tokenizers of proteins: which Hugging Face tokenizers are, and what letters they have.

A tokenizer is one of proteins if its vocabulary holds the 20 amino acids as single letters, and no
small letter and no word beside them: those of ESM-2, ESM-C, ProtBERT and their kin. Their own way
of reading a text loses residues without a word: an unknown letter becomes an unknown token, which
is none of the residues, and ``X`` is a residue like others. So their sequences are read letter by
letter, as those of every other model of proteins (:class:`counterprobe.models.letters.Letters`).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from counterprobe.models.letters import AMINO_ACIDS, Letters

__all__ = ["letters_of"]

# What a vocabulary has in places that mean nothing: <null_1>, [unused3].
_PLACEHOLDER = re.compile(r"<[^<>]*>|\[[^\[\]]*\]")
# How sequences spell the mask, whatever else the letter might mean.
_MASK = "X"


def letters_of(
    tokenizer: Any,
    mask_id: int,
    special: Collection[int],
    num_ids: int,
    also_drawn: Collection[int | str] = (),
) -> Letters | None:
    """Return the letters of a tokenizer of proteins; None for one of anything else.

    Parameters
    ----------
    tokenizer
        Of transformers, fast or not.
    mask_id : int
    special : collection of int
        The ids that are special tokens.
    num_ids : int
        The ids that the network has a logit for are below it.
    also_drawn : collection of int or str
        Letters, or their ids, that may be drawn beside the 20 amino acids.
    """
    vocabulary: dict[str, int] = {
        token: int(one) for token, one in tokenizer.get_vocab().items() if one < num_ids
    }
    plain = {token: one for token, one in vocabulary.items() if one not in special}
    letters = {token: one for token, one in plain.items() if _is_letter(token)}
    if not set(AMINO_ACIDS) <= set(letters) or any(map(_is_of_text, plain)):
        return None
    named = [t for t, one in letters.items() if t in also_drawn or one in also_drawn]
    symbols = AMINO_ACIDS + "".join(sorted(set(named) - set(AMINO_ACIDS)))
    prefix, suffix = _frame(tokenizer, letters[AMINO_ACIDS[0]])
    no_marks = {mask_id, tokenizer.pad_token_id, tokenizer.unk_token_id}
    return Letters(
        symbols,
        tuple(letters[letter] for letter in symbols),
        mask_id,
        prefix,
        suffix,
        others={t: one for t, one in letters.items() if t not in symbols and t != _MASK},
        marks={t: one for t, one in vocabulary.items() if one in special and one not in no_marks},
    )


def _is_letter(token: str) -> bool:
    return len(token) == 1 and token.isascii() and token.isalpha() and token.isupper()


def _is_of_text(token: str) -> bool:
    """Whether a token is a small letter or a word, as tokenizers of texts have them."""
    is_word = len(token) > 1 and not _PLACEHOLDER.fullmatch(token)
    return is_word or (len(token) == 1 and token.islower())


def _frame(tokenizer: Any, letter_id: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the special tokens that a tokenizer puts before and after a sequence."""
    framed = [int(one) for one in tokenizer.encode(AMINO_ACIDS[0])]
    if framed.count(letter_id) != 1:
        raise ValueError(
            f"the tokenizer must read {AMINO_ACIDS[0]!r} as one letter, got the ids {framed}"
        )
    place = framed.index(letter_id)
    return tuple(framed[:place]), tuple(framed[place + 1 :])
