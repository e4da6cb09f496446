"""Designs in the files that people exchange, written as they are made: FASTA, CSV and JSON lines.

Every kind of file has the same columns, in the header of a FASTA record as ``key=value``:

- ``score``: minus the log-probability of the drawn letters, mean over the positions drawn, in nats
  at temperature 1, whatever they were drawn at: lower is better, and designs of all temperatures
  can be ranked. Each letter is scored in the row it was drawn from, so it costs no evaluation.
- ``recovery``: the share of drawn positions that have the native letter, where one is known.
- ``seed`` and ``number``: the same seed draws the same design of that number again.
- ``temperature``, ``sampler``, ``evaluations`` (those the design would have cost alone), ``price``
  (nats of dependence that its plan breaks, where a plan had an estimate).
- ``log_prob``: the log-probability with which it was drawn, summed, at its temperature.
- ``log_likelihood``: by the chain rule in random orders, summed, at temperature 1, if asked for.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from counterprobe.arrays import FloatArray, StateArray
from counterprobe.files import check_writable, read_text
from counterprobe.infilling.fasta import FastaRecord, as_fasta, parse_fasta
from counterprobe.infilling.task import Task
from counterprobe.run.batches import SampleBatch
from counterprobe.states import MASK

__all__ = ["KINDS", "Design", "DesignFile", "check_kind", "designs_of", "recovery"]

KINDS = (".fasta", ".fa", ".csv", ".jsonl")
# What may be known of a design that was drawn, beside its name and sequence.
COLUMNS = (
    "score", "recovery", "seed", "number", "temperature", "sampler", "evaluations", "price",
    "log_prob", "log_likelihood", "model",
)  # fmt: skip
# What a design drawn by another command may not differ in, where one file holds both.
TOLD_BY = ("temperature", "seed")


@dataclass(frozen=True, slots=True)
class Design:
    """A finished sequence and what is known of it.

    Attributes
    ----------
    name : str
        That of its input, and its number.
    sequence : str
    columns : dict
        What else is known, by name, in plain values; see the module.
    """

    name: str
    sequence: str
    columns: dict[str, Any] = field(default_factory=dict)

    @property
    def row(self) -> dict[str, Any]:
        """Name, sequence and columns, for people: numbers have six digits."""
        shown = {key: _shown(value) for key, value in self.columns.items()}
        return {"name": self.name, "sequence": self.sequence, **shown}


def designs_of(
    drawn: SampleBatch, task: Task, name: str, *, temperature: float, seed: int | str
) -> list[Design]:
    """Return the complete sequences of a batch as designs.

    Parameters
    ----------
    drawn : SampleBatch
        With texts.
    task : Task
        What they were drawn for.
    name : str
        That of the input.
    temperature : float
        What they were drawn at.
    seed : int or str
    """
    if drawn.texts is None:
        raise ValueError("this batch has no texts, its oracle cannot spell: use SampleBatch.save")
    scores, log_probs = drawn.scores, drawn.log_probs
    recoveries = recovery(task, drawn.sequences)
    designs = []
    for k, (text, result) in enumerate(zip(drawn.texts, drawn.results, strict=True)):
        if (drawn.sequences[k] == MASK).any():
            continue
        price = getattr(result.diagnostics, "estimated_kl", None)
        likelihoods = None if drawn.log_likelihoods is None else drawn.log_likelihoods[k]
        columns = {
            "score": None if scores is None else float(scores[k]),
            "recovery": None if recoveries is None else float(recoveries[k]),
            "seed": seed,
            "number": result.sequence + 1,
            "temperature": float(temperature),
            "sampler": result.sampler,
            "evaluations": result.ledger.total,
            "price": None if price is None else float(price),
            "log_prob": None if log_probs is None else float(log_probs[k]),
            "log_likelihood": None if likelihoods is None else float(likelihoods.mean()),
            "model": result.oracle_name,
        }
        known = {key: value for key, value in columns.items() if not _is_unknown(value)}
        designs.append(Design(f"{name}_{result.sequence + 1}", "".join(text.split()), known))
    return designs


def recovery(task: Task, sequences: StateArray) -> FloatArray | None:
    """Return the share of designed residues that have their native letter, of each sequence.

    Parameters
    ----------
    task : Task
        What they were drawn for.
    sequences : ndarray of int, shape (count, N)

    Returns
    -------
    ndarray of float, shape (count,), or None
        Over the designed residues, tied ones apart, whose native letter is known; None where
        there are none.
    """
    template = task.template
    if task.native is None or template is None:
        return None
    ids = template.vocabulary
    token_of = {template.spell(ids[k : k + 1]): k for k in range(len(ids))}
    wanted = np.array([token_of.get(letter, MASK) for letter in task.native])
    of_residue = np.arange(len(wanted)) if template.tied is None else template.tied
    compared = (task.given[of_residue] == MASK) & (wanted != MASK)
    if not compared.any():
        return None
    share: FloatArray = (sequences[:, of_residue] == wanted)[:, compared].mean(axis=1)
    return share


def _shown(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _is_unknown(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _columns_of(designs: Sequence[Design]) -> list[str]:
    """Return the columns of a table whose later designs may know what the first do not."""
    known = [*dict.fromkeys(key for one in designs for key in one.columns)]
    return ["name", "sequence", *(COLUMNS if {*known} <= {*COLUMNS} else known)]


def check_kind(path: str | os.PathLike[str]) -> str:
    """Return the kind of a file by its name, or refuse it."""
    kind = Path(path).suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"the name must end in {', '.join(KINDS)}; got {os.fspath(path)!r}")
    return kind


class DesignFile:
    """A file that grows by every design as it is finished.

    Parameters
    ----------
    path : path
        Its ending says its kind.
    force : bool
        Whether a file that is there already is replaced.
    append : bool
        Whether to go on with a file that is there already; see :attr:`names`.

    Attributes
    ----------
    names : set of str
        Designs that the file has: those of an earlier command are not written again.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, force: bool = False, append: bool = False
    ) -> None:
        self.path = os.fspath(path)
        self._kind = check_kind(path)
        check_writable(self.path)
        self.names: set[str] = set()
        self._told: dict[str, Any] = {}
        self._columns: list[str] | None = None
        self._stream: IO[str] | None = None
        is_there = Path(path).exists() and Path(path).stat().st_size > 0
        if is_there and append:
            self._take_over()
        elif is_there and not force:
            raise ValueError(
                f"{self.path} is there already: --force replaces it, --append goes on with it"
            )
        # Opened by the first design: a command that fails before it leaves the old file alone.
        self._mode = "a" if append else "w"

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file; what was written stays."""
        if self._stream is not None:
            self._stream.close()

    def has(self, name: str, count: int) -> bool:
        """Whether the file has all of so many designs of an input."""
        return all(f"{name}_{k}" in self.names for k in range(1, count + 1))

    def write(self, designs: Sequence[Design]) -> int:
        """Write designs that the file has not yet; they are on disk when this returns."""
        fresh = [one for one in designs if one.name not in self.names]
        stream = self._stream
        if stream is None:
            self._stream = stream = open(self.path, self._mode, encoding="utf-8", newline="")
        if self._kind == ".csv" and self._columns is None and fresh:
            self._columns = _columns_of(fresh)
            csv.DictWriter(stream, self._columns, lineterminator="\n").writeheader()
        for one in fresh:
            self.check_alike(one.row)
            stream.write(self._text(one))
            self.names.add(one.name)
        stream.flush()
        return len(fresh)

    def _text(self, design: Design) -> str:
        if self._kind == ".jsonl":
            whole = {"name": design.name, "sequence": design.sequence, **design.columns}
            return json.dumps(whole, allow_nan=False) + "\n"
        row = design.row
        if self._kind != ".csv":
            plain = {key: "_".join(str(value).split()) for key, value in row.items()}
            told = " ".join(f"{key}={value}" for key, value in [*plain.items()][2:])
            return as_fasta([FastaRecord(design.name, design.sequence, told)])
        out = io.StringIO()
        assert self._columns is not None
        extra = [key for key in row if key not in self._columns]
        if extra:
            raise ValueError(f"{self.path} has no column {extra[0]!r}; write to another file")
        csv.DictWriter(out, self._columns, restval="", lineterminator="\n").writerow(row)
        return out.getvalue()

    # ----- A file that is there already ------------------------------------------------------

    def _take_over(self) -> None:
        """Learn which designs the file has, and what made them."""
        for row in self._rows():
            self.names.add(str(row.get("name")))
            told = {key: str(_shown(row[key])) for key in TOLD_BY if key in row}
            self._told = self._told or told
        if not self.names:
            raise ValueError(f"{self.path} holds no designs to go on from")

    def _rows(self) -> Iterator[dict[str, Any]]:
        text = read_text(self.path)
        try:
            if self._kind == ".jsonl":
                yield from (dict(json.loads(line)) for line in text.splitlines())
            elif self._kind == ".csv":
                reader = csv.DictReader(io.StringIO(text, newline=""))
                self._columns = list(reader.fieldnames or [])
                yield from reader
            else:
                for record in parse_fasta(text, self.path):
                    told = (word.split("=", 1) for word in record.description.split())
                    yield {"name": record.name, **dict(one for one in told if len(one) == 2)}
        except (ValueError, TypeError) as problem:
            raise ValueError(f"{self.path} cannot be gone on with: {problem}") from None

    def check_alike(self, columns: Mapping[str, Any]) -> None:
        """Refuse to mix designs of other seeds or temperatures in one file."""
        for key, before in self._told.items():
            if key in columns and str(columns[key]) != before:
                raise ValueError(
                    f"{self.path} holds designs of {key} {before}, not {columns[key]}: repeat the "
                    "command that wrote it, or write to another file"
                )
