"""The recorder: a listener that writes what a run does, event by event.

Lines go to ``NAME.partial`` as they come, so that a run that dies leaves what it did; a run that
ends has its file under its name, as JSON, gzipped JSON or a page. Details (what states showed, how
far rows moved, likeliest tokens) are kept while there is room for them; commits, edges and the
ledger always are.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.files import GrowingFile
from counterprobe.oracles import Readouts
from counterprobe.plain import plain
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.events import (
    Announced,
    Charged,
    Closed,
    Drew,
    Ended,
    Opened,
    Replied,
    RunEvent,
)
from counterprobe.run.ledger import Ledger
from counterprobe.run.results import SampleResult
from counterprobe.run.transcript import Event, Note
from counterprobe.states import MASK
from counterprobe.trace.about import About
from counterprobe.trace.arrays import pack
from counterprobe.trace.document import (
    LAST_LINE,
    compact,
    first_line,
    kind_of,
    parse_trace,
    write_trace,
)
from counterprobe.trace.notes import NoteEvents
from counterprobe.trace.page import write_page
from counterprobe.trace.stages import OpenStage, Reference, screen_fields, summarise

__all__ = ["DEFAULT_BYTES", "Recorder"]

# What a page opens without a pause.
DEFAULT_BYTES = 5_000_000
# Shares of the room that details of probes may take, and those of commits.
PROBES_SHARE = 0.7
COMMITS_SHARE = 0.9


class Recorder:
    """Writes the trace of one run; a context manager to pass as ``on_event``.

    Parameters
    ----------
    path : path
        ``.json``, ``.json.gz`` or ``.html``.
    about : About, optional
    sequence : int
        Whose run it writes, of many.
    max_bytes : int
        Details are left out where the trace would grow beyond this, and the trace says so.

    Examples
    --------
    >>> import counterprobe as cp, tempfile, pathlib
    >>> law = cp.families.path(length=40, target_seed=196)
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.json"
    >>> with cp.trace.Recorder(file) as recorder:
    ...     batch = cp.sample(law.oracle(), "compressed", on_event=recorder, progress=False)
    >>> trace = cp.trace.load_trace(file)
    >>> trace.end["ledger"]["evaluations"] == batch.ledger.evaluations
    True
    """

    kinds = ()  # of the whole call it needs nothing

    def __init__(
        self,
        path: str | os.PathLike[str],
        about: About | None = None,
        *,
        sequence: int = 0,
        max_bytes: int = DEFAULT_BYTES,
    ) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes must be at least 1, got {max_bytes!r}")
        self.sequence = sequence
        self._path = path
        self._kind = kind_of(path)
        self._about = about or About()
        self._max_bytes = max_bytes
        self._file: GrowingFile | None = None
        self._result: SampleResult | Ended | None = None
        self._measured: dict[str, Any] = {"batch_kl": None, "batch_kl_se": None}
        self._left_out: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        # Set when a run opens.
        self._row_error: float
        self._vocab_size: int
        self._notes: NoteEvents
        self._history: StateArray
        self._reference: Reference | None = None
        # Of the stage that is open or comes next.
        self._purpose: str | None = None
        self._facts: dict[str, Any] = {}
        self._stage: OpenStage | None = None
        self._history_reply: tuple[Readouts, Rows] | None = None
        self._drawn: Drew | None = None

    def measured(
        self,
        batch_kl: float | None,
        standard_error: float | None,
        beside: Mapping[str, int] | None = None,
    ) -> None:
        """Say what was measured of the run, and what was spent beside it, once it has ended."""
        self._measured = {"batch_kl": plain(batch_kl), "batch_kl_se": plain(standard_error)}
        self._measured["beside"] = dict(beside or {})

    # ----- Listening -----------------------------------------------------------------------

    def __call__(self, event: RunEvent) -> None:
        """Write an event, or remember it until its stage closes."""
        match event:
            case Opened():
                self._open(event)
            case Announced():
                self._purpose, self._facts = event.purpose, event.facts
            case Replied():
                self._gather(event.states, event.readouts, event.rows)
            case Drew():
                self._drawn = event
            case Charged():
                self._write_stage(event.stage, event.ledger)
            case Note():
                self._write_note(event)
            case Closed():
                self._result = event.result

    def _open(self, opening: Opened) -> None:
        """Write the header."""
        if self._file is not None:
            raise ValueError("a Recorder follows one run; make a new one for another")
        header = first_line(self._about.header(opening))
        self._row_error = opening.run.row_error
        self._vocab_size = opening.run.vocab_size
        self._history = opening.given.astype(np.int32)
        self._notes = NoteEvents(opening.run.length)
        self._file = GrowingFile(self._path)
        self._file.write(header)

    def _gather(self, states: StateArray, readouts: Readouts, rows: Rows) -> None:
        """Gather what a probe showed; a reply to the history alone is what others move from."""
        if "book" in self._facts:
            return
        if self._stage is None and self._history_reply is None and len(states) == 1:
            if np.array_equal(states[0], self._history):
                self._history_reply = readouts, rows
                if len(rows) == int((self._history == MASK).sum()):
                    self._refer_to(readouts.position, rows)
                return
        if self._stage is None:
            self._stage = OpenStage(
                self._history,
                self._reference,
                self._vocab_size,
                self._row_error,
                self._facts.get("columns"),
                self._room(PROBES_SHARE),
            )
            if self._history_reply is not None:  # it came first in a stage of several
                self._stage.add(self._history[None, :], *self._history_reply)
        self._stage.add(states, readouts, rows)

    def _write_stage(self, event: Event, ledger: Ledger) -> None:
        """Write a stage."""
        told: dict[str, Any] = {"type": event.operation}
        details: dict[str, Any] = {}
        share = PROBES_SHARE
        if event.operation == "preprocess" and self._history_reply is not None:
            readouts, rows = self._history_reply
            told["positions"] = pack(readouts.position)
            details = summarise(rows)
        elif event.operation == "probe":
            told |= {"purpose": self._purpose or "probe", "count": event.evaluations}
            details = self._probed()
        elif event.operation == "remask":
            told["positions"] = pack(event.positions)
            self._history[event.positions] = MASK
        elif self._drawn is not None:
            share = COMMITS_SHARE
            positions, tokens = self._drawn.positions, self._drawn.tokens
            told |= self._committed(event, positions, tokens)
            drawn_from = self._drawn.rows
            if drawn_from is not None:
                probability = np.asarray(to_numpy(drawn_from.prob(tokens)), dtype=np.float64)
                details = {**summarise(drawn_from), "prob": pack(probability, 1 / 255)}
            elif "log_probs" in self._facts:
                details = {"prob": pack(np.exp(self._facts["log_probs"]), 1 / 255)}
            self._history[positions] = tokens
        told["ledger"] = _account(ledger)
        self._tell(told, details, share)
        self._purpose, self._facts = None, {}
        self._stage = self._history_reply = self._drawn = None

    def _write_note(self, note: Note) -> None:
        """Write what was noted, where a trace has a word for it."""
        if note.name == "candidates":
            drawn = note.content["candidates"]
            self._refer_to(drawn.positions, drawn.rows)
        if note.name == "guard":
            self._purpose = "guard"
        for told, is_detail in self._notes.tell(note):
            if is_detail:
                kind = {"type": told.pop("type")}
                self._tell(kind, told, PROBES_SHARE, alone=True)
            else:
                self._tell(told, {}, 1.0)

    # ----- Writing -------------------------------------------------------------------------

    def _refer_to(self, positions: IntArray, rows: Rows) -> None:
        self._reference = Reference.of(len(self._history), positions, rows)

    def _probed(self) -> dict[str, Any]:
        """Return the details of a stage of probes."""
        if "book" in self._facts:
            return {"screen": screen_fields(self._facts)}
        if self._stage is None:
            return {} if self._history_reply is None else {"read": self._read_of_history()}
        if self._stage.is_dropped:
            self._left_out["probe"] += 1
        return self._stage.fields()

    def _read_of_history(self) -> Any:
        """Return what was read from the history itself."""
        assert self._history_reply is not None
        readouts = self._history_reply[0]
        if np.array_equal(readouts.position, np.flatnonzero(self._history == MASK)):
            return "masked"
        return pack(np.stack([readouts.state_index, readouts.position], axis=1))

    def _committed(self, event: Event, positions: IntArray, tokens: IntArray) -> dict[str, Any]:
        """Return what is always kept of a commit."""
        reason = self._purpose or ("selected" if event.selected else "batch")
        told: dict[str, Any] = {
            "positions": pack(positions),
            "tokens": pack(tokens),
            "reason": reason,
        }
        if event.selected:
            told["selected"] = True
        if event.promoted:
            told["promoted"] = True
        if self._facts.get("price") is not None:
            told["price"] = plain(float(self._facts["price"]))
        return told

    def _room(self, share: float) -> int:
        """Return the bytes that are left for details."""
        assert self._file is not None
        return int(share * self._max_bytes) - self._file.size

    def _tell(
        self, told: dict[str, Any], details: dict[str, Any], share: float, *, alone: bool = False
    ) -> None:
        """Write an event, with its details where there is room; alone, not without them."""
        assert self._file is not None
        self._told[told["type"]] += 1
        if details:
            line = compact({**told, **details}) + ",\n"
            if len(line) <= self._room(share):
                self._file.write(line)
                return
            self._left_out[told["type"]] += 1
            if alone:
                return
        self._file.write(compact(told) + ",\n")

    def _ending(self, result: SampleResult | Ended) -> dict[str, Any]:
        return {
            "type": "end",
            "ledger": result.ledger.as_dict(),
            "stop": str(result.stop),
            "reason": result.reason,
            "seconds": round(result.seconds, 4),
            "used": result.used.names(),
            "tokens": pack(result.state),
            "notes": list(result.notes),
            **self._measured,
            "thinned": self._thinned(),
        }

    def _thinned(self) -> list[str]:
        """Say what was left out while recording."""
        words = {
            "preprocess": "the likeliest tokens of the first readout",
            "probe": "what the states of probes showed and how rows moved",
            "commit": "the likeliest tokens of commits",
            "candidates": "candidates",
            "tests": "what tests decided",
            "verify": "which drafts were kept",
            "votes": "vote totals",
        }
        return [
            f"left out to stay within {self._max_bytes:,} bytes: {words.get(kind, kind)}, in "
            f"{count:,} of {self._told[kind]:,} events"
            for kind, count in self._left_out.items()
        ]

    # ----- The file ------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Wait for a run."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the end, and give the file its name; what a dead run did stays beside it."""
        if self._file is None:
            if error is None:
                raise ValueError("nothing was recorded: pass the recorder to a run as on_event=")
            return
        with self._file as file:
            if self._result is None:
                if error is not None:
                    error.add_note(f"what the run did until then is in {file.partial}")
                return
            file.write(compact(self._ending(self._result)) + "\n" + LAST_LINE)
            if self._kind == "json":
                file.finish()
                return
            whole = parse_trace(file.read())
            if self._kind == "html":
                write_page(whole, self._path)
            else:
                write_trace(whole, self._path)
            file.discard()


def _account(ledger: Ledger) -> list[int]:
    """Return the running account of an event."""
    return [
        ledger.preprocessing,
        ledger.probes,
        ledger.commits,
        ledger.stages,
        ledger.rows_read,
    ]
