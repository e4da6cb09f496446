"""Runs that survive their process: every reply is logged, and a later process replays the log.

A run is determined by its seeds and by what the oracle replied. So nothing of a run itself is
saved: :class:`LoggedOracle` writes every reply down, and on resuming the sampler starts again from
its seeds, goes through the same door, is charged the same, and gets the replies it got then, as
long as it asks what it asked then. Where the log ends it goes on with the oracle, which sees no
question twice but one, by which it is recognised. Calls are told apart by a digest of everything
asked, in order.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np

from counterprobe.arguments import whole_number
from counterprobe.arrays import StateArray
from counterprobe.checks import check_attention, check_rows
from counterprobe.classes import TokenClasses
from counterprobe.errors import (
    CheckpointError,
    ImpossibleState,
    OracleError,
    StructureError,
)
from counterprobe.oracle import Oracle, Readouts, StreamingOracle, require_oracle
from counterprobe.rows import ClassedRows, Rows
from counterprobe.run.encoding import (
    decode_classes,
    decode_reply,
    encode_classes,
    encode_reply,
    pack,
    unpack,
)
from counterprobe.run.recognition import Recognition
from counterprobe.run.replies import CONTENT, Kind, ReplyLog
from counterprobe.streams import STREAMS_VERSION
from counterprobe.wrapping import (
    DIGEST_SIZE,
    Around,
    Question,
    Reply,
    name_of,
    row_question,
)

__all__ = ["LARGEST_STAGE", "LoggedOracle", "checkpointed", "plain_settings"]

logger = logging.getLogger("counterprobe")
Requests = Iterable[tuple[StateArray, Readouts]]

# Bytes of replies that are kept of one stage: the rest of a larger one is asked for again.
LARGEST_STAGE = 1 << 30


@contextmanager
def checkpointed(
    oracle: Oracle,
    path: str | os.PathLike[str],
    about: Mapping[str, Any] | None = None,
    *,
    largest_stage: int = LARGEST_STAGE,
) -> Iterator[LoggedOracle]:
    """Log an oracle's replies while a run goes on, or replay those of an earlier process.

    Parameters
    ----------
    oracle : Oracle
    path : str or path
        The log; created if it is not there. One of another oracle or run is refused.
    about : mapping, optional
        What determines the run: sampler, settings, seeds, context. All of it must be the same when
        the run is resumed.
    largest_stage : int
        Bytes of replies that are kept of one stage.

    Yields
    ------
    LoggedOracle
        To be used in the oracle's place.

    Examples
    --------
    >>> import tempfile, pathlib, counterprobe as cp
    >>> law = cp.families.path(length=40, target_seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for life in range(2):
    ...         log = pathlib.Path(folder, "run.log")
    ...         with cp.checkpointed(law.oracle(), log, {"seed": 1}) as oracle:
    ...             run = cp.Unmasking(oracle)
    ...             result = cp.samplers.Sequential()(run, cp.Streams(1, 2))
    ...         print(result.ledger.total, oracle.num_replayed, oracle.num_asked)
    40 0 40
    40 40 0
    """
    require_oracle(oracle)
    largest_stage = whole_number("largest_stage", largest_stage)
    run = {
        "oracle": name_of(oracle),
        "length": int(oracle.length),
        "vocab_size": int(oracle.vocab_size),
        "streams": STREAMS_VERSION,
        **plain_settings(about or {}),
        # Last: where something plainer differs too, that is what is said.
        CONTENT: getattr(oracle, "content_digest", None),
    }
    # A model measures its own row error, never quite the same: a run keeps the one it began with.
    log = ReplyLog(path, run, {"row_error": float(oracle.row_error)})
    if log.is_begun_anew:
        logger.warning(
            "%s: it ended inside its first record and holds no reply; the run starts from its "
            "beginning",
            log.path,
        )
    elif log.num_cut:
        logger.warning(
            "%s: its last %d bytes are no whole record and were cut off; the run goes on from the "
            "last whole reply",
            log.path, log.num_cut,
        )  # fmt: skip
    logged = LoggedOracle(oracle, log, largest_stage=largest_stage)
    try:
        yield logged
        logged.recognition.settle()  # a run may end before its log does
    except StructureError:
        if logged.num_lives == 1:  # nothing was drawn: a log would only stand in the way
            log.path.unlink(missing_ok=True)
        raise
    finally:
        log.close()
        if logged.num_again:
            logger.warning(
                "%s: %d submissions were made again, and paid again: their replies were too large "
                "to be logged",
                log.path, logged.num_again,
            )  # fmt: skip


class LoggedOracle(Around):
    """An oracle whose replies are in a log, or go there.

    Parameters
    ----------
    oracle : Oracle
    log : ReplyLog
    largest_stage : int
        Bytes of replies that are kept of one stage.

    Attributes
    ----------
    num_replayed, num_asked : int
        Submissions answered from the log, and by the oracle.
    num_again : int
        Those among ``num_asked`` that an earlier process had paid for: their replies were too
        large to keep, or no rows.
    recognition : Recognition
        What compares the oracle with the log; its ``num_asked`` are beside all of these.
    """

    stream: Callable[[Requests], Iterator[Rows]]

    def __init__(
        self, oracle: Oracle, log: ReplyLog, *, largest_stage: int = LARGEST_STAGE
    ) -> None:
        super().__init__(oracle)
        self._log = log
        self._largest_stage = largest_stage
        self._stage_size = 0
        self._classes: list[TokenClasses] = []
        # By identity, the object kept with its number so that the identity stays its own.
        self._numbers: dict[int, tuple[TokenClasses, int]] = {}
        self._num_records = 0
        self._peeked: tuple[Kind, bytes] | None = None
        self.num_replayed = self.num_asked = self.num_again = 0
        self.recognition = Recognition(oracle, self.row_error, str(log.path))
        if isinstance(oracle, StreamingOracle):
            self.stream = self._streamed

    @property
    def row_error(self) -> float:
        """Total-variation radius of its rows, as it was declared when the log was begun."""
        return self._log.facts["row_error"]

    @property
    def num_lives(self) -> int:
        """Processes that have worked on this run, this one included."""
        return self._log.num_lives

    def stage_opened(self) -> None:
        """Hear that a stage begins: its replies are counted from here."""
        self._stage_size = 0

    def answer(self, question: Question, ask: Callable[[], Reply]) -> Reply:
        """Reply from the log, or from the oracle and into the log."""
        found = self._next_reply()
        if found is None:
            self.recognition.settle()
            try:
                reply = ask()
            except ImpossibleState:  # the run may go on: the next life is to be refused here too
                self._log.append(Kind.NOT_KEPT, question.digest)
                raise
            kept = self._keep(question, reply)
            self.num_asked += question.num_states  # when it is in the file: what is said is kept
            return kept
        kind, content = found
        self._num_records += 1
        if content[:DIGEST_SIZE] != question.digest:
            raise CheckpointError(
                f"{self._log.path}: call {self._num_records} of this run asks something else than "
                "it did when it was logged; was it made by another version, or with another "
                "sampler, seed or context? Start anew with another file"
            )
        self._stage_size += len(content)
        if kind is Kind.NOT_KEPT:
            self.num_asked += question.num_states
            self.num_again += question.num_states
            return self._with_known_classes(ask())
        self.num_replayed += question.num_states
        meta, arrays = unpack(content[DIGEST_SIZE:])
        reply = decode_reply(meta, arrays, question.positions, self._classes)
        if not self._is_sound(question, reply):  # also of a trusted oracle: the file is not it
            raise CheckpointError(
                f"{self._log.path}: the reply to call {self._num_records} is no rows of this "
                "oracle; start anew with another file"
            )
        self.recognition.see(question, reply)
        return reply

    # ----- Inside --------------------------------------------------------------------------

    def _streamed(self, requests: Requests) -> Iterator[Rows]:
        """Answer many requests: from the log one by one, then as the oracle streams them."""
        reading = iter(requests)
        for states, readouts in reading:
            self._peeked = self._next_reply()
            if self._peeked is None:
                yield from self._streamed_live(chain([(states, readouts)], reading))
                return
            yield self.rows(states, readouts)

    def _streamed_live(self, requests: Requests) -> Iterator[Rows]:
        assert isinstance(self.inner, StreamingOracle)
        self.recognition.settle()
        asked: deque[tuple[StateArray, Readouts]] = deque()

        def handed() -> Iterator[tuple[StateArray, Readouts]]:
            for request in requests:
                asked.append(request)
                yield request

        try:
            for rows in self.inner.stream(handed()):
                question = row_question(*asked.popleft())
                kept = self._keep(question, rows)
                self.num_asked += question.num_states
                assert isinstance(kept, Rows)
                yield kept
        except ImpossibleState:  # of one of them, which asking in order finds and writes down
            for request in asked:
                yield self.rows(*request)
            raise

    def _next_reply(self) -> tuple[Kind, bytes] | None:
        """Return the next record that answers a question; None at the end of the log."""
        if self._peeked is not None:
            peeked, self._peeked = self._peeked, None
            return peeked
        while (record := self._log.next()) is not None:
            kind, content = record
            if kind is Kind.CLASSES:
                classes = decode_classes(content)
                if (classes.length, classes.vocab_size) != (self.length, self.vocab_size):
                    raise CheckpointError(f"{self._log.path} has token classes of another size")
                self._classes.append(classes)
            elif kind in (Kind.REPLY, Kind.NOT_KEPT):
                return record
        return None

    def _keep(self, question: Question, reply: Reply) -> Reply:
        """Write a reply down; one that breaks the contract is left to the door, and not kept."""
        if not (self.inner.trusted or self._is_sound(question, reply)):
            self._log.append(Kind.NOT_KEPT, question.digest)
            return reply
        reply = self._with_known_classes(reply)
        number = self._numbers.get(id(_classes_of(reply)), (None, None))[1]
        encoded = encode_reply(reply, question.positions, number)
        size = 0 if encoded is None else sum(array.nbytes for array in encoded[1].values())
        if encoded is None or self._stage_size + size > self._largest_stage:
            self._log.append(Kind.NOT_KEPT, question.digest)
        else:
            self._log.append(Kind.REPLY, question.digest + pack(*encoded))
        self._stage_size += size
        return reply

    def _is_sound(self, question: Question, reply: Reply) -> bool:
        """Whether a reply is what the question asks for, by the door's own checks."""
        if isinstance(reply, tuple) != question.has_attention:
            return False
        rows = reply[0] if isinstance(reply, tuple) else reply
        asked = Readouts(np.zeros(len(question.positions), dtype=np.int64), question.positions)
        try:
            check_rows(rows, asked, self.vocab_size, self.name, warn_on_zero=False)
            if isinstance(reply, tuple):
                check_attention(reply[1], question.num_states, self.length, self.name)
        except OracleError:
            return False
        return True

    def _with_known_classes(self, reply: Reply) -> Reply:
        """Give classed rows the classes that the log has: rows of equal classes must share them.

        Rows from the log and rows from the oracle meet in one run, and are joined and compared by
        whether their classes are one object.
        """
        classes = _classes_of(reply)
        if classes is None:
            return reply
        if id(classes) not in self._numbers:
            self._numbers[id(classes)] = classes, self._number(classes)
        known = self._classes[self._numbers[id(classes)][1]]
        if known is classes:
            return reply
        self._numbers.setdefault(id(known), (known, self._numbers[id(classes)][1]))
        rows, *rest = reply if isinstance(reply, tuple) else (reply,)
        assert isinstance(rows, ClassedRows)
        same = ClassedRows(rows.class_masses, known, rows.positions)
        return (same, rest[0]) if rest else same

    def _number(self, classes: TokenClasses) -> int:
        """Return the number of token classes in the log; new ones are written there."""
        for number, known in enumerate(self._classes):
            if all(
                np.array_equal(getattr(known, name), getattr(classes, name))
                for name in classes.__dataclass_fields__
            ):
                return number
        self._classes.append(classes)
        self._log.append(Kind.CLASSES, encode_classes(classes))
        return len(self._classes) - 1


def _classes_of(reply: Reply) -> TokenClasses | None:
    rows = reply[0] if isinstance(reply, tuple) else reply
    return rows.classes if isinstance(rows, ClassedRows) else None


def plain_settings(value: Any) -> Any:
    """Turn settings into what JSON has; large arrays become digests, other objects their names."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        digest = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
        return f"array {value.dtype.str} {value.shape} {digest}"
    if isinstance(value, Mapping):
        return {str(key): plain_settings(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain_settings(item) for item in value]
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text
