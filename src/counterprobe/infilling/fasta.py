"""FASTA: named sequences, one record after another, lines of letters after each name.

The name of a record is the first word after ``>``; the rest of that line is its description. A
text without any ``>`` is one record that has the name of its file. What is written has all letters
of a record on one line, so that a file that was cut shows whether its last record is whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from counterprobe.files import read_text

__all__ = ["FastaRecord", "as_fasta", "parse_fasta", "read_fasta"]

# Bytes of a file of sequences.
MOST_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class FastaRecord:
    """One record.

    Attributes
    ----------
    name : str
        The first word of its header.
    sequence : str
        Its letters, white space left out.
    description : str
        The rest of the header.
    """

    name: str
    sequence: str
    description: str = ""


def read_fasta(file: str | os.PathLike[str]) -> list[FastaRecord]:
    """Read the records of a file, in order; their names must differ.

    Parameters
    ----------
    file : path
        In UTF-8.
    """
    return parse_fasta(read_text(file, MOST_BYTES), os.fspath(file))


def parse_fasta(text: str, source: str) -> list[FastaRecord]:
    r"""Read the records of a text; errors name the record and its source.

    Examples
    --------
    >>> parse_fasta(">one  of two\nAC\nDE\n>two\nACD", "many.fasta")[0]
    FastaRecord(name='one', sequence='ACDE', description='of two')
    """
    if not text.lstrip().startswith(">"):
        letters = "".join(text.split())
        if not letters:
            raise ValueError(f"{source} must hold a sequence, it is empty")
        return [FastaRecord(Path(source).stem, letters)]
    records: list[FastaRecord] = []
    for number, part in enumerate(f"\n{text.strip()}".split("\n>")[1:], start=1):
        header, _, lines = part.partition("\n")
        words = header.split(maxsplit=1)
        if not words:
            raise ValueError(f"{source}: record {number} must have a name after '>'")
        letters = "".join(lines.split())
        if not letters:
            raise ValueError(f"{source}: record {number}, {words[0]!r}, must have letters")
        records.append(FastaRecord(words[0], letters, "".join(words[1:]).strip()))
    first: dict[str, int] = {}
    for number, one in enumerate(records, start=1):
        if first.setdefault(one.name, number) < number:
            raise ValueError(
                f"{source}: records {first[one.name]} and {number} must have names of their own, "
                f"both are {one.name!r}"
            )
    return records


def as_fasta(records: Iterable[FastaRecord]) -> str:
    """Return records as text."""
    return "".join(
        f"{f'>{one.name} {one.description}'.rstrip()}\n{one.sequence}\n" for one in records
    )
