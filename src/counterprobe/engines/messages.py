"""What travels between a sharded oracle and its replicas: micro-batches there, rows back.

Rows come back bit for bit. Class maps are large and the same in every reply, so a replica sends
one only while the other side does not know its digest; there, all rows of one map share one
object, as rows of one oracle do. Torch tensors travel as bytes in the host's memory: they lose
their device, never a bit.
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
from counterprobe.extras import load_extra
from counterprobe.oracles import Oracle, OracleInfo, Readouts, as_oracle
from counterprobe.rows import ClassedRows, DenseRows, Rows
from counterprobe.tempered import TemperedRows

__all__ = ["Batch", "Declared", "MakeOracle", "Message", "RowReader", "make_replica"]

MakeOracle = Callable[[], Oracle]


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: some states of a request, what to read, and class maps that are known."""

    states: StateArray
    readouts: Readouts
    known: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Message:
    """Rows on their way: ``kind`` says how to put them together again."""

    kind: str
    masses: Any
    digest: bytes = b""
    classes: TokenClasses | None = None


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
        if info.depends_on_order:
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
        self._digests: dict[int, tuple[TokenClasses, bytes]] = {}

    def __call__(self, batch: Batch) -> Message:
        """Answer a micro-batch; arrays that came by shared memory are read-only, so copied."""
        readouts = batch.readouts
        mine = Readouts(
            _writeable(readouts.state_index),
            _writeable(readouts.position),
            None if readouts.shared is None else _writeable(readouts.shared),
        )
        rows = self._oracle.rows(_writeable(batch.states), mine)
        if isinstance(rows, TemperedRows):  # those of temperature 1 determine them
            return Message("tempered", (rows.temperature, self._message(rows.plain, mine, batch)))
        return self._message(rows, mine, batch)

    def _message(self, rows: Rows, mine: Readouts, batch: Batch) -> Message:
        if type(rows) is ClassedRows and np.array_equal(rows.positions, mine.position):
            digest = self._digest(rows.classes)
            classes = None if digest in batch.known else rows.classes
            return Message("classed", rows.class_masses, digest, classes)
        if type(rows) is DenseRows and isinstance(rows.probabilities, np.ndarray):
            return Message("dense", rows.probabilities)
        if _is_torch(rows):
            tensor = rows.masses.detach().cpu().contiguous()
            raw = tensor.view(load_extra("torch", "torch", "a torch model").uint8).numpy()
            return Message("torch", (type(rows), str(tensor.dtype).removeprefix("torch."), raw))
        return Message("whole", rows)

    def _digest(self, classes: TokenClasses) -> bytes:
        """Return what tells class maps apart; computed once for each."""
        found = self._digests.get(id(classes))
        if found is None:
            digest = digest_of(*(getattr(classes, part.name) for part in fields(classes)))
            found = self._digests[id(classes)] = classes, digest
        return found[1]


def make_replica(make: MakeOracle) -> Job:
    """Make the job of a worker that answers for an oracle."""
    return _Replica(as_oracle(make()))


class RowReader:
    """Puts rows together again; replies of all replicas share their class maps here."""

    def __init__(self) -> None:
        self._classes: dict[bytes, TokenClasses] = {}

    @property
    def known(self) -> frozenset[bytes]:
        """Digests of the class maps that need not be sent again."""
        return frozenset(self._classes)

    def read(self, reply: Message, readouts: Readouts) -> Rows:
        """Return the rows of a reply to these readouts."""
        if reply.kind == "tempered":
            temperature, plain = reply.masses
            return TemperedRows.of(self.read(plain, readouts), temperature)
        if reply.kind == "classed":
            if reply.digest not in self._classes:
                assert reply.classes is not None
                # Built anew: unpickled arrays are writeable, for which no kernel is compiled.
                self._classes[reply.digest] = replace(reply.classes)
            classes = self._classes[reply.digest]
            return ClassedRows(_writeable(reply.masses), classes, readouts.position)
        if reply.kind == "dense":
            return DenseRows(_writeable(reply.masses))
        if reply.kind == "torch":
            kind, name, raw = reply.masses
            torch = load_extra("torch", "torch", "rows of a torch model", package="PyTorch")
            tensor = torch.from_numpy(_writeable(raw)).view(getattr(torch, name))
            rows: Rows = kind(tensor)
            return rows
        whole: Rows = reply.masses
        return whole


def _is_torch(rows: Rows) -> bool:
    """Whether rows are a kind of dense rows that holds a torch tensor and nothing else."""
    return (
        isinstance(rows, DenseRows)
        and [part.name for part in fields(rows)] == ["probabilities"]
        and type(rows.probabilities).__module__.partition(".")[0] == "torch"
    )


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
