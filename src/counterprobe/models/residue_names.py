"""What residues are called: lists of them, as people write them, become positions.

Residues are named by chain and number as in a structure file, ``A10-25,B7``, insertion codes
included (``A52A``), or by a whole chain (``A``); where there is but one chain, or no structure at
all, by number alone (``27-35``), from 1; and regions of antibodies by their IMGT names
(``CDR-H3``). ``*`` is all of them, and a colon may stand behind a chain, ``A1:7``. What is not
there is an error that says what is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.models.proteins import antibody_numbering
from counterprobe.models.template import Template
from counterprobe.states import MASK

__all__ = ["EVERY", "Listed", "Names", "items"]

Listed = str | Sequence[str]
EVERY = "*"
_NUMBER = r"(-?\d+[A-Za-z]?)"


@dataclass(frozen=True, slots=True)
class Names:
    """What residues are called.

    Attributes
    ----------
    numbers : tuple of str
        Of every residue, its insertion code behind it.
    chain_ids : tuple of str
        Names of the chains; none for a text.
    chain : ndarray of int, shape (N,)
        Which chain each residue belongs to, from 0.
    sequence : str
        Letters, masks as ``X``, with ``/`` between chains: where regions are looked for.

    Examples
    --------
    >>> names = Names(("1", "2", "2A", "5"), ("H",), np.zeros(4, dtype=int), "EVQL")
    >>> names.find("H2-5,1")
    array([1, 2, 3, 0])
    """

    numbers: tuple[str, ...]
    chain_ids: tuple[str, ...]
    chain: IntArray
    sequence: str

    @classmethod
    def of_text(cls, template: Template) -> Names:
        """Return names of the positions of a text: numbers from 1."""
        ids = template.vocabulary
        spelled = {int(k): template.spell(ids[k : k + 1]) for k in set(template.given) - {MASK}}
        letters = [spelled.get(int(token), "X") for token in template.given]
        numbers = tuple(str(k + 1) for k in range(template.length))
        return cls(numbers, (), np.zeros(template.length, dtype=np.int64), "".join(letters))

    def label(self, position: int) -> str:
        """Return the name of a residue, with its chain where there are any."""
        chain = self.chain_ids[self.chain[position]] if self.chain_ids else ""
        return chain + self.numbers[position]

    def of_chain(self, name: str) -> IntArray:
        """Return the positions of a chain."""
        if name not in self.chain_ids:
            raise ValueError(f"there is no chain {name!r} here; {self._known_chains()}")
        return np.flatnonzero(self.chain == self.chain_ids.index(name))

    def find(self, listed: Listed) -> IntArray:
        """Return the positions of a list of residues, in the order of the list, each once."""
        found = [position for item in items(listed) for position in self.of_item(item)]
        return np.array(list(dict.fromkeys(found)), dtype=np.int64)

    def of_item(self, item: str) -> IntArray:
        """Return the positions of one item: a residue, a range, a chain or a region."""
        if item == EVERY:
            return np.arange(len(self.numbers))
        if antibody_numbering.is_region(item):
            return antibody_numbering.positions_of(item, self.sequence)
        readings = list(self._readings(item))
        if not readings:
            example = f"{self.chain_ids[0]}10-25" if self.chain_ids else "10-25"
            raise ValueError(
                f"residues must be named like {example}, got {item!r}; {self._known_chains()}"
            )
        found, problems = [], []
        for chain, low, high in readings:
            try:
                found.append(self._range(item, chain, low, high))
            except ValueError as problem:
                problems.append(problem)
        if not found:
            raise problems[0]
        if len(found) > 1:
            raise ValueError(
                f"{item!r} may mean several residues: put a colon behind the chain, as in "
                f"{readings[0][0]}:"
            )
        return found[0]

    def _readings(self, item: str) -> Iterator[tuple[str | None, str | None, str | None]]:
        """Yield every way to read an item: a chain, and the first and last number in it."""
        for chain in sorted(self.chain_ids, key=len, reverse=True):
            if item in (chain, f"{chain}:"):
                yield chain, None, None
            before = f"{re.escape(chain)}:?"
            matched = re.fullmatch(rf"{before}{_NUMBER}(?:-(?:{before})?{_NUMBER})?", item)
            if matched is not None:
                yield chain, matched[1], matched[2]
        matched = re.fullmatch(rf"{_NUMBER}(?:-{_NUMBER})?", item)
        if matched is not None and len(self.chain_ids) < 2 and "" not in self.chain_ids:
            yield None, matched[1], matched[2]

    def _range(self, item: str, chain: str | None, low: str | None, high: str | None) -> IntArray:
        mine = np.arange(len(self.numbers)) if chain is None else self.of_chain(chain)
        if low is None:
            return mine
        first = self._place(mine, chain, low)
        last = first if high is None else self._place(mine, chain, high)
        if last < first:
            raise ValueError(f"a range must run forwards, got {item!r}")
        return mine[first : last + 1]

    def _place(self, mine: IntArray, chain: str | None, number: str) -> int:
        numbers = [self.numbers[k] for k in mine]
        for spelled in (number, number.upper()):
            if spelled in numbers:
                return numbers.index(spelled)
        where = f"chain {chain}" if chain else "the sequence"
        raise ValueError(
            f"{where} has no residue {number}; it has {numbers[0]} to {numbers[-1]}"
            + (f", {len(numbers)} of them" if chain else "")
        )

    def _known_chains(self) -> str:
        if not self.chain_ids:
            return f"there are no chains, but residues 1 to {len(self.numbers)}"
        several = "chains" if len(self.chain_ids) > 1 else "chain"
        return f"there {'are' if len(self.chain_ids) > 1 else 'is'} {several} " + ", ".join(
            self.chain_ids
        )


def items(listed: Listed) -> list[str]:
    """Split a list of residues at commas and white space."""
    parts = [listed] if isinstance(listed, str) else list(listed)
    if not all(isinstance(part, str) for part in parts):
        raise ValueError(f"residues must be named in text, such as '10-25', got {listed!r}")
    found = [item for part in parts for item in re.split(r"[,\s]+", part) if item]
    if not found:
        raise ValueError("a list of residues must name at least one, got none")
    return found
