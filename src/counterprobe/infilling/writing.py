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
- ``task``: everything that determines a design of this number, as ``name:value;name:value``; only
  designs of one task are gone on with.

One process at a time writes a file; a second one is refused.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from counterprobe.arrays import FloatArray, StateArray
from counterprobe.cells import csv_line, unescaped
from counterprobe.files import LockedFile, check_writable, read_bytes
from counterprobe.infilling.fasta import FastaRecord, as_fasta, parse_fasta
from counterprobe.infilling.results import Infilled
from counterprobe.infilling.task import Task
from counterprobe.states import MASK

__all__ = ["KINDS", "Design", "DesignFile", "check_kind", "designs_of", "recovery"]

KINDS = (".fasta", ".fa", ".csv", ".jsonl")
# What may be known of a design that was drawn, beside its name and sequence.
COLUMNS = (
    "score", "recovery", "seed", "number", "temperature", "sampler", "evaluations", "price",
    "log_prob", "log_likelihood", "model", "task",
)  # fmt: skip
# Terms of a task in which the inputs of one command may differ.
OF_INPUT = ("model", "text", "letters", "ties", "weights", "occurrence")
REPEAT = "repeat the command that wrote it, or write to another file"


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
        return {key: _shown(value) for key, value in self.whole.items()}

    @property
    def whole(self) -> dict[str, Any]:
        """Name, sequence and columns as they are; no column takes the place of the former."""
        own = {"name": self.name, "sequence": self.sequence}
        return {**own, **self.columns, **own}


