"""Models of sequences of letters: how they spell their tokens, and a network with its alphabet."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterprobe.arrays import IntArray
from counterprobe.models.template import Allowed, Template

if TYPE_CHECKING:
    from counterprobe.models.torch import TorchOracle

__all__ = ["AMINO_ACIDS", "Letters", "SequenceModel"]

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"


@dataclass(frozen=True, slots=True)
class Letters:
    """Letters and the ids that a model has for them.

    Attributes
    ----------
    symbols : str
        Token k is the k-th letter.
    ids : tuple of int
        The model id of each letter.
    mask_id : int
    prefix, suffix : tuple of int
        Ids that the model wants before and after a sequence.
    masks : tuple of str
        Spellings of the mask; the first is used when a mask is written.

    Examples
    --------
    >>> letters = Letters("AB", (5, 6), mask_id=9, prefix=(0,), suffix=(2,))
    >>> template = letters.template("AX[MASK]B")
    >>> template.fill(template.given)
    array([[0, 5, 9, 9, 6, 2]])
    >>> template.text([0, 1, 1, 1])
    'ABBB'
    """

    symbols: str
    ids: tuple[int, ...]
    mask_id: int
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    masks: tuple[str, ...] = ("X", "[MASK]", "<mask>", "_", "*")

    def template(
        self, sequence: str, *, allowed: Allowed | None = None, max_length: int | None = None
    ) -> Template:
        """Read a sequence with masks.

        Parameters
        ----------
        sequence : str
            Letters, with ``X``, ``[MASK]``, ``<mask>``, ``_`` or ``*`` for a mask; white space is
            left out.
        allowed
            See :meth:`Template.allow`; tokens are named by their letters.
        max_length : int, optional
            The most letters that the model takes.
        """
        if not isinstance(sequence, str):
            raise ValueError(f"sequence must be text, got {type(sequence).__name__}")
        id_of = dict(zip(self.symbols, self.ids, strict=True))
        id_of.update(dict.fromkeys(self.masks, self.mask_id))
        # Longest first, so that the letters of [MASK] are not read one by one.
        spellings = sorted(id_of, key=len, reverse=True)
        read = re.compile("|".join(re.escape(word) for word in spellings))
        ids: list[int] = []
        text = "".join(sequence.split())
        place = 0
        while place < len(text):
            found = read.match(text, place)
            if found is None:
                raise ValueError(
                    f"sequence must consist of {self.symbols}, or {' or '.join(self.masks[:2])} "
                    f"for a mask; got {text[place]!r} at position {len(ids)}"
                    + ("; use capital letters" if text[place].islower() else "")
                )
            ids.append(id_of[found.group()])
            place = found.end()
        if not ids:
            raise ValueError("sequence must have at least one letter or mask, got none")
        if max_length is not None and len(ids) > max_length:
            raise ValueError(
                f"sequence must have at most {max_length} letters, which is what the model was "
                f"trained on; got {len(ids)}"
            )
        return Template.from_ids(
            [*self.prefix, *ids, *self.suffix],
            self.mask_id,
            self.ids,
            allowed=allowed,
            spell=self.spell,
            look_up=self.look_up,
        )

    def spell(self, ids: IntArray) -> str:
        """Write ids as letters; what is neither letter nor mask is left out."""
        symbol_of = dict(zip(self.ids, self.symbols, strict=True))
        symbol_of[self.mask_id] = self.masks[0]
        return "".join(symbol_of.get(int(k), "") for k in ids)

    def look_up(self, letters: str) -> Sequence[int]:
        """Return the id of every letter."""
        id_of = dict(zip(self.symbols, self.ids, strict=True))
        for letter in letters:
            if letter not in id_of:
                raise ValueError(f"letters must be among {self.symbols}, got {letter!r}")
        return [id_of[letter] for letter in letters]


# ----- A network over letters --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SequenceModel:
    """A network over letters.

    Attributes
    ----------
    name : str
    network : callable
        Takes ids and returns logits, as :class:`TorchOracle` wants it.
    letters : Letters
    max_length : int
        The most letters in a sequence.
    """

    name: str
    network: Callable[..., Any]
    letters: Letters
    max_length: int

    def template(self, text: str, *, allowed: Allowed | None = None) -> Template:
        """Read a sequence, with ``X`` or ``[MASK]`` where a letter is to be filled in."""
        return self.letters.template(text, allowed=allowed, max_length=self.max_length)

    def oracle(self, template: Template | str, **options: Any) -> TorchOracle:
        """Return the oracle of one template; options as for :class:`TorchOracle`."""
        from counterprobe.models.torch import TorchOracle  # torch, when it is needed

        if isinstance(template, str):
            template = self.template(template)
        return TorchOracle(self.network, template, **{"name": self.name, **options})
