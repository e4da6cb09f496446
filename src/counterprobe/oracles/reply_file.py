"""A log of replies: an append-only file of records, each with its length and checksum.

The first record says what run the log belongs to; a log in which it is damaged is refused and left
as it is. Whatever a process was doing when it died, the records that are whole stay readable, and
a tail that is not is cut off. The format:

- the line ``counterprobe replies 1``;
- records, each a byte that says its kind, eight bytes of length, four bytes of CRC-32 over kind,
  length and content, and the content. Numbers are little-endian.

Kinds: what the run is (JSON), a life (one process began here), token classes, a reply, and a reply
that was not kept. Contents are JSON and plain arrays (``encoding.py``).
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

from counterprobe.errors import CheckpointError
from counterprobe.files import LockedFile, special_kind

__all__ = ["Kind", "ReplyFile", "encode_record", "read_records"]

MAGIC = b"counterprobe replies 1\n"
# What of a run is compared only where both sides know it: not every oracle can tell.
CONTENT = "oracle_content"
RECORD = struct.Struct("<BQI")


class Kind(IntEnum):
    """What a record is."""

    ABOUT = 0
    LIFE = 1
    CLASSES = 2
    REPLY = 3
    NOT_KEPT = 4


class ReplyFile:
    """A log that is open: its records are read in order, then more are appended.

    Parameters
    ----------
    path : str or path
        Created if it is not there.
    about : dict
        What the run is, as JSON values; a log of another run is refused.
    facts : dict
        Numbers that are worth knowing of the first life.

    Attributes
    ----------
    facts : dict
        Those of the first life.
    num_lives : int
        Processes that have opened it, this one included.
    num_cut : int
        Bytes of a damaged tail that were cut off.
    is_begun_anew : bool
        Whether what was there was a beginning that no process had finished, with no reply.
    """

    def __init__(
        self, path: str | os.PathLike[str], about: dict[str, Any], facts: dict[str, float]
    ) -> None:
        self.path = Path(path)
        self.facts = facts
        self.num_lives, self.num_cut = 1, 0
        self.is_begun_anew = False
        if not self.path.parent.is_dir():
            raise CheckpointError(f"cannot write {path}: there is no folder {self.path.parent}")
        if (kind := special_kind(self.path)) is not None:  # opening a pipe would wait for ever
            raise CheckpointError(f"{path} is {kind}; a checkpoint must be a regular file")
        try:
            self._file = LockedFile(self.path)
        except BlockingIOError as problem:
            raise CheckpointError(str(problem)) from None
        try:
            self._end = self._settle(about)
        except BaseException:
            self._file.close()
            raise
        self._reader: BinaryIO = open(self.path, "rb")
        self._reader.seek(len(MAGIC))

    def next(self) -> tuple[Kind, bytes] | None:
        """Return the next record that was there when the log was opened; None after the last."""
        if self._reader.tell() >= self._end:
            return None
        record = _read(self._reader, self._end)
        assert record is not None, "every record was checked when the log was opened"
        return record

    def append(self, kind: Kind, content: bytes) -> None:
        """Write a record; it is whole in the file when this returns."""
        self._file.append(encode_record(kind, content))

    def close(self) -> None:
        """Bring everything to disk, and let others open the log."""
        if not self._reader.closed:
            with suppress(OSError):  # a full disk: what is written is written
                self._file.sync()
            self._file.close()
            self._reader.close()

    # ----- Opening -------------------------------------------------------------------------

    def _settle(self, about: dict[str, Any]) -> int:
        """Check or write the beginning, cut a damaged tail; return where whole records end."""
        size = self._file.size
        with open(self.path, "rb") as found:
            magic = found.read(len(MAGIC))
            if not MAGIC.startswith(magic):
                raise CheckpointError(
                    f"{self.path} is not a checkpoint of this format; name another file"
                )
            first = _read(found, size) if magic == MAGIC else None
            if first is None:
                return self._begin(about, size)
            self._require_same(first, about)
            whole = found.tell()
            for kind, _ in read_records(found, size):
                self.num_lives += kind is Kind.LIFE
                whole = found.tell()
        self.num_cut = size - whole
        self._file.truncate(whole)
        self.append(Kind.LIFE, b"")
        return whole

    def _begin(self, about: dict[str, Any], size: int) -> int:
        """Write the beginning of an empty log, or of one whose process died while writing it."""
        start = MAGIC + encode_record(Kind.ABOUT, _json({"run": about, "facts": self.facts}))
        with open(self.path, "rb") as found:
            written = found.read(len(start))
        # Whatever else stands there may be followed by replies that were paid for.
        if size >= len(start) or not start.startswith(written):
            raise CheckpointError(
                f"{self.path} is damaged in its first record, which says what run it belongs to; "
                "nothing in it was changed: put back a copy of it, or name another file to start "
                "anew"
            )
        self.num_cut, self.is_begun_anew = size, size > 0
        self._file.truncate(0)
        self._file.append(start)
        self.append(Kind.LIFE, b"")
        return len(start)

    def _require_same(self, first: tuple[Kind, bytes], about: dict[str, Any]) -> None:
        """Refuse a log of another run, and say in what it differs."""
        kind, content = first
        try:
            written = json.loads(content) if kind is Kind.ABOUT else {}
            then = dict(written["run"])
            self.facts = {name: _fact(written["facts"][name]) for name in self.facts}
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise CheckpointError(
                f"{self.path} does not begin with what run it belongs to; name another file"
            ) from None
        now = json.loads(_json(about))
        if (difference := _first_difference(then, now)) is not None:
            name, before, after = difference
            raise CheckpointError(
                f"{self.path} belongs to another run: its {_plain(name)} is {_short(before)}, "
                f"this run's is {_short(after)}; resume with the same settings, or name another "
                "file"
            )


def _first_difference(then: dict[str, Any], now: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """Return the name and both values of the first term that differs, inside mappings too."""
    for name in [*now, *(name for name in then if name not in now)]:
        before, after = then.get(name), now.get(name)
        if before == after or (name == CONTENT and None in (before, after)):
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            return _first_difference(before, after) or (name, before, after)
        return name, before, after
    return None


def _json(about: dict[str, Any]) -> bytes:
    return json.dumps(about).encode()


def _plain(name: str) -> str:
    """Return a name on one line: it may come from a file that somebody made up."""
    text = json.dumps(name)[1:-1]
    return text if len(text) <= 60 else text[:56] + "..."


def _fact(value: Any) -> float:
    """Return a number that was worth knowing: none of them is infinite or negative."""
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"a number of at least 0, got {number}")
    return number


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def encode_record(kind: Kind, content: bytes) -> bytes:
    """Return a record: its head, then its content."""
    return RECORD.pack(kind, len(content), _checksum(kind, content)) + content


def _checksum(kind: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(struct.pack("<BQ", kind, len(content))))


def _read(file: BinaryIO, end: int) -> tuple[Kind, bytes] | None:
    """Read a record; None if what follows is not a whole one."""
    head = file.read(RECORD.size)
    if len(head) < RECORD.size:
        return None
    kind, length, checksum = RECORD.unpack(head)
    if kind not in list(Kind) or length > end - file.tell():
        return None
    content = file.read(length)
    if len(content) < length or _checksum(kind, content) != checksum:
        return None
    return Kind(kind), content


def read_records(file: BinaryIO, end: int) -> Iterator[tuple[Kind, bytes]]:
    """Read whole records to the first that is not."""
    while (record := _read(file, end)) is not None:
        yield record
