"""Runs that survive their process: every reply is logged, and a later process replays the log.

A run is determined by its seeds and by what the oracle replied. So nothing of a run itself is
saved: :class:`Log` writes every reply down, and on resuming the sampler starts again from its
seeds, is charged the same, and gets the replies it got then, as long as it asks what it asked
then. Where the log ends it goes on with the oracle, which sees no query twice but one, by which it
is recognised. Queries are told apart by a digest of everything asked, in order.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from counterprobe.arguments import whole_number
from counterprobe.classes import TokenClasses
from counterprobe.digests import DIGEST_SIZE
from counterprobe.errors import (
    CheckpointError,
    ImpossibleState,
    OracleError,
    StructureError,
)
from counterprobe.oracles.abilities import AttentionQuery, HistoryQuery
from counterprobe.oracles.checks import check_attention, check_rows
from counterprobe.oracles.codec import (
    decode_classes,
    decode_reply,
    encode_classes,
    encode_reply,
    pack,
    unpack,
)
from counterprobe.oracles.oracle import NUMERICAL_FLOOR, About, Oracle, OracleInfo, Wrapper
from counterprobe.oracles.query import Query, Reply
from counterprobe.oracles.reply_file import CONTENT, Kind, ReplyFile
from counterprobe.plain import plain
from counterprobe.rows import ClassedRows, Rows, to_numpy
from counterprobe.states import MASK, fingerprint
from counterprobe.streams import STREAMS_VERSION

__all__ = ["MOST_BYTES", "Log"]

logger = logging.getLogger("counterprobe")

# Bytes of replies that are kept between two commits: the rest of a larger stage of probes is
# asked for again.
MOST_BYTES = 1 << 30


class Log(Wrapper):
    """An oracle whose replies are in a file, or go there; open while a run goes on.

    Parameters
    ----------
    oracle : Oracle
    path : str or path
        The file; created if it is not there. One of another oracle or run is refused.
    most_bytes : int
        Of the replies that are kept between two commits.

    Attributes
    ----------
    num_replayed, num_asked : int
        Evaluations answered from the file, and by the oracle.
    num_again : int
        Those among ``num_asked`` that an earlier process had paid for: their replies were too
        large to keep, or no rows.
    num_recognising : int
        Evaluations, one at most, by which the oracle was compared with the file; beside all of
        these, and no part of the run.
    num_lives : int
        Processes that have worked on this run, this one included.

    Examples
    --------
    >>> import tempfile, pathlib, counterprobe as cp
    >>> law = cp.families.path(length=40, target_seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for life in range(2):
    ...         oracle = law.oracle().logged(pathlib.Path(folder, "run.log"))
    ...         batch = cp.sample(oracle, "sequential", seed=1, progress=False)
    ...         print(batch.ledger.evaluations, oracle.num_replayed, oracle.num_asked)
    40 0 40
    40 40 0
    """

    def __init__(
        self, oracle: Oracle, path: str | os.PathLike[str], *, most_bytes: int = MOST_BYTES
    ) -> None:
        super().__init__(oracle)
        self.path = Path(path)
        self._most_bytes = whole_number("most_bytes", most_bytes)
        self._file: ReplyFile | None = None
        self._found: tuple[Kind, bytes] | None = None
        self._is_replaying = False
        self.num_replayed = self.num_asked = self.num_again = 0
        self.num_recognising = 0
        self.num_lives = 0

    @property
    def info(self) -> OracleInfo:
        """What the inner oracle is, with the row error that it declared when the run began.

        A model measures its own row error, never quite the same. What is replayed is asked for
        one by one.
        """
        info = self.inner.info
        if self._file is None:
            return info
        ahead = 1 if self._is_replaying else info.ahead
        return replace(info, row_error=self._file.facts["row_error"], ahead=ahead)

    @contextmanager
    def running(self, about: About = None) -> Iterator[Self]:
        """Open the file for one run, or go on with the run that it holds.

        Parameters
        ----------
        about : mapping, optional
            What determines the run: sampler, settings, seeds, context. All of it must be the same
            when the run is resumed.
        """
        if self._file is not None:  # by a caller, for whose run this is a part
            yield self
            return
        info = self.inner.info
        run = {
            "oracle": info.name,
            "length": int(info.length),
            "vocab_size": int(info.vocab_size),
            "streams": STREAMS_VERSION,
            **plain((about() if callable(about) else about) or {}, digest_arrays=True),
            # Last: where something plainer differs too, that is what is said.
            CONTENT: self.inner.digest,
        }
        self._open(ReplyFile(self.path, run, {"row_error": float(info.row_error)}))
        assert self._file is not None
        try:
            with self.inner.running(about):
                yield self
            self._recognise()  # a run may end before its log does
        except StructureError:
            if self.num_lives == 1:  # nothing was drawn: a log would only stand in the way
                self.path.unlink(missing_ok=True)
            raise
        finally:
            self._file.close()
            self._file = None
            if self.num_again:
                logger.warning(
                    "%s: %d evaluations were made again, and paid again: their replies were too "
                    "large to be logged",
                    self.path, self.num_again,
                )  # fmt: skip

    def ask(self, query: Query) -> Reply:
        """Reply from the file, or from the oracle and into the file."""
        if self._file is None:
            raise ValueError(
                f"{self.path} is not open: hand the oracle to sample, infill or discover, or ask "
                "inside 'with oracle.running(about):'"
            )
        if isinstance(query, (HistoryQuery, AttentionQuery)):  # a commit, or what begins a run
            self._num_bytes = 0
        self._asker = threading.get_ident()
        # A record stays the next one until its query was answered: whoever retries asks again.
        self._found = self._found or self._next_record()
        if self._found is not None:
            try:
                reply = self._replayed(query, *self._found)
            except ImpossibleState:  # an answer, too
                self._found = None
                raise
            self._found = None
            return reply
        self._recognise()
        reply = self._asked(query)
        if reply.is_late:
            return Reply.later(lambda: self._kept(query, reply), reply.drop)
        return self._kept(query, reply)

    # ----- Inside --------------------------------------------------------------------------

    def _open(self, file: ReplyFile) -> None:
        if file.is_begun_anew:
            logger.warning(
                "%s: it ended inside its first record and holds no reply; the run starts from its "
                "beginning",
                file.path,
            )
        elif file.num_cut:
            logger.warning(
                "%s: its last %d bytes are no whole record and were cut off; the run goes on from "
                "the last whole reply",
                file.path, file.num_cut,
            )  # fmt: skip
        self._file = file
        self._is_replaying = True
        self._found = None
        self._asker = threading.get_ident()
        self._num_records = self._num_bytes = 0
        self._classes: list[TokenClasses] = []
        # By identity, the object kept with its number so that the identity stays its own.
        self._numbers: dict[int, tuple[TokenClasses, int]] = {}
        self._example: tuple[Query, Rows] | None = None
        self._is_recognised = False
        self.num_replayed = self.num_asked = self.num_again = self.num_recognising = 0
        self.num_lives = file.num_lives

    def _next_record(self) -> tuple[Kind, bytes] | None:
        """Return the next record that answers a query; None at the end of the file."""
        assert self._file is not None
        while (record := self._file.next()) is not None:
            kind, content = record
            if kind is Kind.CLASSES:
                classes = decode_classes(content)
                if (classes.length, classes.vocab_size) != (self.length, self.vocab_size):
                    raise CheckpointError(f"{self.path} has token classes of another size")
                self._classes.append(classes)
            elif kind in (Kind.REPLY, Kind.NOT_KEPT):
                self._num_records += 1
                return record
        self._is_replaying = False
        return None

    def _replayed(self, query: Query, kind: Kind, content: bytes) -> Reply:
        """Return the reply that a record holds, if it is one to this query."""
        if content[:DIGEST_SIZE] != query.digest:
            raise CheckpointError(
                f"{self.path}: call {self._num_records} of this run asks something else than it "
                "did when it was logged; was it made by another version, or with another sampler, "
                "seed or context? Start anew with another file"
            )
        if kind is Kind.NOT_KEPT:
            reply = self._with_known_classes(self.inner.ask(query).settle())
            self.num_asked += len(query.states)
            self.num_again += len(query.states)
            return reply
        meta, arrays = unpack(content[DIGEST_SIZE:])
        reply = decode_reply(meta, arrays, query.readouts.position, self._classes)
        if not self._is_sound(query, reply):  # also of a trusted oracle: the file is not it
            raise CheckpointError(
                f"{self.path}: the reply to call {self._num_records} is no rows of this oracle; "
                "start anew with another file"
            )
        self._note_example(query, reply)
        self._num_bytes += len(content)
        self.num_replayed += len(query.states)
        return reply

    def _asked(self, query: Query) -> Reply:
        try:
            return self.inner.ask(query)
        except ImpossibleState:
            self._refused(query)
            raise

    def _refused(self, query: Query) -> None:
        """Note an impossible state: the run may go on, and the next life is to be refused too."""
        assert self._file is not None
        self._file.append(Kind.NOT_KEPT, query.digest)

    def _kept(self, query: Query, reply: Reply) -> Reply:
        """Write a reply down; one that breaks the contract is left to the run, and not kept."""
        try:
            reply = reply.settle()
        except ImpossibleState:
            self._refused(query)
            raise
        if self._file is None or threading.get_ident() != self._asker:
            return reply  # an attempt that somebody stopped waiting for, and made again
        if self.inner.info.trusted or self._is_sound(query, reply):
            reply = self._with_known_classes(reply)
            number = self._numbers.get(id(_classes_of(reply)), (None, None))[1]
            encoded = encode_reply(reply, query.readouts.position, number)
            size = 0 if encoded is None else sum(array.nbytes for array in encoded[1].values())
            self._num_bytes += size
            if encoded is not None and self._num_bytes <= self._most_bytes:
                self._file.append(Kind.REPLY, query.digest + pack(*encoded))
            else:
                self._file.append(Kind.NOT_KEPT, query.digest)
        else:
            self._file.append(Kind.NOT_KEPT, query.digest)
        self.num_asked += len(query.states)  # when it is in the file: what is said is kept
        return reply

    def _is_sound(self, query: Query, reply: Reply) -> bool:
        """Whether a reply is what the query asks for, by a run's own checks."""
        if (reply.attention is not None) != isinstance(query, AttentionQuery):
            return False
        try:
            check_rows(reply.rows, query.readouts, self.vocab_size, self.name, warn_on_zero=False)
            if reply.attention is not None:
                check_attention(reply.attention, len(query.states), self.length, self.name)
        except OracleError:
            return False
        return True

    # ----- Token classes -------------------------------------------------------------------

    def _with_known_classes(self, reply: Reply) -> Reply:
        """Give classed rows the classes that the file has: rows of equal classes must share them.

        Rows from the file and rows from the oracle meet in one run, and are joined and compared by
        whether their classes are one object.
        """
        classes = _classes_of(reply)
        if classes is None:
            return reply
        if id(classes) not in self._numbers:
            self._numbers[id(classes)] = classes, self._number(classes)
        number = self._numbers[id(classes)][1]
        known = self._classes[number]
        self._numbers[id(known)] = known, number
        rows = reply.rows
        assert isinstance(rows, ClassedRows)
        return Reply(ClassedRows(rows.class_masses, known, rows.positions), reply.attention)

    def _number(self, classes: TokenClasses) -> int:
        """Return the number of token classes in the file; new ones are written there."""
        for number, known in enumerate(self._classes):
            if all(
                np.array_equal(getattr(known, name), getattr(classes, name))
                for name in classes.__dataclass_fields__
            ):
                return number
        assert self._file is not None
        self._classes.append(classes)
        self._file.append(Kind.CLASSES, encode_classes(classes))
        return len(self._classes) - 1

    # ----- Whether the oracle is the one whose replies the file holds ------------------------

    def _note_example(self, query: Query, reply: Reply) -> None:
        """Look at a logged query; ask one state of it again if it tells oracles apart.

        An oracle's name and size do not tell one law, or one set of weights, from another. The
        first query whose state reveals a token does, since laws that differ may well agree while
        everything is masked; a file without one is judged by its first.
        """
        if self._is_recognised or not len(query.readouts):
            return
        example = query.example()
        reveals = bool((example.states != MASK).any())
        if self._example is None or reveals:
            self._example = example, reply.rows.take(query.example_rows)
        if reveals:
            self._recognise()

    def _recognise(self) -> None:
        """Compare the oracle with the file now, if there is something to compare, and once."""
        if self._is_recognised or self._example is None:
            return
        query, then = self._example
        rows = self.inner.ask(query).rows
        self._is_recognised, self._example = True, None
        self.num_recognising += 1
        check_rows(rows, query.readouts, self.vocab_size, self.name, warn_on_zero=False)
        now, known = (to_numpy(one.dense()).astype(np.float64) for one in (rows, then))
        moved = 0.5 * np.abs(now - known).sum(axis=1)
        k = int(np.argmax(moved))
        floor = max(self.row_error, float(self.inner.row_error), NUMERICAL_FLOOR)
        if not moved[k] <= floor:
            raise CheckpointError(
                f"{self.path} holds replies of another oracle than this {self.name!r}: for the "
                f"state of fingerprint {int(fingerprint(query.states)[0]):016x} the row at "
                f"position {int(query.readouts.position[k])} differs by {moved[k]:.3g} in total "
                f"variation, where {floor:.3g} is declared; resume with the oracle it was begun "
                "with, or name another file"
            )


def _classes_of(reply: Reply) -> TokenClasses | None:
    rows = reply.rows
    return rows.classes if isinstance(rows, ClassedRows) else None
