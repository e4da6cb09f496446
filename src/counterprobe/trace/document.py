"""The document of a trace: reading, checking and writing it; ``docs/trace.md`` describes it.

A file holds one JSON document whose first line is the header and whose further lines are events,
so that a run that died leaves lines that can be read. Nothing in a file is trusted: sizes are
bounded before anything is inflated, and whatever is not a trace is refused in one line.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from counterprobe.files import refuse_named_pipe, whole_file

__all__ = [
    "FORMAT",
    "VERSION",
    "Trace",
    "kind_of",
    "load_trace",
    "parse_trace",
    "thin",
    "write_trace",
]

FORMAT = "counterprobe trace"
VERSION = 1
# Bytes of a file that is read, once inflated.
MAX_FILE = 1 << 29
# Positions and tokens of a run, at most: arrays of them must fit into memory.
MAX_LENGTH = 1 << 26
GZIP = b"\x1f\x8b"

Kind = Literal["json", "gzip", "html"]
LAST_LINE = "]}\n"
# What may go, in this order: the event, its fields, and the words for it.
DETAILS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("candidates", ("positions", "tokens"), "candidates"),
    ("probe", ("shown", "unit", "read", "response", "reference"), "what the states of probes "
     "showed and how rows moved"),
    ("commit", ("top", "mass"), "likeliest tokens of commits"),
    ("probe", ("screen",), "colorings and responses of packed screens"),
    ("votes", ("pairs", "votes", "kept"), "vote totals"),
    ("preprocess", ("top", "mass", "entropy"), "rows of the first readout"),
    ("commit", ("entropy", "prob"), "entropies of commits"),
    ("tests", ("kept", "dropped"), "what tests decided"),
    ("verify", ("positions", "accepted"), "which drafts were kept"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trace:
    """What a run did.

    Attributes
    ----------
    header : dict
        What the run was.
    events : list of dict
        What it did, in order.
    is_truncated : bool
        Whether the end is missing: the run died, or the file was cut.
    """

    header: dict[str, Any]
    events: list[dict[str, Any]] = field(repr=False)
    is_truncated: bool = False

    @property
    def end(self) -> dict[str, Any] | None:
        """The last event of a run that came to an end."""
        last = self.events[-1] if self.events else {}
        return last if last.get("type") == "end" else None

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        made = {"format": FORMAT, "version": VERSION, "header": self.header}
        if self.is_truncated:
            made["truncated"] = True
        return {**made, "events": self.events}

    def lines(self) -> Iterator[str]:
        """Yield the lines of a file."""
        yield first_line(self.header, is_truncated=self.is_truncated)
        for k, event in enumerate(self.events):
            yield compact(event) + ("," if k < len(self.events) - 1 else "") + "\n"
        yield LAST_LINE


def compact(value: Any) -> str:
    """Return JSON without spaces, in ASCII."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def first_line(header: dict[str, Any], *, is_truncated: bool = False) -> str:
    """Return the line that a file begins with."""
    made: dict[str, Any] = {"format": FORMAT, "version": VERSION, "header": header}
    if is_truncated:
        made["truncated"] = True
    return compact({**made, "events": []})[: -len("]}")] + "\n"


def kind_of(path: str | os.PathLike[str]) -> Kind:
    """Return the kind of a file by its name, or refuse it."""
    name = Path(path).name.lower()
    for ending, kind in ((".json", "json"), (".json.gz", "gzip"), (".html", "html")):
        if name.endswith(ending):
            return kind  # type: ignore[return-value]
    raise ValueError(f"a trace's name must end in .json, .json.gz or .html; got {os.fspath(path)}")


# ----- Writing ------------------------------------------------------------------------------


