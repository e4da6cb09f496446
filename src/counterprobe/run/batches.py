"""Many sequences and what they cost together; kept in files of JSON lines."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import FloatArray, StateArray
from counterprobe.files import read_text, whole_file
from counterprobe.plain import plain
from counterprobe.report import Section, Shown
from counterprobe.run.ledger import Ledger
from counterprobe.run.record import needs_of
from counterprobe.run.results import Choice, SampleResult, StopReason, first_tokens
from counterprobe.run.transcript import Transcript
from counterprobe.states import MASK
from counterprobe.streams import Streams

__all__ = ["SampleBatch"]

FORMAT = "counterprobe samples 1"
_COUNTS = [count.name for count in fields(Ledger)]
_ARRAYS = ("sequences", "given", "round_of_position")
# There only if they were asked for.
_MEASURED = ("token_log_probs", "tempered_scores", "log_likelihoods")
# Sequences that are printed.
SHOWN = 3
# Bytes of a file that is read.
MOST_BYTES = 1 << 32


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SampleBatch(Shown):
    """Many sequences.

    Attributes
    ----------
    sequences : ndarray of int, shape (count, N)
        Tokens, one sequence a row; ``MASK`` where a run stopped before it was complete.
    given : ndarray of int, shape (count, N)
        The context each started from, ``MASK`` elsewhere.
    results : sequence of SampleResult
        One a sequence, each with the ledger it would have had alone.
    ledger : Ledger
        Of the whole: what many sequences share was charged once, and stage k of all of them is
        one stage, so that there are as many as in the longest run.
    token_log_probs : ndarray of float, shape (count, N), optional
        Log-probability of each token in the row it was drawn from, at its commit; NaN where
        nothing was drawn. None where it was not asked for.
    tempered_scores : ndarray of float, shape (count, N), optional
        What ``token_scores`` are at another temperature than 1; None at 1, where they are minus
        ``token_log_probs``.
    texts : tuple of str, optional
        The sequences spelled out, where there is a template.
    log_likelihoods : ndarray of float, shape (count, orders), optional
        Log-probability of each finished sequence by the chain rule in random orders.
    measuring : Ledger
        What was evaluated for measuring, apart from ``ledger``.
    choice : Choice, optional
        What ``sampler="auto"`` of ``infill`` chose, and why.
    """

    sequences: StateArray
    given: StateArray
    results: Sequence[SampleResult]
    ledger: Ledger
    token_log_probs: FloatArray | None = None
    tempered_scores: FloatArray | None = None
    texts: tuple[str, ...] | None = None
    log_likelihoods: FloatArray | None = None
    measuring: Ledger = field(default_factory=Ledger)
    choice: Choice | None = None

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        measured = [getattr(self, name) for name in _MEASURED]
        for array in (self.sequences, self.given, *measured):
            if array is not None:
                array.setflags(write=False)

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.sequences)

    def __repr__(self) -> str:
        """Say in one line what was drawn and what it cost."""
        count, length = self.sequences.shape
        first = self.results[0]
        done = self.num_completed
        state = "all completed" if done == count else f"{done} completed, {self._stopped.stop}"
        shown = f"; first: {first_tokens(self.sequences[0])}" if done == count else ""
        return (
            f"SampleBatch({count} x {length} by {first.sampler}, {state}; "
            f"{self.ledger.evaluations} evaluations in {self.ledger.stages} stages, "
            f"{self.tokens_per_forward:.3g} tokens per forward{shown})"
        )

    def __str__(self) -> str:
        """Say in a few lines what was drawn, why so, and what it cost; unfinished ones are none.

        Of sequences that stopped, only why.
        """
        count, length = self.sequences.shape
        done = self.num_completed
        first = self.results[0].sampler
        later = first if self.choice is None else self.choice.sampler
        how = first if later == first else f"{first} ({later})"
        lines = [
            f"{count:,} sequence{'' if count == 1 else 's'} of {length:,} positions by {how}: "
            f"{self.ledger.evaluations:,} evaluations in {self.ledger.stages:,} stages"
        ]
        if self.choice is not None:
            lines.append(str(self.choice))
        if done < count:
            lines.append(f"{count - done:,} stopped before they were finished: ")
            lines[-1] += self._stopped.reason
        finished = np.flatnonzero((self.sequences != MASK).all(axis=1))
        for k in finished[:SHOWN].tolist():
            lines.append(self.texts[k] if self.texts else first_tokens(self.sequences[k]))
        if len(finished) > SHOWN:
            lines.append(f"... and {len(finished) - SHOWN:,} more")
        return "\n".join(lines)

    @property
    def _stopped(self) -> SampleResult:
        """The first result that is not complete, or the first."""
        unfinished = np.flatnonzero((self.sequences == MASK).any(axis=1))
        return self.results[int(unfinished[0])] if len(unfinished) else self.results[0]

    @property
    def ledgers(self) -> list[Ledger]:
        """One ledger per sequence."""
        return [result.ledger for result in self.results]

    @property
    def num_completed(self) -> int:
        """Sequences without a mask."""
        return int((self.sequences != MASK).all(axis=1).sum())

    @property
    def tokens_per_forward(self) -> float:
        """Positions committed for each state submitted, discovery included; NaN for nothing."""
        committed = int(((self.given == MASK) & (self.sequences != MASK)).sum())
        return committed / self.ledger.evaluations if self.ledger.evaluations else math.nan

    @property
    def log_probs(self) -> FloatArray | None:
        """Log-probability of each sequence's tokens in the rows they were drawn from, summed.

        For a rule that fixes its batches before their replies, this is the log-probability with
        which it draws the sequence; rules that choose among drawn values have no such number, and
        for them it is a score. At another temperature than 1 the rows are tempered ones, so that
        numbers of two temperatures cannot be compared: ``scores`` can. None where it was not asked
        for.
        """
        if self.token_log_probs is None:
            return None
        total: FloatArray = np.nansum(self.token_log_probs, axis=1)
        return total

    @property
    def token_scores(self) -> FloatArray | None:
        """Minus the log-probability of each token at temperature 1, whatever it was drawn at.

        In the row it was drawn from, as ``token_log_probs``; NaN where nothing was drawn, and
        where a rule that verifies drew at another temperature, and so did not keep it.
        """
        if self.token_log_probs is None or self.tempered_scores is not None:
            return self.tempered_scores
        negative: FloatArray = -self.token_log_probs
        return negative

    @property
    def scores(self) -> FloatArray | None:
        """Nats per drawn position at temperature 1, lower is better, shape ``(count,)``.

        The mean of ``token_scores`` over the positions that were drawn, as ProteinMPNN defines its
        score; designs of all temperatures can be ranked by it. NaN for a sequence that is not
        complete or in which nothing was drawn; None where it was not asked for.
        """
        each = self.token_scores
        if each is None:
            return None
        is_drawn = self.given == MASK
        count = is_drawn.sum(axis=1)
        is_known = (self.sequences != MASK).all(axis=1) & (count > 0)
        total = np.where(is_drawn, each, 0).sum(axis=1)
        mean: FloatArray = np.where(is_known, total, np.nan) / np.maximum(count, 1)
        return mean

    @property
    def histories(self) -> list[StateArray]:
        """The states of each sequence from its context to its end, shape ``(rounds + 1, N)``."""
        return [result.history for result in self.results]

    def sections(self) -> list[Section]:
        """Return what a display or a page of it shows: what it cost, why so, and sequences."""
        from counterprobe.run.showing import batch_sections

        return batch_sections(self)

    def summary(self) -> dict[str, Any]:
        """Return the whole as plain values, without its sequences."""
        first = self.results[0]
        return {
            "sampler": first.sampler,
            "settings": first.settings,
            "count": len(self),
            "completed": self.num_completed,
            **({} if self.choice is None else {"choice": self.choice.as_dict()}),
            "tokens_per_forward": self.tokens_per_forward,
            **self.ledger.as_dict(),
        }

    @classmethod
    def joined(cls, parts: Sequence[SampleBatch]) -> SampleBatch:
        """Return sequences that were drawn one part after another, with the sum of the ledgers."""
        if len(parts) == 1:
            return parts[0]

        def together(name: str) -> FloatArray | None:
            arrays = [getattr(part, name) for part in parts]
            return None if any(array is None for array in arrays) else np.concatenate(arrays)

        return cls(
            np.concatenate([part.sequences for part in parts]),
            np.concatenate([part.given for part in parts]),
            [result for part in parts for result in part.results],
            sum((part.ledger for part in parts), Ledger()),
            token_log_probs=together("token_log_probs"),
            tempered_scores=together("tempered_scores"),
        )

    # ----- Files ---------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write sequences, ledgers, rounds, seeds and settings, without transcripts.

        Parameters
        ----------
        path : path
            ``.jsonl``: one line of JSON about the whole, then one per sequence. The file appears
            whole or not at all.
        """
        _check_name(path)
        first = self.results[0]
        header = {
            "format": FORMAT,
            "sampler": first.sampler,
            "settings": plain(first.settings),
            "oracle": first.oracle_name,
            "temperature": first.temperature,
            "versions": first.versions,
            "ledger": _counts(self.ledger),
            "measuring": _counts(self.measuring),
        }
        if self.choice is not None:
            header["choice"] = self.choice.as_dict() | {"ledger": _counts(self.choice.ledger)}
        records = [_record(result) for result in self.results]
        for k, text in enumerate(self.texts or ()):
            records[k]["text"] = text
        arrays: dict[str, NDArray[Any]] = {
            "sequences": self.sequences,
            "given": self.given,
            "round_of_position": np.stack([r.round_of_position for r in self.results]),
        }
        for name in _MEASURED:
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        for k, record in enumerate(records):
            record |= {_LINE_NAMES[name]: plain(array[k]) for name, array in arrays.items()}
        with whole_file(path) as stream:
            for line in (header, *records):
                stream.write(json.dumps(line, allow_nan=False).encode() + b"\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SampleBatch:
        """Read what :meth:`save` wrote; transcripts and diagnostics are empty."""
        _check_name(path)
        try:
            header, records, arrays = _read_lines(path)
            if header["format"] != FORMAT:
                raise ValueError(f"its format is {header['format']!r:.60}, not {FORMAT!r}")
            _check_parts(header, records, arrays)
            results = [
                _result(header, record, *(arrays[name][k] for name in _ARRAYS))
                for k, record in enumerate(records)
            ]
            spelled = [record["text"] for record in records if "text" in record]
            return cls(
                arrays["sequences"],
                arrays["given"],
                results,
                Ledger(**header["ledger"]),
                texts=tuple(spelled) if len(spelled) == len(records) else None,
                measuring=Ledger(**header.get("measuring", {})),
                choice=_choice(header.get("choice")),
                token_log_probs=arrays.get("token_log_probs"),
                tempered_scores=arrays.get("tempered_scores"),
                log_likelihoods=arrays.get("log_likelihoods"),
            )
        except OSError:
            raise
        except Exception as problem:  # whatever a damaged file makes NumPy and json raise
            said = " ".join(str(problem).split())
            raise ValueError(
                f"{os.fspath(path)} is not a file of samples, or is damaged ({said:.200}); write "
                "one with SampleBatch.save"
            ) from problem


def _check_name(path: str | os.PathLike[str]) -> None:
    if Path(path).suffix != ".jsonl":
        raise ValueError(f"path must end in .jsonl, got {os.fspath(path)!r}")


def _choice(content: dict[str, Any] | None) -> Choice | None:
    """Read what was chosen, where a file says it."""
    return None if content is None else Choice.of(content, Ledger(**content["ledger"]))


def _counts(ledger: Ledger) -> dict[str, int]:
    return {name: getattr(ledger, name) for name in _COUNTS}


def _record(result: SampleResult) -> dict[str, Any]:
    """Return what a file holds of one result beside its arrays and the header."""
    return {
        "sequence": result.sequence,
        "stop": result.stop.name,
        "reason": result.reason,
        "used": result.used.names(),
        "decision_seed": int(result.streams.decision_seed),
        "commit_seed": int(result.streams.commit_seed),
        "seconds": result.seconds,
        "ledger": _counts(result.ledger),
        "undone": result.undone,
    }


def _result(
    header: dict[str, Any],
    record: dict[str, Any],
    state: StateArray,
    given: StateArray,
    round_of_position: NDArray[np.int64],
) -> SampleResult:
    stop = StopReason[record["stop"]]
    return SampleResult(
        tokens=state.astype(np.int64) if stop is StopReason.COMPLETED else None,
        state=state,
        ledger=Ledger(**record["ledger"]),
        used=needs_of(record["used"]),
        stop=stop,
        reason=record["reason"],
        given=given,
        round_of_position=round_of_position,
        sampler=header["sampler"],
        settings=header["settings"],
        diagnostics=None,
        streams=Streams(record["decision_seed"], record["commit_seed"]),
        oracle_name=header["oracle"],
        seconds=record["seconds"],
        versions=header["versions"],
        transcript=Transcript(),
        sequence=record["sequence"],
        temperature=header["temperature"],
        undone=record.get("undone", 0),
    )


_LINE_NAMES = {
    "sequences": "tokens",
    "given": "given",
    "round_of_position": "rounds",
    **{name: name for name in _MEASURED},
}
Parts = tuple[dict[str, Any], list[dict[str, Any]], dict[str, NDArray[Any]]]


def _read_lines(path: str | os.PathLike[str]) -> Parts:
    lines = [json.loads(line) for line in read_text(path, MOST_BYTES).splitlines()]
    header, records = lines[0], lines[1:]
    if not records:
        raise ValueError("it has no sequences")
    arrays: dict[str, NDArray[Any]] = {
        "sequences": _whole(records, "tokens", np.int32),
        "given": _whole(records, "given", np.int32),
        "round_of_position": _whole(records, "rounds", np.int64),
    }
    for name in _MEASURED:
        if _LINE_NAMES[name] in records[0]:
            rows = [record[_LINE_NAMES[name]] for record in records]
            arrays[name] = np.array(rows, dtype=np.float64)  # null is NaN, words are infinities
    return header, records, arrays


def _whole(records: list[dict[str, Any]], name: str, kind: type[np.integer]) -> NDArray[Any]:
    """Return whole numbers, a row for each record; refuse others, which NumPy would round."""
    array = np.array([record[name] for record in records])
    if array.dtype.kind != "i" or not (array == array.astype(kind)).all():
        raise ValueError(f"{name} must be whole numbers")
    return array.astype(kind)


def _check_parts(header: Any, records: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse parts that no samples have; what else is wrong fails where it is used."""
    for name, kind in (("sampler", str), ("settings", dict), ("oracle", str), ("versions", dict)):
        if not isinstance(header[name], kind):
            raise ValueError(f"{name} must be of type {kind.__name__}")
    counts = [header["ledger"], header.get("measuring", {}), *(r["ledger"] for r in records)]
    if not all(type(count) is int and count >= 0 for one in counts for count in one.values()):
        raise ValueError("a ledger must hold whole numbers of at least 0")
    for record in records:
        if type(record["sequence"]) is not int or not isinstance(record["reason"], str):
            raise ValueError("a sequence must have its number and the reason it stopped for")
        if not isinstance(record.get("text", ""), str):
            raise ValueError("a sequence must be spelled as a text")
    numbers = [header["temperature"], *(record["seconds"] for record in records)]
    if not all(type(number) in (int, float) for number in numbers):
        raise ValueError("temperature and seconds must be numbers")
    shape = arrays["sequences"].shape
    if len(shape) != 2 or shape[0] != len(records):
        raise ValueError(f"sequences must have a row for each of {len(records)}, got {shape}")
    for name in _ARRAYS:
        if arrays[name].dtype.kind != "i" or arrays[name].shape != shape:
            raise ValueError(f"{name} must hold whole numbers of shape {shape}")
    for name in set(_MEASURED) & set(arrays):
        if arrays[name].dtype.kind != "f" or arrays[name].shape[:1] != shape[:1]:
            raise ValueError(f"{name} must hold numbers, a row for each sequence")
    if arrays["sequences"].min(initial=MASK) < MASK or arrays["given"].min(initial=MASK) < MASK:
        raise ValueError(f"sequences must hold tokens, or {MASK} for a mask")
