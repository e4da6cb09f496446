"""The store of a study: one SQLite file in which every finished run is durable when reported.

Runs are keyed by the canonical JSON of everything that determines them and are never duplicated or
overwritten; the seconds they took, when and where, stand in columns of their own. Several studies
may share a store, also at the same time: they share runs by key. A file that is not a store, one
of another version, or a damaged one is refused untouched.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from counterprobe.errors import CounterprobeError
from counterprobe.files import special_kind
from counterprobe.plain import canonical
from counterprobe.streams import versions
from counterprobe.study.config import StudyConfig, config_from_dict

__all__ = ["Record", "Store", "StoreError"]

# "CPST" in the header's application id tells our files from other SQLite files.
APPLICATION_ID = 0x43505354
LAYOUT_VERSION = 1
# How long one writer waits for another.
PATIENCE_SECONDS = 60.0

_LAYOUT = """
CREATE TABLE studies (
    name TEXT PRIMARY KEY,
    config TEXT NOT NULL,
    tuning INTEGER NOT NULL DEFAULT 0,
    created TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    result TEXT NOT NULL,
    seconds TEXT NOT NULL,
    finished TEXT NOT NULL,
    machine TEXT NOT NULL,
    versions TEXT NOT NULL
) WITHOUT ROWID;
"""


class StoreError(CounterprobeError):
    """A store cannot be read or written; what it holds is untouched."""


@dataclass(frozen=True, slots=True)
class Record:
    """One finished run as it lies in the store."""

    key: dict[str, Any]
    result: dict[str, Any]
    seconds: dict[str, float]
    finished: str
    machine: dict[str, Any]
    versions: dict[str, str]


class Store:
    """An open store.

    Parameters
    ----------
    file : str or Path
    create : bool
        Whether a missing file is made; otherwise it is an error.
    """

    def __init__(self, file: str | Path, *, create: bool = False) -> None:
        self.file = Path(file)
        if (kind := special_kind(self.file)) is not None:  # opening a pipe would wait for ever
            raise StoreError(f"{self.file} is {kind}; a store is a regular file")
        is_new = not self.file.exists() or self.file.stat().st_size == 0
        if is_new and not create:
            raise StoreError(f"there is no store {self.file}; `study run --store` makes one")
        if not is_new:
            _check_header(self.file)
        with self._explained("open"):
            self._database = sqlite3.connect(
                self.file, timeout=PATIENCE_SECONDS, isolation_level=None
            )
        try:
            with self._explained("open"):
                if is_new:
                    self._lay_out()
                self._check_layout()
                self._write_ahead()
                # Every commit reaches the disk before it returns.
                self._database.execute("PRAGMA synchronous = FULL")
        except BaseException:
            self._database.close()
            raise

    def _write_ahead(self) -> None:
        """Switch to a write-ahead log, once in a store's life.

        SQLite does not wait for other connections at this one statement, so we do.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._database.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as problem:
                if "locked" not in str(problem) or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def __enter__(self) -> Store:
        """Return the store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the file; what was reported is on disk already."""
        self._database.close()

    # ----- Studies -------------------------------------------------------------------------

    def studies(self) -> list[str]:
        """Return the names of the studies in the store, oldest first."""
        with self._explained("read"):
            rows = self._database.execute("SELECT name FROM studies ORDER BY created, name")
            return [name for (name,) in rows]

    def config(self, name: str) -> StudyConfig:
        """Return a study's configuration."""
        with self._explained("read"):
            row = self._database.execute(
                "SELECT config FROM studies WHERE name = ?", (name,)
            ).fetchone()
        if row is None:
            known = ", ".join(self.studies()) or "none yet"
            raise StoreError(f"{self.file} holds no study {name!r}; its studies: {known}")
        with self._explained("read"):
            content = _json_object(row[0])
        return config_from_dict(content, f"study {name!r} in {self.file}")

    def tuning(self, name: str) -> int:
        """Return how often a study's tuning was asked to be repeated."""
        with self._explained("read"):
            row = self._database.execute(
                "SELECT tuning FROM studies WHERE name = ?", (name,)
            ).fetchone()
        return int(row[0]) if row else 0

    def register(self, config: StudyConfig, *, retune: bool = False) -> None:
        """Enter a study, or find it there unchanged; a changed one is refused.

        Parameters
        ----------
        config : StudyConfig
        retune : bool
            Repeat the tuning of a study that is there already; the old runs stay.
        """
        with self._explained("write"):
            added = self._database.execute(
                "INSERT OR IGNORE INTO studies (name, config, created) VALUES (?, ?, ?)",
                (config.name, canonical(config.as_dict()), _now()),
            ).rowcount
        if added:
            return
        changed = self.config(config.name).differences(config)
        if changed:
            raise StoreError(
                f"{self.file} already holds a study {config.name!r} with another "
                f"{', '.join(changed)}; give the changed study another name (both then share what "
                "they have in common), or choose another --store"
            )
        if retune:
            with self._explained("write"):
                self._database.execute(
                    "UPDATE studies SET tuning = tuning + 1 WHERE name = ?", (config.name,)
                )

    # ----- Runs ----------------------------------------------------------------------------

    def add(
        self, key: Mapping[str, Any], result: Mapping[str, Any], seconds: Mapping[str, float]
    ) -> bool:
        """Keep a finished run; when this returns, it is on disk.

        Returns
        -------
        bool
            False when the run was there already, with the same result.
        """
        name = canonical(key)
        with self._explained("write"):
            added = self._database.execute(
                "INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, ?)",
                (name, canonical(result), canonical(seconds), _now(), canonical(machine()),
                 canonical(versions())),
            ).rowcount  # fmt: skip
        if added:
            return True
        there = self.get(key)
        if there is None or canonical(there.result) != canonical(result):
            raise StoreError(
                f"a run of {self.file} was repeated and gave another result; the first is kept. "
                f"Key: {name}"
            )
        return False

    def get(self, key: Mapping[str, Any]) -> Record | None:
        """Return a finished run, or None."""
        with self._explained("read"):
            row = self._database.execute(
                "SELECT * FROM runs WHERE key = ?", (canonical(key),)
            ).fetchone()
            return None if row is None else _record(row)

    def records(self) -> dict[str, Record]:
        """Return every finished run by the text of its key."""
        with self._explained("read"):
            return {row[0]: _record(row) for row in self._database.execute("SELECT * FROM runs")}

    def __len__(self) -> int:
        """Return how many runs are finished."""
        with self._explained("read"):
            return int(self._database.execute("SELECT count(*) FROM runs").fetchone()[0])

    # ----- Inside --------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """Make the tables, all or nothing; another process may have been faster."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            if self._pragma("application_id") == 0:
                for statement in _LAYOUT.split(";"):
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._database.execute(f"PRAGMA user_version = {LAYOUT_VERSION}")
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def _pragma(self, name: str) -> int:
        return int(self._database.execute(f"PRAGMA {name}").fetchone()[0])

    def _check_layout(self) -> None:
        if self._pragma("application_id") != APPLICATION_ID:
            raise StoreError(
                f"{self.file} is a SQLite file of another program, not a study's store; choose "
                "another --store"
            )
        version = self._pragma("user_version")
        if version != LAYOUT_VERSION:
            raise StoreError(
                f"{self.file} has layout {version}, this version of counterprobe reads layout "
                f"{LAYOUT_VERSION}; use the version that made it, or another --store"
            )
        state = self._database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if state != "ok":
            raise StoreError(_damaged(self.file, str(state)))

    @contextmanager
    def _explained(self, action: str) -> Iterator[None]:
        """Turn SQLite's errors into ours, which say what to do."""
        try:
            yield
        except sqlite3.Error as problem:
            raise StoreError(_explain(self.file, action, problem)) from problem
        except _NoJSON as problem:
            raise StoreError(_damaged(self.file, str(problem))) from problem


