"""Files that are written whole or not at all, and read no further than they may go.

Whoever reads a file that a program was interrupted in writing finds the old content, never half
of the new one. A file that is not what its reader expects, such as a device without end, is
refused before it fills the memory, and a pipe before its reader waits for somebody who writes.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = [
    "GrowingFile",
    "check_whole_file",
    "check_writable",
    "read_bytes",
    "read_text",
    "refuse_named_pipe",
    "special_kind",
    "whole_file",
]

# Bytes of a text that is read whole; the largest that anybody needs are lists of edges.
MOST_TEXT = 1 << 28


def special_kind(file: str | os.PathLike[str]) -> str | None:
    """Say what a path names that is no regular file: a folder, pipe, socket or device.

    None for a regular file, and where there is nothing: opening says that well enough.
    """
    try:
        mode = os.stat(file).st_mode
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def refuse_named_pipe(file: str | os.PathLike[str]) -> None:
    """Raise ``ValueError`` for a pipe with a name of its own: opening it waits for a writer.

    Pipes that a shell has made and opened (``/dev/stdin``, ``<(...)``) have none, and are read.
    """
    if special_kind(file) == "a pipe" and os.path.exists(os.path.realpath(file)):
        name = os.fspath(file)
        raise ValueError(
            f"{name} is a pipe, and reading it may wait for ever; name a file, or /dev/stdin"
        )


def read_bytes(file: str | os.PathLike[str], most: int = MOST_TEXT) -> bytes:
    """Return the content of a file of at most so many bytes; refuse a larger one."""
    refuse_named_pipe(file)
    with open(file, "rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{os.fspath(file)} must have at most {most:,} bytes, it has more")
    return content


def read_text(file: str | os.PathLike[str], most: int = MOST_TEXT) -> str:
    """Return the text of a file in UTF-8 of at most so many bytes; refuse anything else."""
    try:
        return read_bytes(file, most).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{os.fspath(file)} must be a text file in UTF-8") from None


@contextmanager
def whole_file(file: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path to write to, which takes the file's place only when all went well.

    The new content is on disk before it takes that place. A link is followed and stays a link. A
    special file, such as a pipe, is written to directly.

    Parameters
    ----------
    file : str or path
        Its folder must exist.

    Yields
    ------
    Path
        In the same folder, under a name that nobody else uses; writing there creates it.
    """
    target = Path(file).resolve()
    if target.exists() and not target.is_file():
        yield target
        return
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {file}: there is no folder {target.parent}")
    partial = _beside(target)
    try:
        yield partial
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def check_whole_file(file: str | os.PathLike[str]) -> None:
    """Raise ``OSError`` if :func:`whole_file` could not write: try it, and leave nothing."""
    target = Path(file).resolve()
    if target.exists() and not target.is_file():
        return  # opening a pipe would wait for its reader
    partial = _beside(target)
    try:
        partial.touch(exist_ok=False)
    finally:
        partial.unlink(missing_ok=True)


def check_writable(*files: str | None) -> None:
    """Refuse files that could not be written, before anything is computed; ``-`` is no file."""
    for file in files:
        if file is None or file == "-":
            continue
        target = Path(file).resolve()
        if not target.parent.is_dir():
            raise ValueError(f"cannot write {file}: the folder {target.parent} does not exist")
        if target.is_dir():
            raise ValueError(f"cannot write {file}: it is a folder")
        if target.exists() and not os.access(target, os.W_OK):
            raise ValueError(f"cannot write {file}: no permission")
        try:
            check_whole_file(target)
        except OSError as problem:
            why = problem.strerror or str(problem)
            raise ValueError(f"cannot write {file}: {why[:1].lower()}{why[1:]}") from None


class GrowingFile:
    """A text file that grows line by line beside its name, and takes it when all went well.

    What a program that died had written stays in ``NAME.partial``, for whoever wants to know how
    far it came.

    Parameters
    ----------
    file : str or path
        Its folder must exist.

    Attributes
    ----------
    partial : Path
        Where it grows.
    size : int
        Bytes so far.
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self._target = Path(file).resolve()
        self.partial = self._target.with_name(f"{self._target.name}.partial")
        self._file = self.partial.open("w", encoding="ascii", newline="")
        self.size = 0

    def write(self, line: str) -> None:
        """Write a line; it is on its way to the disk when this returns."""
        self._file.write(line)
        self._file.flush()
        self.size += len(line)

    def finish(self) -> None:
        """Take the name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self.partial, self._target)

    def read(self) -> str:
        """Return what was written."""
        self._file.flush()
        return self.partial.read_text(encoding="ascii")

    def discard(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        self.partial.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Grow."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop growing; what is unfinished stays in ``partial``."""
        self._file.close()


def _beside(target: Path) -> Path:
    """Return a name in the same folder that nobody else uses."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
