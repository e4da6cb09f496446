"""Every file that the library writes is opened here; files are read no further than they may go.

A file is written in one of two ways. :func:`whole_file` writes beside the file, under a random
name, and takes its place at the end: a reader finds the old content or the new, never half of it.
:class:`LockedFile` grows while a run goes on: one process at a time has it open for writing, and
a second one is refused. Neither follows a link that somebody else put in the place of a temporary
name. A test refuses every other way of opening a file for writing.

A file that is not what its reader expects, such as a device without end, is refused before it
fills the memory, and a pipe before its reader waits for a writer.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

try:
    import fcntl
except ImportError:  # no file locks on this system: two processes on one file are not told apart
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "GrowingFile",
    "LockedFile",
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
# For a name that is nobody's yet. Links are not followed, and nobody waits for a pipe.
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | _PLAIN


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
        # Memory is set aside for what is asked for; of a pipe or device no size is known.
        size = os.fstat(stream.fileno()).st_size or most
        content = stream.read(min(size, most) + 1)
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
def whole_file(file: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a stream whose content takes the file's place only when all went well.

    The new content is on disk before it takes that place. A link is followed and stays a link. A
    special file, such as a pipe, is written to directly. A file that somebody writes as a
    :class:`LockedFile` stays.

    Parameters
    ----------
    file : str or path
        Its folder must exist.

    Yields
    ------
    binary stream
        Of a new file in the same folder, under a name that nobody else uses.
    """
    target = Path(file).resolve()
    if target.exists() and not target.is_file():
        with open(target, "wb") as stream:
            yield stream
        return
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {file}: there is no folder {target.parent}")
    partial = _beside(target)
    handle = os.open(partial, _NEW, 0o666)
    try:
        with open(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(handle)
        _refuse_in_use(target)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def check_whole_file(file: str | os.PathLike[str]) -> None:
    """Raise ``OSError`` if :func:`whole_file` could not write: try it, and leave nothing."""
    target = Path(file).resolve()
    if target.exists() and not target.is_file():
        return  # opening a pipe would wait for its reader
    partial = _beside(target)
    os.close(os.open(partial, _NEW, 0o666))
    partial.unlink()


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


class LockedFile:
    """A file that this process alone has open for writing, until it is closed.

    The lock is the system's: it ends with the process, however that ends. A new file that is still
    empty when it is closed is removed. A special file, such as a pipe, is not locked, and opened
    when something is written.

    Parameters
    ----------
    file : str or path
        Created if it is not there; its folder must exist. A link is followed.
    fresh : bool
        Begin with a new file under exactly this name: whatever nobody is writing there, also a
        link, is removed, and what a link names is left alone.

    Raises
    ------
    BlockingIOError
        If it is open for writing already, by another process or by this one.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with LockedFile(pathlib.Path(folder, "a.txt")) as file:
    ...         file.append(b"one")
    ...         file.read()
    b'one'
    """

    def __init__(self, file: str | os.PathLike[str], *, fresh: bool = False) -> None:
        self.path = Path(file) if fresh else Path(file).resolve()
        self._handle = -1
        self._is_special = not fresh and special_kind(self.path) is not None
        self._is_new = False
        while self._handle < 0 and not self._is_special:
            self._handle = self._open(fresh)

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return 0 if self._is_special else os.fstat(self._handle).st_size

    def append(self, content: bytes) -> None:
        """Write at the end; what could not be written whole, as on a full disk, is taken back."""
        if self._is_special and self._handle < 0:
            self._handle = os.open(self.path, os.O_WRONLY)
        start, data = self.size, memoryview(content)
        if not self._is_special:
            os.lseek(self._handle, start, os.SEEK_SET)
        try:
            while data:
                data = data[os.write(self._handle, data) :]
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._handle, start)
            raise

    def read(self) -> bytes:
        """Return the content."""
        with open(os.dup(self._handle), "rb") as stream:
            stream.seek(0)
            return stream.read()

    def truncate(self, size: int) -> None:
        """Keep only the first bytes."""
        if not self._is_special:
            os.ftruncate(self._handle, size)

    def sync(self) -> None:
        """Bring everything to disk."""
        os.fsync(self._handle)

    def close(self) -> None:
        """Let others write; a second time is nothing new."""
        if self._handle < 0:
            return
        if self._is_new and self.size == 0 and _is_at(self._handle, self.path):
            with suppress(OSError):
                self.path.unlink()
        os.close(self._handle)
        self._handle = -1

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def _open(self, fresh: bool) -> int:
        """Open and lock the file; -1 where another process was in between, to try again."""
        try:
            handle, self._is_new = os.open(self.path, _NEW, 0o666), True
        except FileExistsError:
            self._is_new = False
            try:
                if fresh and not stat.S_ISREG(os.lstat(self.path).st_mode):
                    self.path.unlink()
                    return -1
                handle = os.open(self.path, os.O_RDWR | _PLAIN)
            except FileNotFoundError:
                return -1
        try:
            _lock(handle, self.path)
            # Whoever had it open before may have removed or renamed it.
            if _is_at(handle, self.path):
                if self._is_new or not fresh:
                    return handle
                self.path.unlink()
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        return -1


class GrowingFile:
    """A text file that grows line by line beside its name, and takes it when all went well.

    What a program that died had written stays in ``NAME.partial``, for whoever wants to know how
    far it came. A second writer of the same name is refused.

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
        self._file = LockedFile(self.partial, fresh=True)
        self.size = 0

    def write(self, line: str) -> None:
        """Write a line; it is on its way to the disk when this returns."""
        self._file.append(line.encode("ascii"))
        self.size += len(line)

    def finish(self) -> None:
        """Take the name."""
        self._file.sync()
        if fcntl is None:  # no lock to keep, and such systems rename no open file
            self._file.close()
        os.replace(self.partial, self._target)
        self._file.close()

    def read(self) -> str:
        """Return what was written."""
        return self._file.read().decode("ascii")

    def discard(self) -> None:
        """Leave nothing behind."""
        self._file.truncate(0)
        self._file.close()

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


def _lock(handle: int, path: Path) -> None:
    """Lock an open file until it is closed, or raise at once."""
    if fcntl is None:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _in_use(path) from None
    except OSError as problem:
        raise OSError(
            f"{path} cannot be locked ({problem.strerror}); name a file on a local disk"
        ) from None


def _in_use(path: Path) -> BlockingIOError:
    return BlockingIOError(f"{path} is in use by another run; wait for it, or name another file")


def _refuse_in_use(path: Path) -> None:
    """Raise if somebody writes a file as :class:`LockedFile`; where nothing tells, say nothing."""
    if fcntl is None:
        return
    with suppress(FileNotFoundError, PermissionError), open(path, "rb") as file:
        try:
            # Shared: others that look at the same time are not in the way.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(path) from None
        except OSError:
            return


def _is_at(handle: int, path: Path) -> bool:
    """Whether a path still names an open file."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _beside(target: Path) -> Path:
    """Return a name in the same folder that nobody else uses."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