def _explain(file: Path, action: str, problem: sqlite3.Error) -> str:
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return (
            f"cannot {action} {file}: {problem}. Runs reported so far are safe; free some space "
            "and continue with `counterprobe study resume`"
        )
    if code == sqlite3.SQLITE_BUSY:
        return (
            f"cannot {action} {file}: another process has held it for {PATIENCE_SECONDS:.0f} "
            "seconds; end that process, or choose another --store"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(file, str(problem))
    said = " ".join(str(problem).split())  # it may quote what a damaged file holds
    if "Could not decode" in said:
        return _damaged(file, said[:200])
    return f"cannot {action} {file}: {said:.200}"


def _damaged(file: Path, problem: str) -> str:
    reason = " ".join(problem.split())
    return (
        f"{file} is damaged ({reason}); nothing was changed. Put back a copy, or recover what is "
        f"readable with `sqlite3 {file.name} .recover`, or choose another --store"
    )


def _check_header(file: Path) -> None:
    """Refuse a file that SQLite would refuse later, without opening it for writing."""
    with file.open("rb") as stream:
        header = stream.read(100)
    if not header.startswith(b"SQLite format 3\0"):
        raise StoreError(f"{file} is not a study's store; choose another --store")
    if len(header) < 100:
        raise StoreError(_damaged(file, "the file is cut off"))
    identity = int.from_bytes(header[68:72], "big")
    if identity not in (0, APPLICATION_ID):
        raise StoreError(
            f"{file} is a SQLite file of another program, not a study's store; choose another "
            "--store"
        )


class _NoJSON(Exception):
    """An entry is not what a study writes."""


def _record(row: tuple[str, ...]) -> Record:
    key, result, seconds, finished, where, what = row
    if not isinstance(finished, str):
        raise _NoJSON(f"a run has no time, but {finished!r:.40}")
    return Record(
        _json_object(key), _json_object(result), _json_object(seconds), finished,
        _json_object(where), _json_object(what),
    )  # fmt: skip


def _json_object(text: Any) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, TypeError, RecursionError) as problem:
        raise _NoJSON(f"an entry is not JSON: {problem}") from None
    if not isinstance(content, dict):
        raise _NoJSON(f"an entry is not an object of JSON, but {text!r:.40}")
    return content


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def machine() -> dict[str, Any]:
    """Return what a timing depends on."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "clock": time.get_clock_info("perf_counter").implementation,
    }
