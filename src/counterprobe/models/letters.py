"""Models of sequences of letters: how they spell their tokens, and a network with its alphabet.

Every model of proteins reads a sequence this way, whether it has a name here or comes from a
Hugging Face folder: one letter is one position, ``X``, ``_``, ``*``, ``[MASK]`` and ``<mask>`` are
masks, and a letter that the model does not know is an error that names it. Only the model's own
letters are drawn; further ones that it knows, such as selenocysteine (``U``), may be given, and
are drawn where they are allowed by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.models.described import Described, letter_facts, network_facts
from counterprobe.models.residues import Choices, choose_in_text
from counterprobe.models.template import Allowed, Template

if TYPE_CHECKING:
    from counterprobe.models.tied import TiedOracle
    from counterprobe.models.torch import TorchOracle

__all__ = ["AMINO_ACIDS", "Letters", "SequenceModel"]

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"


@dataclass(frozen=True, slots=True)
class Letters:
    """Letters and the ids that a model has for them.

    Attributes
    ----------
    symbols : str or tuple of str
        Token k is the k-th letter. Some models have letters of several characters, such as ``Cl``
        in formulas: the longest that fits is read.
    ids : tuple of int
        The model id of each letter.
    mask_id : int
    prefix, suffix : tuple of int
        Ids that the model wants before and after a sequence.
    masks : tuple of str
        Spellings of the mask; the first is used when a mask is written.
    others : mapping of str to int
        Letters that may be given, and are drawn only where they are allowed by name.
    marks : mapping of str to int
        What may stand between letters and is no position, such as a break between chains.

    Examples
    --------
    >>> letters = Letters("AB", (5, 6), mask_id=9, prefix=(0,), suffix=(2,))
    >>> template = letters.template("AX[MASK]B")
    >>> template.fill(template.given)
    array([[0, 5, 9, 9, 6, 2]])
    >>> template.text([0, 1, 1, 1])
    'ABBB'
    """

    symbols: str | tuple[str, ...]
    ids: tuple[int, ...]
    mask_id: int
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    masks: tuple[str, ...] = ("X", "[MASK]", "<mask>", "_", "*")
    others: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the mask is none of the letters: they would be drawn again, or lost."""
        ids = {**dict(zip(self.symbols, self.ids, strict=True)), **self.others, **self.marks}
        taken = [symbol for symbol, one in ids.items() if one == self.mask_id]
        if taken:
            raise ValueError(
                f"mask_id must be the id of a mask, got {self.mask_id}, which is {taken[0]!r}"
            )

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
        ids = self._read(sequence)
        num_letters = self._num_letters(ids)
        if num_letters == 0:
            raise ValueError("sequence must have at least one letter or mask, got none")
        if max_length is not None and num_letters > max_length:
            raise ValueError(
                f"sequence must have at most {max_length} letters, which is what the model was "
                f"trained on; got {num_letters}"
            )
        return self.of_ids([*self.prefix, *ids, *self.suffix], allowed=allowed)

    def of_ids(self, ids: Sequence[int], *, allowed: Allowed | None = None) -> Template:
        """Make a template of a whole input; every letter and every mask of it is a position.

        Parameters
        ----------
        ids : sequence of int, shape (L,)
            Letters, masks and marks, and what the model wants around them or not.
        allowed
            See :meth:`Template.allow`.
        """
        known = {*self._id_of.values(), *self.marks.values(), *self.prefix, *self.suffix}
        flat = ids if np.ndim(ids) == 1 else ()  # what is not is refused below
        for place, one in enumerate(flat, start=1):
            if one not in known and one != self.mask_id:
                raise ValueError(
                    f"ids must be letters, masks or special tokens, got {one} as number {place}"
                )
        asked = self._others_in(allowed)
        others = sorted(asked | {one for one in flat if one in self.others.values()})
        template = Template.from_ids(
            ids,
            self.mask_id,
            [*self.ids, *others],
            spell=partial(self.spell, framed=self._framed(flat)),
            look_up=self.look_up,
        )
        if asked and isinstance(allowed, Mapping):
            places = {*range(template.length), *allowed}
            allowed = {k: allowed.get(k, self.symbols) for k in places}
        elif others and not asked:
            template = template.allow(self.symbols)
        return template if allowed is None else template.allow(allowed)

    def _framed(self, ids: Sequence[int]) -> int | None:
        """Return the length of ids that begin with the prefix and end with the suffix."""
        start, stop = len(self.prefix), len(ids) - len(self.suffix)
        is_framed = tuple(ids[:start]) == self.prefix and tuple(ids[stop:]) == self.suffix
        return len(ids) if is_framed and start <= stop else None

    def _read(self, sequence: str) -> list[int]:
        """Return the ids of a sequence, or refuse the first letter that is unknown."""
        if not isinstance(sequence, str):
            raise ValueError(f"sequence must be text, got {type(sequence).__name__}")
        id_of = {**self._id_of, **self.marks, **dict.fromkeys(self.masks, self.mask_id)}
        text = "".join(sequence.split())
        words = _split(text, id_of)
        ids = [id_of[word] for word in words]
        place = sum(map(len, words))
        if place < len(text):
            is_small = text[place].islower() and text[place].upper() in self.symbols
            raise ValueError(
                f"sequence must consist of {self._known}, or {' or '.join(self.masks[:2])} for a "
                f"mask; got {_unread(text, place)!r} as letter {1 + self._num_letters(ids)}"
                + ("; use capital letters" if is_small else "")
            )
        return ids

    @property
    def _known(self) -> str:
        """What to call the letters: all of them where they are few."""
        few = len(self.symbols) <= len(AMINO_ACIDS) + 6
        return "".join(self.symbols) if few else f"the model's {len(self.symbols)} letters"

    def _num_letters(self, ids: Sequence[int]) -> int:
        return sum(one not in self.marks.values() for one in ids)

    def _others_in(self, allowed: Any) -> set[int]:
        """Return the ids of further letters that are named in what is allowed, at any depth."""
        if allowed is None or isinstance(allowed, np.ndarray):
            return set()
        if isinstance(allowed, str):
            named = _split(allowed, self._id_of)
            return {self.others[letter] for letter in named if letter in self.others}
        if isinstance(allowed, Mapping):
            return self._others_in(list(allowed.values()))
        if isinstance(allowed, Iterable):
            return set().union(*map(self._others_in, allowed))
        return {int(allowed)} & set(self.others.values())

    @property
    def _id_of(self) -> dict[str, int]:
        return {**dict(zip(self.symbols, self.ids, strict=True)), **self.others}

    def spell(self, ids: IntArray, framed: int | None = None) -> str:
        """Write ids as letters; what the model wants around a sequence is left out.

        Parameters
        ----------
        ids : ndarray of int, shape (n,)
        framed : int, optional
            The length of a whole frame: where ids are as many, they begin with the prefix and end
            with the suffix.
        """
        if len(ids) == framed:
            ids = ids[len(self.prefix) : framed - len(self.suffix)]
        symbol_of = {k: symbol for symbol, k in {**self.marks, **self._id_of}.items()}
        symbol_of[self.mask_id] = self.masks[0]
        return "".join(symbol_of.get(int(k), "") for k in ids)

    def look_up(self, letters: str) -> Sequence[int]:
        """Return the id of every letter."""
        words = _split(letters, self._id_of)
        place = sum(map(len, words))
        if place < len(letters):
            raise ValueError(
                f"letters must be among {self._known}, got {_unread(letters, place)!r}"
            )
        return [self._id_of[word] for word in words]


