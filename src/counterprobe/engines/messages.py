"""What travels between a sharded oracle and its replicas: micro-batches there, rows back.

Rows come back bit for bit, by the codec that logs use. Class maps are large and the same in every
reply, so a replica sends one only while the other side does not know its digest; there, all rows
of one map share one object, as rows of one oracle do. Torch tensors stay in the host's memory:
they lose their device, never a bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import IntArray, StateArray
from counterprobe.classes import TokenClasses
from counterprobe.digests import digest_of
from counterprobe.engines.outcomes import Job
from counterprobe.errors import OracleError
from counterprobe.oracles import Oracle, OracleInfo, Readouts, Reply, as_oracle, depends_on_order
from counterprobe.oracles.codec import decode_reply, encode_reply
from counterprobe.rows import ClassedRows, Rows
from counterprobe.tempered import TemperedRows

__all__ = ["Batch", "Declared", "MakeOracle", "Message", "RowReader", "make_replica"]

MakeOracle = Callable[[], Oracle]


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: some states of a request, what to read, and class maps that are known."""

    states: StateArray
    readouts: Readouts
    known: frozenset[str]


@dataclass(frozen=True, slots=True)
class Message:
    """Rows on their way.

    Attributes
    ----------
    meta, arrays
        As ``encode_reply`` made them.
    kind : type
        Of the rows, or of those of temperature 1.
    classes : TokenClasses or None
        Their class map, where the other side does not know it.
    whole : Rows or None
        The rows themselves, where they are of a kind that is not encoded.
    """

    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    kind: type[Any]
    classes: TokenClasses | None = None
    whole: Rows | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """What the oracle of a replica is."""

    info: OracleInfo
    digest: str | None
    template: Any
    num_evaluated: int

    @classmethod
    def of(cls, oracle: Oracle) -> Declared:
        """Read an oracle's declarations."""
        info = oracle.info
        if depends_on_order(oracle):
            raise OracleError(
                f"oracle {info.name!r} depends on the order of commits, which replicas do not "
                "share; shard its by_index() instead"
            )
        return cls(
            replace(info, length=int(info.length), vocab_size=int(info.vocab_size)),
            oracle.digest,
            getattr(oracle, "template", None),
            int(getattr(oracle, "num_evaluated", 0)),
        )

    @property
    def described(self) -> str:
        """What tells it from others, for messages."""
        content = "" if self.digest is None else f", content {self.digest}"
        info = self.info
        return f"{info.name!r} with N = {info.length}, V = {info.vocab_size}{content}"

    def same_law(self, other: Declared) -> bool:
        """Whether two declarations can be those of one oracle."""
        if None not in (self.digest, other.digest) and self.digest != other.digest:
            return False
        return all(
            getattr(self.info, name) == getattr(other.info, name)
            for name in ("name", "length", "vocab_size", "trusted")
        )


class _Replica:
    """An oracle in a worker."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self.declared = Declared.of(oracle)
        self._digests: dict[int, tuple[TokenClasses, str]] = {}

    def __call__(self, batch: Batch) -> Message:
        """Answer a micro-batch; arrays that came by shared memory are read-only, so copied."""
        readouts = batch.readouts
        mine = Readouts(
            _writeable(readouts.state_index),
            _writeable(readouts.position),
            None if readouts.shared is None else _writeable(readouts.shared),
        )
        rows = self._oracle.rows(_writeable(batch.states), mine)
        plain = rows.plain if isinstance(rows, TemperedRows) else rows
        classes, digest = None, None
        if isinstance(plain, ClassedRows):
            digest = self._digest(plain.classes)
            classes = None if digest in batch.known else plain.classes
        encoded = encode_reply(Reply(rows), mine.position, digest)
        if encoded is None:
            return Message({}, {}, type(plain), whole=rows)
        return Message(*encoded, type(plain), classes)

    def _digest(self, classes: TokenClasses) -> str:
        """Return what tells class maps apart; computed once for each."""
        found = self._digests.get(id(classes))
        if found is None:
            digest = digest_of(*(getattr(classes, part.name) for part in fields(classes)))
            found = self._digests[id(classes)] = classes, digest.hex()
        return found[1]


def make_replica(make: MakeOracle) -> Job:
    """Make the job of a worker that answers for an oracle."""
    return _Replica(as_oracle(make()))


class RowReader:
    """Puts rows together again; replies of all replicas share their class maps here."""

    def __init__(self) -> None:
        self._classes: dict[str, TokenClasses] = {}

    @property
    def known(self) -> frozenset[str]:
        """Digests of the class maps that need not be sent again."""
        return frozenset(self._classes)

    def read(self, reply: Message, readouts: Readouts) -> Rows:
        """Return the rows of a reply to these readouts."""
        if reply.whole is not None:
            return reply.whole
        if reply.classes is not None and reply.meta["classes"] not in self._classes:
            # Built anew: unpickled arrays are writeable, for which no kernel is compiled.
            self._classes[reply.meta["classes"]] = replace(reply.classes)
        arrays = {name: _writeable(array) for name, array in reply.arrays.items()}
        return decode_reply(
            reply.meta, arrays, readouts.position, self._classes, kind=reply.kind, on_host=True
        ).rows


def _writeable(array: Any) -> NDArray[Any]:
    """Return an array that kernels take: a copy of one that is read-only."""
    found: NDArray[Any] = np.asarray(array)
    return found if found.flags.writeable else found.copy()


def split(num_states: int, readouts: Readouts, size: int) -> list[tuple[int, int, IntArray]]:
    """Cut a request at multiples of ``size``: first state, last, and the rows that are theirs."""
    bounds = np.arange(0, max(1, num_states), size)
    is_sorted = bool((readouts.state_index[1:] >= readouts.state_index[:-1]).all())
    order = (
        np.arange(len(readouts)) if is_sorted else np.argsort(readouts.state_index, kind="stable")
    )
    starts = np.searchsorted(readouts.state_index[order], [*bounds, num_states])
    return [
        (int(low), min(int(low) + size, num_states), order[first:last])
        for low, first, last in zip(bounds, starts[:-1], starts[1:], strict=True)
    ]