def write_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace as ``.json`` or ``.json.gz``; the file appears whole or not at all."""
    kind = kind_of(path)
    if kind == "html":
        raise ValueError(f"write_trace writes .json and .json.gz, got {os.fspath(path)}; "
                         "write_page makes a page")  # fmt: skip
    text = "".join(trace.lines()).encode("ascii")
    with whole_file(path) as stream:
        stream.write(gzip.compress(text, mtime=0) if kind == "gzip" else text)


# ----- Reading ------------------------------------------------------------------------------


def load_trace(path: str | os.PathLike[str], max_bytes: int = MAX_FILE) -> Trace:
    """Read a trace; one that was cut is read as far as it goes.

    Parameters
    ----------
    path : path
        ``.json`` or ``.json.gz``, by its content.
    max_bytes : int
        A longer file, once inflated, is refused.

    Raises
    ------
    ValueError
        In one line, if it is no trace, of another version or too large.
    """
    name = os.fspath(path)
    refuse_named_pipe(path)
    with open(path, "rb") as file:
        raw = file.read(max_bytes + 1)
    is_cut = False
    if raw[:2] == GZIP and len(raw) <= max_bytes:
        raw, is_cut = _gunzip(raw, name, max_bytes)
    if len(raw) > max_bytes:
        raise ValueError(
            f"{name} has more than {max_bytes:,} bytes; record it again with less, as in "
            "'--trace-bytes 5000000'"
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        if not is_cut and problem.end < len(raw):
            raise ValueError(f"{name} is not a trace: it is not text in UTF-8") from None
        text = raw[: problem.start].decode("utf-8")
    return parse_trace(text, name)


def parse_trace(text: str, name: str = "the text") -> Trace:
    """Read a trace from text.

    Parameters
    ----------
    text : str
    name : str
        What errors call it.
    """
    try:
        document = _loads(text)
    except ValueError:
        return _parse_lines(text, name)
    header = _header_of(document, name)
    events = document.get("events")
    if not isinstance(events, list):
        raise ValueError(f"{name} is not a trace: it has no list of events")
    return _checked(header, events, name, is_cut=False)


def _parse_lines(text: str, name: str) -> Trace:
    """Read what a run that died left behind: whole lines, then part of one."""
    first, *lines = text.split("\n")
    try:
        document = _loads(first.rstrip() + "]}")
    except ValueError:
        hint = " (its first line is cut)" if first.lstrip().startswith('{"format"') else ""
        raise ValueError(
            f"{name} is not a trace, or cut in its header{hint}; 'counterprobe sample --trace "
            "FILE.json' writes one"
        ) from None
    header = _header_of(document, name)
    events = []
    for line in lines:
        try:
            events.append(_loads(line.rstrip().removesuffix(",")))
        except ValueError:
            break
    return _checked(header, events, name, is_cut=True)


def _checked(header: dict[str, Any], events: list[Any], name: str, *, is_cut: bool) -> Trace:
    for k, event in enumerate(events):
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            raise ValueError(f"{name} is not a trace: event {k} has no type")
    trace = Trace(header, events)
    is_cut |= trace.end is None
    return Trace(header, events, is_truncated=is_cut)


def _header_of(document: Any, name: str) -> dict[str, Any]:
    """Return the header of a document, or say what the document is not."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(
            f"{name} is not a trace: its format is not {FORMAT!r}; 'counterprobe sample --trace "
            "FILE.json' writes one"
        )
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise ValueError(
            f"{name} is a trace of version {version!r:.20}, and this library reads version "
            f"{VERSION}; read it with the counterprobe that wrote it, or a newer one"
        )
    header = document.get("header")
    if not isinstance(header, dict):
        raise ValueError(f"{name} is not a trace: it has no header")
    for key in ("length", "vocab_size"):
        size = header.get(key)
        if type(size) is not int or not 1 <= size <= MAX_LENGTH:
            raise ValueError(f"{name} is not a trace: {key} must lie in 1..{MAX_LENGTH}, "
                             f"got {size!r:.40}")  # fmt: skip
    for key, size in (("positions", header["length"]), ("tokens", header["vocab_size"])):
        names = header.get(key)
        is_list = isinstance(names, list) and all(isinstance(one, str) for one in names)
        if names is not None and not (is_list and len(names) == size):
            raise ValueError(f"{name} is not a trace: {key} must be {size} strings")
    thinned = header.get("thinned") or []
    if not isinstance(thinned, list) or not all(isinstance(said, str) for said in thinned):
        raise ValueError(f"{name} is not a trace: thinned must be a list of strings")
    return header


def _loads(text: str) -> Any:
    """Read JSON; what is nested without end is damaged, too."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _gunzip(raw: bytes, name: str, max_bytes: int) -> tuple[bytes, bool]:
    """Inflate a file, no further than allowed; say whether its end is missing."""
    inflate = zlib.decompressobj(wbits=31)
    try:
        text = inflate.decompress(raw, max_bytes + 1)
    except zlib.error as problem:
        raise ValueError(f"{name} is damaged: {problem}") from None
    return text, not inflate.eof


# ----- Thinning ----------------------------------------------------------------------------


def thin(trace: Trace, max_bytes: int) -> Trace:
    """Return a trace of at most so many bytes, and in its header what was left out.

    What a viewer misses least goes first, and of each kind the largest; commits, edges and the
    ledger stay.

    Parameters
    ----------
    trace : Trace
    max_bytes : int

    Raises
    ------
    ValueError
        If what must stay is larger.
    """
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, got {max_bytes!r}")
    events = [dict(event) for event in trace.events]
    size = sum(map(len, trace.lines()))
    left_out: Counter[str] = Counter()
    room = max_bytes - 120 * len(DETAILS) if size > max_bytes else max_bytes  # for the sentences
    for kind, fields, words in DETAILS:
        if size <= room:
            break
        for saved, k in _by_size(events, kind, fields):
            if size <= room:
                break
            for name in fields:
                events[k].pop(name, None)
            size -= saved
            left_out[words] += 1
    said = [f"thinned to {max_bytes:,} bytes: {words}, in {n:,} events"
            for words, n in left_out.items()]  # fmt: skip
    before = trace.header.get("thinned")
    notes = [*(before if isinstance(before, list) else []), *said]
    header = {**trace.header, "thinned": notes}
    thinned = replace(trace, header=header, events=events)
    size = sum(map(len, thinned.lines()))
    if size > max_bytes:
        raise ValueError(
            f"this trace cannot be thinned to {max_bytes:,} bytes: its commits, edges and ledger "
            f"alone take {size:,}"
        )
    return thinned


def _by_size(
    events: list[dict[str, Any]], kind: str, fields: tuple[str, ...]
) -> list[tuple[int, int]]:
    """Return what leaving fields out would save, and where, largest first."""
    found = []
    for k, event in enumerate(events):
        if event["type"] == kind:
            there = {name: event[name] for name in fields if name in event}
            if there:
                found.append((len(compact(there)) - 1, k))
    return sorted(found, key=lambda one: -one[0])