def _split(text: str, known: Iterable[str]) -> list[str]:
    """Split a text into known words, as far as it consists of them."""
    # Longest first, so that the letters of [MASK] are not read one by one.
    longest = sorted(known, key=len, reverse=True)
    read = re.compile("|".join(re.escape(word) for word in longest))
    words: list[str] = []
    place = 0
    while found := read.match(text, place):
        words.append(found.group())
        place = found.end()
    return words


def _unread(text: str, place: int) -> str:
    """Return what stands where a text could not be read: a letter, or all within brackets."""
    found = re.compile(r"\[[^\[\]]*\]|.", re.DOTALL).match(text, place)
    return text[place] if found is None else found.group()


# ----- A network over letters --------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class SequenceModel(Described):
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

    def facts(self) -> list[str]:
        """Return what it draws, and how large its network is."""
        return [*letter_facts(self.letters, self.max_length), *network_facts(self.network)]

    def template(
        self, text: str, *, allowed: Allowed | None = None, **choices: Unpack[Choices]
    ) -> Template:
        """Read a sequence, with ``X`` or ``[MASK]`` where a letter is to be filled in.

        Choices are ``design``, ``fixed``, ``tied``, ``omit`` and ``rules``, see
        :class:`counterprobe.models.residues.Choices`; residues are numbered from 1.
        """
        template = self.letters.template(text, allowed=allowed, max_length=self.max_length)
        return choose_in_text(template, **choices)

    def oracle(self, template: Template | str, **options: Any) -> TorchOracle | TiedOracle:
        """Return the oracle of one template; options as for :class:`TorchOracle`."""
        from counterprobe.models.tied import TiedOracle  # torch, when it is needed
        from counterprobe.models.torch import TorchOracle

        if isinstance(template, str):
            template = self.template(template)
        if template.tied is not None:
            return TiedOracle.of(self.oracle, template, **options)
        return TorchOracle(self.network, template, **{"name": self.name, **options})
