"""Reply cache: what an oracle replied to each state, in a file that outlives the process.

A reply is kept state by state, under a digest of everything it depends on: the tokens, what was
read from the state, and the order of commits or the attention layers where these matter. So a
state is found again however states were grouped, by any run of any process, and a run is resumed
by starting it again.

A state has one reply, the first that was stored: also where a network rounds differently in
another batch, a resumed run sees the bits that the interrupted one saw. All states of a call are
stored together, before the run sees their rows.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.classes import TokenClasses
from counterprobe.digests import DIGEST_SIZE, content_digest, digest_of
from counterprobe.errors import CacheError, ImpossibleState, OracleError
from counterprobe.files import special_kind
from counterprobe.oracles.abilities import AttentionQuery, HistoryQuery, depends_on_order, join
from counterprobe.oracles.checks import check_attention, check_rows
from counterprobe.oracles.codec import (
    Arrays,
    decode_reply,
    encode_reply,
    pack,
    unpack,
)
from counterprobe.oracles.oracle import NUMERICAL_FLOOR, Oracle, OracleInfo, Wrapper
from counterprobe.oracles.query import Query, Readouts, Reply
from counterprobe.rows import ClassedRows, to_numpy
from counterprobe.states import MASK

__all__ = ["Cache", "as_bytes", "cached_row_error"]

logger = logging.getLogger("counterprobe")

# "CPRC" in the header's application id tells our files from other SQLite files.
APPLICATION_ID = 0x43505243
LAYOUT = """
CREATE TABLE facts (name TEXT PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE replies (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, content BLOB);
CREATE INDEX kept ON replies (id) WHERE content IS NOT NULL;
PRAGMA application_id = 0x43505243
"""
# Seconds that one writer waits for another.
PATIENCE = 60.0
# Keys in one SELECT, and replies that make room at a time.
AT_ONCE = 512
# Stored states by which an oracle is recognised, and rows of each, at most.
MOST_EXAMPLES = 3
MOST_EXAMPLE_ROWS = 64
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


# The reply to one state: rows as ``encode_reply`` made them, or a refusal.
Stored = tuple[dict[str, Any], Arrays]


class Cache(Wrapper):
    """An oracle whose replies are looked up in a file first, and stored there.

    Parameters
    ----------
    oracle : Oracle
    path : str or path
        An SQLite file on a local disk; created if it is not there. That of another model is
        refused. Processes may share it.
    limit : int or str
        Bytes that the file may take, such as ``"1 GiB"``; the oldest replies make room for new
        ones, and are asked for again.

    Attributes
    ----------
    num_hits, num_misses : int
        Evaluations answered from the file, and by the oracle.
    num_again : int
        Those of ``num_misses`` whose reply was stored once: it had made room, or was damaged.
    num_recognising : int
        Evaluations by which the oracle was compared with what the file holds. They are no part of
        any run.

    Examples
    --------
    >>> import tempfile, pathlib, counterprobe as cp
    >>> law = cp.families.path(length=40, target_seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for _ in range(2):
    ...         with law.oracle().cached(pathlib.Path(folder, "replies.sqlite")) as oracle:
    ...             batch = cp.sample(oracle, "sequential", seed=1, progress=False)
    ...             print(batch.ledger.evaluations, oracle.num_hits, oracle.num_misses)
    40 0 40
    40 40 0
    """

    def __init__(
        self, oracle: Oracle, path: str | os.PathLike[str], *, limit: int | str = "1 GiB"
    ) -> None:
        super().__init__(oracle)
        self.path = Path(path)
        limit = as_bytes(limit)
        info = self.inner.info
        model = {
            "name": info.name,
            "length": info.length,
            "vocab_size": info.vocab_size,
            "digest": self.inner.digest,
        }
        self._by_order = depends_on_order(self.inner)
        self._file = _File(self.path, limit)
        try:
            self._row_error = self._file.open_for(model, float(info.row_error))
        except BaseException:
            self._file.close()
            raise
        # What this process stores needs no recognising.
        self._is_recognised = not self._file.fact("example 0")
        self._classes: dict[str, TokenClasses] = {}
        # By identity, the object kept with its name so that the identity stays its own.
        self._names: dict[int, tuple[TokenClasses, str]] = {}
        self.num_hits = self.num_misses = self.num_again = self.num_recognising = 0

    @property
    def info(self) -> OracleInfo:
        """What the inner oracle is, with the row error that was declared first.

        A model measures its own row error, never quite the same.
        """
        return replace(self.inner.info, row_error=self._row_error)

    def close(self) -> None:
        """Close the file; what was replied is in it already."""
        self._file.close()

    def __enter__(self) -> Self:
        """Return the oracle."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def ask(self, query: Query) -> Reply:
        """Reply from the file what is there; ask the oracle for the other states."""
        split = _Split.of(query, self._by_order)
        found, damaged = self._found(split)
        for meta, _ in found.values():
            if "refused" in meta:
                raise ImpossibleState(str(meta["refused"]))
        missing = np.flatnonzero([key not in found for key in split.keys])
        if not len(missing):
            reply = self._joined(split, found)
            self.num_hits += 0 if reply is None else len(query.states)
            return self._anew(split) if reply is None else reply
        # A query of which nothing is stored goes on as it came, with what says whose runs it is.
        part = query if len(missing) == len(query.states) else query.part(missing)
        return self._asked(split, part, found, damaged)

    # ----- What is stored ------------------------------------------------------------------

    def _found(self, split: _Split) -> tuple[dict[bytes, Stored], set[bytes]]:
        """Return what is stored of a query, by key, and the keys of what is damaged."""
        rows_of = dict(zip(split.keys, split.rows, strict=True))
        found, lost, damaged = {}, set(), set()
        for key, sealed in self._file.look_up(list(rows_of)):
            lost.add(key)
            try:
                if sealed is not None:
                    found[key] = self._fitting(_opened(key, sealed), len(rows_of[key]))
                    lost.remove(key)
            except CacheError:
                damaged.add(key)
        if damaged:
            logger.warning(
                "%s: %d damaged replies were dropped, and are asked for again",
                self.path, len(damaged),
            )  # fmt: skip
        if found:
            self._recognise()
        self.num_again += sum(key in lost for key in split.keys)
        return found, damaged

    def _fitting(self, content: bytes | None, num_rows: int) -> Stored:
        """Return what was stored for a state of which so many rows are read; refuse all else."""
        meta, arrays = unpack(content or b"")
        shapes = {name: (num_rows, *array.shape[1:]) for name, array in arrays.items()}
        shapes |= {"attention": (self.length, self.length)}
        wrong = any(array.shape != shapes[name] for name, array in arrays.items())
        if "refused" not in meta and (wrong or "masses" not in arrays):
            raise CacheError("a stored reply has rows of another shape")
        return meta, arrays

    def _joined(self, split: _Split, found: Mapping[bytes, Stored]) -> Reply | None:
        """Return the reply to a query of which all is stored; None if no oracle replies so."""
        parts = [found[key] for key in split.keys]
        meta, first = parts[0] if parts else ({}, {})
        if any(one[0] != meta or one[1].keys() != first.keys() for one in parts):
            return None
        order = np.argsort(np.concatenate(split.rows), kind="stable")
        query = split.query
        try:
            arrays = {
                name: np.stack([one[1][name] for one in parts])
                if name == "attention"
                else np.concatenate([one[1][name] for one in parts])[order]
                for name in first
            }
            reply = decode_reply(meta, arrays, query.readouts.position, self._classes)
            self._check(query, reply)
        except (CacheError, OracleError, ValueError):
            return None
        return reply

    # ----- What comes back -----------------------------------------------------------------

    def _asked(
        self, split: _Split, part: Query, found: dict[bytes, Stored], replaced: set[bytes]
    ) -> Reply:
        """Ask for some of the states, or all; store the replies, and return that to all.

        Replies under keys in ``replaced`` are replaced.
        """
        with self._storing_refusal(part):
            reply = self.inner.ask(part)
        self.num_misses += len(part.states)
        if part is not split.query or not self.inner.info.trusted:
            try:
                self._check(part, reply)
            except OracleError:
                if part is split.query:  # left to the run, and not kept
                    return reply
                raise
        self.num_hits += len(split.keys) - len(part.states)
        reply, name = self._with_known_classes(reply)
        encoded = encode_reply(reply, part.readouts.position, name)
        if encoded is None:  # rows of a kind that no file holds
            return reply if part is split.query else self._anew(split)
        asked = split if part is split.query else _Split.of(part, self._by_order)
        new: dict[bytes, Stored] = {}
        for k, key in enumerate(asked.keys):
            if key not in new:
                new[key] = encoded[0], _of_state(encoded[1], k, asked.rows[k])
        kept = self._file.store({key: pack(*one) for key, one in new.items()}, replaced)
        self._keep_example(asked, new)
        if part is split.query and not kept and len(new) == len(asked.keys):
            return reply
        # Of equal states, and of what another process stored meanwhile, the first reply counts.
        with suppress(CacheError):
            new |= {key: unpack(content) for key, content in kept.items()}
        joined = self._joined(split, {**found, **new})
        if joined is None:
            return reply if replaced.issuperset(split.keys) else self._anew(split)
        return joined

    def _anew(self, split: _Split) -> Reply:
        """Ask for a whole query, whatever is stored of it: rows of two kinds cannot be joined.

        Such as rows of two devices.
        """
        self.num_again += len(split.keys)
        return self._asked(split, split.query, {}, set(split.keys))

    @contextmanager
    def _storing_refusal(self, part: Query) -> Iterator[None]:
        """Store that a state is impossible, where it was asked for alone."""
        try:
            yield
        except ImpossibleState as refusal:
            if len(part.states) == 1:
                self.num_misses += 1
                (key,) = _Split.of(part, self._by_order).keys
                self._file.store({key: pack({"refused": str(refusal)}, {})}, {key})
            raise

    def _check(self, query: Query, reply: Reply) -> None:
        """Raise ``OracleError`` for what is no reply to a query, by a run's own checks."""
        check_rows(reply.rows, query.readouts, self.vocab_size, self.name, warn_on_zero=False)
        if isinstance(query, AttentionQuery):
            check_attention(reply.attention, len(query.states), self.length, self.name)

    # ----- Token classes -------------------------------------------------------------------

    def _with_known_classes(self, reply: Reply) -> tuple[Reply, str | None]:
        """Give classed rows the classes of earlier ones, and return the name of those.

        Rows from the file and from the oracle meet in one run, and are joined and compared by
        whether their classes are one object. A stored row has their digest; the oracle has shown
        them when it was recognised, or is asked again.
        """
        rows = reply.rows
        if not isinstance(rows, ClassedRows):
            return reply, None
        given = rows.classes
        if id(given) not in self._names:
            name = content_digest(*(getattr(given, one.name) for one in fields(given)))
            self._names[id(given)] = given, name
        name = self._names[id(given)][1]
        known = self._classes.setdefault(name, given)
        rows = ClassedRows(rows.class_masses, known, rows.positions)
        return Reply(rows, reply.attention), name

    # ----- Whether the oracle is the one whose replies the file holds ----------------------

    def _keep_example(self, split: _Split, new: Mapping[bytes, Stored]) -> None:
        """Store a state with its rows, by which a later process recognises the oracle.

        The first of all, and then some that reveal tokens: laws that differ may well agree while
        everything is masked.
        """
        query, number = split.query, self._file.num_examples
        if number >= MOST_EXAMPLES:
            return
        reveals = (query.states != MASK).any(axis=1) | (number == 0)
        read = [k for k in np.flatnonzero(reveals).tolist() if len(split.rows[k])]
        for k in read[:1]:
            few = split.rows[k][:MOST_EXAMPLE_ROWS]
            meta, arrays = new[split.keys[k]]
            arrays = {name: a[: len(few)] for name, a in arrays.items() if name != "attention"}
            arrays |= {"state": query.states[k], "read": query.readouts.position[few]}
            if isinstance(query, HistoryQuery) and self._by_order:
                arrays["ranks"] = query.ranks[k]
            self._file.keep(f"example {number}", pack(meta, arrays))
            self._file.num_examples += 1

    def _recognise(self) -> None:
        """Compare the oracle with what an earlier process stored; once.

        Names, sizes and weights do not say what code computes, and a function has no weights.
        """
        if self._is_recognised:
            return
        examples = [unpack(content) for content in self._file.examples()]
        revealing = [one for one in examples if (one[1]["state"] != MASK).any()]
        chosen = (revealing or examples)[: 1 if self.inner.digest else None]
        queries, stored = [], []
        for meta, arrays in chosen:
            state, read, ranks = (arrays.pop(name, None) for name in ("state", "read", "ranks"))
            assert state is not None and read is not None
            query = Query(state[None], Readouts.same(1, read))
            if ranks is not None:
                query = HistoryQuery(query.states, query.readouts, ranks[None])
            queries.append(query)
            stored.append((meta, arrays))
        whole = join(queries)
        rows = self._with_known_classes(self.inner.ask(whole))[0].rows
        self.num_recognising += len(queries)
        check_rows(rows, whole.readouts, self.vocab_size, self.name, warn_on_zero=False)
        now, then = to_numpy(rows.dense()).astype(np.float64), []
        for query, (meta, arrays) in zip(queries, stored, strict=True):
            read = query.readouts.position
            known = decode_reply(meta, arrays, read, self._classes, on_host=True).rows
            then.append(to_numpy(known.dense()).astype(np.float64))
        moved = 0.5 * np.abs(now - np.concatenate(then)).sum(axis=1)
        k = int(np.argmax(moved))
        floor = max(self._row_error, float(self.inner.row_error), NUMERICAL_FLOOR)
        if not moved[k] <= floor:
            raise CacheError(
                f"{self.path} holds replies of another model than this {self.name!r}: for a "
                f"stored state the row at position {int(whole.readouts.position[k])} differs by "
                f"{moved[k]:.3g} in total variation, where {floor:.3g} is declared; use the model "
                "it was made with, or name another file"
            )
        self._is_recognised = True


@dataclass(frozen=True, slots=True)
class _Split:
    """A query state by state: the key of each, and which rows are its own."""

    query: Query
    keys: list[bytes]
    rows: list[IntArray]

    @classmethod
    def of(cls, query: Query, by_order: bool) -> _Split:
        """Split a query; the order of commits counts only where rows depend on it."""
        index, position = query.readouts.state_index, query.readouts.position
        order = np.lexsort((position, index))
        ends = np.searchsorted(index[order], np.arange(1, len(query.states)))
        rows = np.split(order, ends)
        states = np.ascontiguousarray(query.states, dtype="<i4")
        position = position.astype("<i8", copy=False)
        is_plain = isinstance(query, HistoryQuery) and not by_order
        keys = [
            digest_of(states[k], position[mine], *(() if is_plain else query.beside(k)))
            for k, mine in enumerate(rows[: len(states)])
        ]
        return cls(query, keys, rows[: len(states)])


def _of_state(arrays: Arrays, state: int, rows: IntArray) -> Arrays:
    return {
        name: array[state] if name == "attention" else array[rows]
        for name, array in arrays.items()
    }


def as_bytes(limit: int | str) -> int:
    """Return a number of bytes, which may be said as ``"512 MiB"``."""
    number, _, unit = str(limit).strip().partition(" ")
    try:
        size = int(float(number) * UNITS[unit or "B"])
    except (KeyError, ValueError, OverflowError):
        size = -1
    if size < 0:
        raise ValueError(f"limit must be bytes, or such as '1 GiB'; got {limit!r}")
    return size


def cached_row_error(path: str | os.PathLike[str]) -> float | None:
    """Return the row error that a cache's model declared; None where there is no cache yet.

    A model that is given it need not measure its own.
    """
    if not Path(path).exists() or not Path(path).stat().st_size:
        return None
    file = _File(Path(path), 0)
    try:
        known = file.model()
        return None if known is None else float(known["row_error"])
    finally:
        file.close()


# ----- The file -------------------------------------------------------------------------------


class _File:
    """The SQLite file of a cache.

    A kill loses nothing that was committed. A loss of power may lose the last replies, and they
    are asked for again: so nothing waits for the disk.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._limit = path, limit
        self._lock = threading.RLock()
        if (kind := special_kind(path)) is not None:  # opening a pipe would wait for ever
            raise CacheError(f"{path} is {kind}; a cache must be a regular file")
        if not path.parent.is_dir():
            raise CacheError(f"cannot write {path}: there is no folder {path.parent}")
        with self._explained():
            self._database = sqlite3.connect(
                path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
        self._database.text_factory = bytes  # where damage made a text of what was none
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise
        self.num_examples = len(self.examples())

    def _prepare(self) -> None:
        with self._writing():
            (identity,) = self._database.execute("PRAGMA application_id").fetchone()
            (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if identity == 0 and tables == 0:
                for statement in LAYOUT.split(";"):
                    self._database.execute(statement)
            elif identity != APPLICATION_ID:
                raise CacheError(_foreign(self._path))
        with self._explained():
            self._database.execute("PRAGMA synchronous = NORMAL")
            # SQLite does not wait for others at this one statement; whoever holds the file now
            # switches it, or another process does the next time.
            with suppress(sqlite3.OperationalError):
                self._database.execute("PRAGMA journal_mode = WAL")

    def open_for(self, model: dict[str, Any], row_error: float) -> float:
        """Refuse the cache of another model; return the row error that its first run declared."""
        self.keep("model", json.dumps({**model, "row_error": row_error}).encode())
        then = self.model()
        assert then is not None
        for name, now in model.items():
            before = then.get(name)
            if before != now and not (name == "digest" and None in (before, now)):
                raise CacheError(
                    f"{self._path} is the cache of another model: its {name} is {before!r}, this "
                    f"model's is {now!r}; name another file"
                )
        return float(then["row_error"])

    def model(self) -> dict[str, Any] | None:
        """Return what is known of the model."""
        content = self.fact("model")
        return None if content is None else dict(json.loads(content))

    def close(self) -> None:
        """Close the file; a second time is nothing new."""
        self._database.close()

    # ----- Facts: the model, and examples -------------------------------------------------

    def keep(self, name: str, content: bytes) -> None:
        """Store a fact; what is there stays."""
        with self._writing():
            self._database.execute(
                "INSERT OR IGNORE INTO facts VALUES (?, ?)",
                (name, _sealed(name.encode(), content)),
            )

    def fact(self, name: str) -> bytes | None:
        """Return a fact; a damaged one is refused, since it says whose replies these are."""
        with self._explained():
            row = self._database.execute(
                "SELECT content FROM facts WHERE name = ?", (name,)
            ).fetchone()
        if row is None:
            return None
        content = _opened(name.encode(), row[0])
        if content is None:
            raise CacheError(_damaged(self._path, f"its {name.split()[0]} is not what was stored"))
        return content

    def examples(self) -> list[bytes]:
        """Return the states by which an oracle is recognised."""
        found = (self.fact(f"example {k}") for k in range(MOST_EXAMPLES))
        return [content for content in found if content is not None]

    # ----- Replies -------------------------------------------------------------------------

    def look_up(self, keys: Sequence[bytes]) -> list[tuple[bytes, object]]:
        """Return the keys that were stored, each with what is sealed there; None if it is gone."""
        found: list[tuple[bytes, object]] = []
        with self._explained():
            for low in range(0, len(keys), AT_ONCE):
                some = keys[low : low + AT_ONCE]
                marks = ",".join("?" * len(some))
                found += self._database.execute(
                    f"SELECT key, content FROM replies WHERE key IN ({marks})", some
                )
        return found

    def store(self, replies: Mapping[bytes, bytes], replaced: set[bytes]) -> dict[bytes, bytes]:
        """Store replies, all or none; return those that somebody else stored before."""
        before: dict[bytes, bytes] = {}
        run = self._database.execute
        with self._writing():
            for key, content in replies.items():
                gone = "" if key in replaced else " AND content IS NULL"
                run(f"DELETE FROM replies WHERE key = ?{gone}", (key,))
                for (sealed,) in run("SELECT content FROM replies WHERE key = ?", (key,)):
                    before[key] = _opened(key, sealed) or content
                if key not in before:
                    new = key, _sealed(key, content)
                    run("INSERT INTO replies (key, content) VALUES (?, ?)", new)
            self._make_room()
        return before

    def _make_room(self) -> None:
        """Let the oldest replies go while the file is too large."""
        while self._size() > self._limit:
            dropped = self._database.execute(
                "UPDATE replies SET content = NULL WHERE id IN (SELECT id FROM replies WHERE "
                "content IS NOT NULL ORDER BY id LIMIT ?)",
                (AT_ONCE // 16,),
            )
            if not dropped.rowcount:
                self._database.execute("DELETE FROM replies WHERE content IS NULL")
                return

    def _size(self) -> int:
        """Return the bytes that the file's pages take, those that are free left out."""
        pages, free, size = (
            int(self._database.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    # ----- Around SQLite -------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Do several things, or nothing."""
        with self._explained():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Let one thread at a time, and turn SQLite's errors into ours."""
        with self._lock:
            try:
                yield
            except (sqlite3.Error, UnicodeDecodeError) as problem:  # a message may quote anything
                said = " ".join(str(problem).split())[:200]
                code = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
                if code == sqlite3.SQLITE_NOTADB:
                    raise CacheError(_foreign(self._path)) from problem
                if code == sqlite3.SQLITE_CORRUPT:
                    raise CacheError(_damaged(self._path, said)) from problem
                raise CacheError(f"cannot use the cache {self._path}: {said}") from problem


def _sealed(name: bytes, content: bytes) -> bytes:
    """Return content with a checksum of it, and of what it is stored under."""
    return digest_of((name, content)) + content


def _opened(name: bytes, sealed: object) -> bytes | None:
    """Return what was sealed; None if it, or its name, was changed since."""
    if not isinstance(sealed, bytes):
        return None
    content = sealed[DIGEST_SIZE:]
    return content if digest_of((name, content)) == sealed[:DIGEST_SIZE] else None


def _foreign(path: Path) -> str:
    return f"{path} is not a cache of replies; name another file"


def _damaged(path: Path, problem: str) -> str:
    return f"{path} is damaged ({problem}); put back a copy of it, or name another file"
