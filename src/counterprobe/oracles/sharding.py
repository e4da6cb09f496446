"""One oracle, many replicas: the states of a query spread over the workers of an executor.

A query is cut at fixed numbers of states, so that every piece is what one process would compute
at once: rows are bit for bit those of one process, for exact laws and for models on the CPU of a
like machine. Replies are put in order again. As many queries of a stage are asked at once as keep
the workers busy. A piece whose worker died is asked elsewhere; the
run that asks never notices, so its ledger counts every state once.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray, StateArray
from counterprobe.classes import TokenClasses
from counterprobe.digests import digest_of
from counterprobe.errors import OracleError
from counterprobe.executors import AHEAD, ExecutorError, Executors, Workers
from counterprobe.oracles.abilities import depends_on_order
from counterprobe.oracles.oracle import Oracle, OracleInfo, Wrapper, as_oracle
from counterprobe.oracles.query import Query, Readouts, Reply
from counterprobe.rows import concatenate

__all__ = ["PIECE", "Sharded"]

T = TypeVar("T")
# States of a piece: enough to outweigh a message, few enough to share a query.
PIECE = 32
# A model's own batches are kept together up to this many states.
MOST_STATES = 1024


class Sharded(Wrapper):
    """An oracle whose queries are answered by replicas, in the workers of an executor.

    Parameters
    ----------
    oracle : Oracle
    executor : Executor, or callable that makes one
        A callable is called again when workers died and broke the executor.
    build : callable, optional
        Builds the oracle in a worker, once. Picklable; by default the oracle itself is pickled.
        Of a model take :class:`counterprobe.infilling.task.ModelOracle`, which loads it there.
    piece : int, optional
        States of a piece; by default 32, or the batch of a model.
    options
        As for :class:`counterprobe.executors.Workers`: ``workers``, ``timeout``, ``on_loss``.

    Notes
    -----
    Rows of torch models arrive in the host's memory. No work is kept of a run: a commit submits
    its state like any other, without attention.

    Examples
    --------
    >>> import counterprobe as cp
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> oracle = cp.families.path(length=64, target_seed=1).oracle()
    >>> with ThreadPoolExecutor(2) as executor:
    ...     found = cp.sample(oracle.sharded(executor), "packed", seed=1, progress=False)
    >>> alone = cp.sample(oracle, "packed", seed=1, progress=False)
    >>> bool((found.sequences == alone.sequences).all()), found.ledger == alone.ledger
    (True, True)
    """

    def __init__(
        self,
        oracle: Oracle,
        executor: Executors,
        *,
        build: Callable[[], Oracle] | None = None,
        piece: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(oracle)
        if depends_on_order(self.inner):
            said = "depends on the order of commits, which no replica knows; shard its by_index()"
            raise OracleError(f"oracle {self.name!r} {said}")
        batch = getattr(self.inner, "batch_size", None) or PIECE
        batch = batch if batch <= MOST_STATES else PIECE
        self._piece = whole_number("piece", piece or -(-PIECE // batch) * batch, at_least=1)
        self._classes: dict[bytes, TokenClasses] = {}
        make = partial(_Replica, build or partial(as_oracle, self.inner), _described(self.inner))
        self._workers = Workers(executor, make, **options)

    @property
    def info(self) -> OracleInfo:
        """What the oracle is; what is read of a stage grows with the number of workers."""
        return replace(self.inner.info, stream_states=AHEAD * self._workers.size * self._piece)

    def ability(self, kind: type[T]) -> T | None:
        """Return None: replicas answer plain queries alone."""
        return None

    def ask(self, query: Query) -> Reply:
        """Let the replicas answer a query, piece by piece."""
        parts = self._split(query)
        known = frozenset(self._classes)
        pieces = [self._workers.submit((*part, known)) for *part, _ in parts]
        try:
            found = [self._workers.result(one) for one in pieces]
        except ExecutorError as problem:
            raise ExecutorError(f"oracle {self.name!r}: {problem}") from problem
        finally:
            self._workers.forget(pieces)
        order = np.concatenate([index for *_, index in parts])
        rows = concatenate([_Unpacker(one, self._classes).load() for one in found])
        is_sorted = bool((order[1:] > order[:-1]).all())
        return Reply(rows if is_sorted else rows.take(np.argsort(order, kind="stable")))

    # ----- Inside --------------------------------------------------------------------------

    def _split(self, query: Query) -> list[tuple[StateArray, Readouts, IntArray]]:
        """Cut a query: states, what to read of them, and which rows of the query those are."""
        states, readouts = query.states, query.readouts
        spans = pairwise([*query.starts, max(1, len(states))])
        bounds = [low for span in spans for low in range(*span, self._piece)] + [len(states)]
        order = np.argsort(readouts.state_index, kind="stable")
        starts = np.searchsorted(readouts.state_index[order], bounds)
        parts = []
        for k, low in enumerate(bounds[:-1]):
            mine = order[starts[k] : starts[k + 1]]
            part = Readouts(readouts.state_index[mine] - low, readouts.position[mine])
            if readouts.shared is not None:
                part = Readouts.same(bounds[k + 1] - low, readouts.shared)
            parts.append((states[low : bounds[k + 1]], part, mine))
        return parts


class _Replica:
    """An oracle in a worker."""

    def __init__(self, build: Callable[[], Oracle], described: dict[str, Any]) -> None:
        self._oracle = as_oracle(build())
        for name, mine in _described(self._oracle).items():
            if mine != described[name] and None not in (mine, described[name]):
                raise OracleError(
                    f"a replica must be of the oracle {described['name']!r} with {name} "
                    f"{described[name]!r}, got {mine!r}"
                )

    def __call__(self, task: tuple[StateArray, Readouts, frozenset[bytes]]) -> bytes:
        """Answer a piece."""
        states, readouts, known = task
        file = io.BytesIO()
        _Packer(file, known).dump(self._oracle.rows(states, readouts))
        return file.getvalue()


def _described(oracle: Oracle) -> dict[str, Any]:
    """Return what tells an oracle from others."""
    info = oracle.info
    sizes = {"name": info.name, "length": int(info.length), "vocab_size": int(info.vocab_size)}
    return {**sizes, "digest": oracle.digest}


# ----- Rows on their way --------------------------------------------------------------------


class _Packer(pickle.Pickler):
    """Pickles rows: a class map that the other side knows as its digest, tensors from the host."""

    def __init__(self, file: io.BytesIO, known: frozenset[bytes]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._known = known

    def persistent_id(self, thing: Any) -> tuple[bytes, bytes | None] | None:
        if not isinstance(thing, TokenClasses):
            return None
        digest = digest_of(*(getattr(thing, part.name) for part in fields(thing)))
        return digest, None if digest in self._known else pickle.dumps(thing)

    def reducer_override(self, thing: Any) -> Any:
        if not array_api_compat.is_torch_array(thing):
            return NotImplemented
        import torch

        there = thing.detach().cpu().contiguous()
        bits = there.reshape(-1).view(torch.uint8).numpy()
        return _tensor, (bits, str(there.dtype).removeprefix("torch."), tuple(there.shape))


class _Unpacker(pickle.Unpickler):
    """Reads rows; those of one class map share one object, as rows of one oracle do."""

    def __init__(self, data: bytes, classes: dict[bytes, TokenClasses]) -> None:
        super().__init__(io.BytesIO(data))
        self._classes = classes

    def persistent_load(self, pid: tuple[bytes, bytes | None]) -> TokenClasses:
        digest, data = pid
        if digest not in self._classes and data is not None:
            # Built anew: unpickled arrays are writeable, for which no kernel is compiled.
            self._classes[digest] = replace(pickle.loads(data))
        return self._classes[digest]


def _tensor(bits: NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.from_numpy(bits).view(getattr(torch, dtype)).reshape(shape)