def designs_of(
    drawn: Infilled, task: Task, name: str, *, temperature: float, seed: int | str
) -> list[Design]:
    """Return the complete sequences of a batch as designs.

    Parameters
    ----------
    drawn : Infilled
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
        raise ValueError("this batch has no texts, its oracle cannot spell; keep batch.sequences")
    scores, log_probs = drawn.scores, drawn.log_probs
    recoveries = recovery(task, drawn.sequences)
    designs = []
    for k, (text, result) in enumerate(zip(drawn.texts, drawn.results, strict=True)):
        if (drawn.sequences[k] == MASK).any():
            continue
        price = getattr(result.diagnostics, "estimated_kl", None)
        choice = drawn.choice
        if choice is not None and choice.prices and choice.sampler == result.sampler:
            price = choice.batch_kl  # what pairs said elsewhere is no price here
        likelihoods = None if drawn.log_likelihoods is None else drawn.log_likelihoods[k]
        columns = {
            "score": None if scores is None else float(scores[k]),
            "recovery": None if recoveries is None else float(recoveries[k]),
            "seed": seed,
            "number": result.sequence + 1,
            "temperature": float(temperature),
            "sampler": result.sampler,
            "evaluations": result.ledger.evaluations,
            "price": None if price is None or not math.isfinite(price) else float(price),
            "log_prob": None if log_probs is None else float(log_probs[k]),
            "log_likelihood": None if likelihoods is None else float(likelihoods.mean()),
            "model": result.oracle_name,
        }
        known = {key: value for key, value in columns.items() if not _is_unknown(value)}
        designs.append(Design(f"{name}_{result.sequence + 1}", text, known))
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
    """A file that grows by every design as it is finished, and that nobody else writes meanwhile.

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
    num_written : int
        Designs that were written since it was opened.
    cut_off : bool
        Whether an earlier command was ended in the middle of a record, which is left out: it goes
        when the first design is written.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, force: bool = False, append: bool = False
    ) -> None:
        self.path = os.fspath(path)
        self._kind = check_kind(path)
        self._is_fasta = self._kind in (".fasta", ".fa")
        check_writable(self.path)
        self.names: set[str] = set()
        self.num_written = 0
        self.cut_off = False
        self._stored: dict[str, dict[str, Any]] = {}
        # Tasks that the file has, of each input and of whole commands, and a design of each.
        self._tasks: dict[str, dict[str, str]] = {}
        self._of_commands: dict[str, str] = {}
        self._task = ""
        self._num_bytes = 0  # of complete records that stay
        self._columns: list[str] | None = None
        self._file = LockedFile(path)
        try:
            if self._file.size and append:
                self._take_over()
            elif self._file.size and not force:
                raise ValueError(
                    f"{self.path} is there already: --force replaces it, --append goes on with it"
                )
        except BaseException:
            self._file.close()
            raise

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
        self._file.close()

    def has(self, name: str, count: int) -> bool:
        """Whether the file has all of so many designs of an input."""
        return all(f"{name}_{k}" in self.names for k in range(1, count + 1))

    def write(self, designs: Sequence[Design]) -> int:
        """Write designs that the file has not yet; they are on disk when this returns.

        One that an earlier command wrote must be the same again.
        """
        for one in designs:
            self._check_same(one)
        known = {"task": self._task} if self._task else {}
        fresh = [
            replace(one, columns={**one.columns, **known})
            for one in designs
            if one.name not in self.names
        ]
        if not fresh:
            return 0
        heading = ""
        if self._kind == ".csv" and self._columns is None:
            self._columns = _columns_of(fresh)
            heading = csv_line(self._columns)
        texts = [self._text(one) for one in fresh]
        # A command that fails before its first design leaves the old file as it is.
        if not self.num_written:
            self._file.truncate(self._num_bytes)
        self._file.append((heading + "".join(texts)).encode())
        self.names |= {one.name for one in fresh}
        self.num_written += len(fresh)
        return len(fresh)

    def check_spelling(self, spell: Callable[[], str]) -> None:
        """Refuse what this kind of file cannot hold: FASTA has no white space in a sequence."""
        if self._is_fasta and any(map(str.isspace, spell())):
            raise ValueError(
                f"{self.path}: FASTA has no room for white space, which this model's texts have; "
                "write to a name that ends in .csv or .jsonl"
            )

    def _text(self, design: Design) -> str:
        if self._kind == ".jsonl":
            return json.dumps(design.whole, allow_nan=False) + "\n"
        row = design.row
        if self._kind != ".csv":
            self.check_spelling(lambda: design.sequence)
            plain = {key: "_".join(str(value).split()) for key, value in row.items()}
            told = " ".join(f"{key}={value}" for key, value in [*plain.items()][2:])
            return as_fasta([FastaRecord(design.name, design.sequence, told)])
        assert self._columns is not None
        extra = [key for key in row if key not in self._columns]
        if extra:
            raise ValueError(f"{self.path} has no column {extra[0]!r}; write to another file")
        return csv_line(map(row.get, self._columns))

    # ----- A file that is there already ------------------------------------------------------

    @property
    def goes_on(self) -> bool:
        """Whether an earlier command wrote designs here that stay."""
        return bool(self._stored)

    def _take_over(self) -> None:
        """Learn which designs the file has, and what made them."""
        for row in self._rows(self._complete_records()):
            name, task = str(row.get("name")), str(row.get("task") or "")
            if name in self._stored:
                raise ValueError(
                    f"{self.path} holds two designs called {name}; remove one of them"
                )
            self._stored[name] = row
            self._tasks.setdefault(name.rpartition("_")[0], {}).setdefault(task, name)
            if task:
                terms = _terms_of(task)
                of_command = {key: terms[key] for key in terms if key not in OF_INPUT}
                self._of_commands.setdefault(_joined(of_command), name)
        self.names = {*self._stored}
        is_ours = self._columns is not None and self._columns[:2] == ["name", "sequence"]
        if not (self.names or self.cut_off or is_ours):
            raise ValueError(f"{self.path} holds no designs to go on from")

    def _complete_records(self) -> str:
        """Return the file's text up to the end of its last complete record."""
        data = read_bytes(self.path)
        lines = data.splitlines(keepends=True)
        if not data.endswith(b"\n"):
            rest = lines.pop()
            if self._is_fasta and not rest.startswith(b">"):
                while lines and not lines.pop().startswith(b">"):
                    pass
        # A header without letters, and a row whose quotation is not closed, are incomplete too.
        if self._is_fasta:
            while lines and lines[-1].startswith(b">"):
                lines.pop()
        elif self._kind == ".csv":
            quotes = sum(line.count(b'"') for line in lines)
            while quotes % 2:
                quotes -= lines.pop().count(b'"')
        self._num_bytes = sum(map(len, lines))
        self.cut_off = self._num_bytes < len(data)
        try:
            return b"".join(lines).decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{self.path} must be a text file in UTF-8") from None

    def _rows(self, text: str) -> Iterator[dict[str, Any]]:
        if not text:
            return
        try:
            if self._kind == ".jsonl":
                yield from (dict(json.loads(line)) for line in text.splitlines())
            elif self._kind == ".csv":
                reader = csv.DictReader(io.StringIO(text, newline=""))
                self._columns = [*unescaped(dict.fromkeys(reader.fieldnames or ()))]
                yield from map(unescaped, reader)
            else:
                for record in parse_fasta(text, self.path):
                    told = (word.split("=", 1) for word in record.description.split())
                    said = dict(one for one in told if len(one) == 2)
                    yield {**said, "name": record.name, "sequence": record.sequence}
        except (ValueError, TypeError) as problem:
            raise ValueError(f"{self.path} cannot be gone on with: {problem}") from None

    def begin(self, name: str, terms: Mapping[str, str]) -> None:
        """Write designs of a task from now on; refuse to mix them with those of another.

        Parameters
        ----------
        name : str
            That of the input.
        terms : mapping
            What determines a design, by name; of other inputs the file may hold designs that
            differ in what is an input's own.
        """
        self._task = _joined(terms)
        for task, key in self._tasks.get(name, {}).items():
            if not task:
                raise ValueError(f"{self.path} does not say what {key} was drawn for: {REPEAT}")
            self._require_same(key, task, terms)
        of_command = {key: value for key, value in terms.items() if key not in OF_INPUT}
        for task, key in self._of_commands.items():
            self._require_same(key, task, of_command)

    def _require_same(self, name: str, task: str, terms: Mapping[str, str]) -> None:
        """Refuse designs of another task, and say in what it differs."""
        if task == _joined(terms):
            return
        stored = _terms_of(task)
        for term in (*terms, *stored):
            before, now = (one.get(term, "none") for one in (stored, terms))
            is_unknown = term == "weights" and "none" in (before, now)
            if before != now and not is_unknown:
                raise ValueError(
                    f"{self.path} holds {name} of another task, with {term} {before}; this "
                    f"command has {term} {now}: {REPEAT}"
                )

    def _check_same(self, design: Design) -> None:
        """Refuse a design that is not what the file says."""
        stored = self._stored.get(design.name)
        if stored is not None and stored.get("sequence") != design.sequence:
            raise ValueError(
                f"{self.path} holds another {design.name} than was drawn now, which may depend on "
                f"--count: {REPEAT}"
            )


def _joined(terms: Mapping[str, str]) -> str:
    return ";".join(f"{key}:{value}" for key, value in terms.items())


def _terms_of(task: str) -> dict[str, str]:
    """Return what :func:`_joined` was given."""
    return dict(part.partition(":")[::2] for part in task.split(";"))
