"""Work on any executor of ``concurrent.futures``: loky, Dask, Ray, MPI, processes or threads.

:class:`Workers` submits pieces of work to an executor and bears its losses. A worker builds what
answers the pieces once, from a picklable builder, and keeps it; a piece names the builder by a
key, and the builder itself travels only to a worker that asks for it.

====================  ============================================================================
executor              a worker is killed
====================  ============================================================================
processes, loky       the executor is broken; where a callable makes executors, a fresh one gets
                      the lost pieces, each at most three times
Dask                  the scheduler gives the piece to another worker
Ray                   Ray gives the piece to another worker, at most three times
MPI                   the whole MPI job ends
====================  ============================================================================

Nothing ends a worker that hangs; with a time limit its piece becomes an error.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from counterprobe import threads
from counterprobe.arguments import whole_number
from counterprobe.digests import digest_of
from counterprobe.errors import CounterprobeError
from counterprobe.extras import load_extra

__all__ = ["ExecutorError", "Executors", "RayExecutor", "Workers", "cluster", "local_processes"]

logger = logging.getLogger("counterprobe")

# An executor, or a callable that makes one: then a broken one is replaced.
Executors = Executor | Callable[[], Executor]
Job = Callable[[Any], Any]
# How often a piece is begun before its losses are an error.
ATTEMPTS = 3
# Pieces under way for each worker: one at work, others waiting for it.
AHEAD = 3
# Jobs that a worker keeps, each perhaps with a model: one, and another asked in turns with it.
KEPT = 2
# Bytes of a builder. A larger one holds weights, which are to be loaded where they are used.
MOST_BYTES = 1 << 26
CONNECT_SECONDS = 10


class ExecutorError(CounterprobeError):
    """An executor lost a piece of work; the text says what happened and what to try."""


# ----- In a worker --------------------------------------------------------------------------

_kept = threading.local()


def _work(caller: int, key: bytes, build: bytes | None, task: bytes) -> bytes | None:
    """Do a piece; None asks for the builder, which is not here."""
    jobs: dict[bytes, Job] = _kept.__dict__.setdefault("jobs", {})
    try:
        if key not in jobs:
            if build is None:
                return None
            if os.getpid() != caller and "COUNTERPROBE_THREADS" not in os.environ:
                threads.set_num_threads(1)
            while len(jobs) >= KEPT:
                del jobs[next(iter(jobs))]
            jobs[key] = pickle.loads(build)()
        job = jobs[key] = jobs.pop(key)  # the last one used is the last one to go
        return pickle.dumps((job(pickle.loads(task)), None))
    except Exception as problem:  # whatever a user's function raises
        return pickle.dumps((None, _portable(problem)))


def _portable(error: Exception) -> Exception:
    """Return an error that arrives in another process with its kind and its words."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # errors with arguments of their own often cannot be rebuilt
        return CounterprobeError(f"{type(error).__name__}: {error}")
    return error


# ----- In the caller ------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Piece:
    """A piece of work: what came of it, a value or an error, once it is done."""

    task: bytes
    losses: int = 0
    outcome: tuple[Any, Exception | None] | None = None

    def fail(self, said: str) -> None:
        """Note that no worker did it."""
        self.outcome = None, ExecutorError(said)


class Workers:
    """Pieces of work on an executor.

    Parameters
    ----------
    executor : Executor, or callable that makes one
        A callable, such as ``partial(loky.get_reusable_executor, 4)``, is called again when
        workers died and broke the executor.
    build : callable
        Builds, in each worker, the job that does the pieces. Picklable.
    workers : int, optional
        How many workers there are, where the executor does not say.
    timeout : float, optional
        Seconds that a worker may take over a piece, its start and its builder included: when
        nothing came back for so long, whatever is open is an error.
    on_loss : callable, optional
        Called with the reason whenever an executor broke.

    Attributes
    ----------
    size : int
        Number of workers.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from functools import partial
    >>> with ThreadPoolExecutor(2) as executor:
    ...     workers = Workers(executor, partial(partial, pow, 2))
    ...     pieces = [workers.submit(k) for k in range(3)]
    ...     [workers.result(piece) for piece in pieces]
    [1, 2, 4]
    """

    def __init__(
        self,
        executor: Executors,
        build: Callable[[], Job],
        *,
        workers: int | None = None,
        timeout: float | None = None,
        on_loss: Callable[[str], object] = logger.info,
    ) -> None:
        if timeout is not None and not 0 < timeout < math.inf:
            raise ValueError(f"timeout must be a number of seconds above 0, got {timeout!r}")
        self._waiting: deque[Piece] = deque()
        self._under_way: dict[Future[bytes | None], Piece] = {}
        self._timeout, self._on_loss = timeout, on_loss
        self._build = _pickled("build", build)
        self._key = digest_of(self._build)
        self._renew = None if isinstance(executor, Executor) else executor
        self._executor = executor if isinstance(executor, Executor) else executor()
        self.size = _num_workers(self._executor) if workers is None else workers
        whole_number("workers", self.size, at_least=1)

    @property
    def num_open(self) -> int:
        """Pieces that were submitted and are not done."""
        return len(self._waiting) + len(self._under_way)

    def submit(self, task: Any) -> Piece:
        """Queue a piece."""
        piece = Piece(_pickled("task", task))
        self._waiting.append(piece)
        self._fill()
        return piece

    def first(self, pieces: Collection[Piece]) -> Piece:
        """Return one of several pieces that is done, sooner or later."""
        while True:
            for piece in pieces:
                if piece.outcome is not None:
                    return piece
            self._step(self._under_way)
            self._fill()

    def result(self, piece: Piece) -> Any:
        """Return what came of a piece, or raise its error."""
        value, error = self.first([piece]).outcome or (None, None)
        if error is not None:
            raise error
        return value

    def forget(self, pieces: Collection[Piece]) -> None:
        """Drop pieces that nobody waits for any more."""
        self._waiting = deque(piece for piece in self._waiting if piece not in pieces)
        for future in [one for one, piece in self._under_way.items() if piece in pieces]:
            future.cancel()
            del self._under_way[future]
        self._fill()

    # ----- Inside --------------------------------------------------------------------------

    def _fill(self) -> None:
        """Give the executor as much as keeps its workers busy."""
        while self._waiting and len(self._under_way) < AHEAD * self.size:
            self._begin(self._waiting.popleft())

    def _begin(self, piece: Piece, build: bytes | None = None) -> None:
        try:
            future = self._executor.submit(_work, os.getpid(), self._key, build, piece.task)
        except BrokenExecutor as problem:
            future = Future()
            future.set_exception(problem)
        self._under_way[future] = piece

    def _step(self, futures: Collection[Future[bytes | None]]) -> None:
        """Wait for some reply; where none comes in time, give everything up."""
        done = wait(futures, self._timeout, FIRST_COMPLETED).done
        for future in done:
            self._take(future)
        if not done:
            self._fail_all(f"no worker has answered for {self._timeout:g} seconds")

    def _take(self, future: Future[bytes | None]) -> None:
        """Take what came of a piece; nothing if it was lost with another."""
        piece = self._under_way.get(future)
        if piece is None:
            return
        try:
            reply = future.result()
        except BrokenExecutor as problem:
            self._replace(f"a worker died: {_said(problem)}")
            return
        except Exception as problem:
            piece.fail(f"the executor lost a piece: {_said(problem)}")
        else:
            if reply is None:
                self._begin(piece, self._build)
            else:
                piece.outcome = pickle.loads(reply)
        del self._under_way[future]

    def _replace(self, said: str) -> None:
        """Begin what was lost in a fresh executor, where there can be one."""
        lost, self._under_way = [*self._under_way.values()], {}
        if self._renew is None:
            self._waiting.extend(lost)
            self._fail_all(f"{said}; a callable that makes the executor would make another")
            return
        self._on_loss(said)
        self._executor = self._renew()
        for piece in lost:
            piece.losses += 1
        # The last attempt is made alone, so that no piece is blamed for the end of another.
        for piece in sorted(lost, key=lambda one: one.losses < ATTEMPTS - 1):
            if piece.losses == ATTEMPTS:
                piece.fail(f"{said} ({ATTEMPTS} times for one piece)")
                continue
            self._begin(piece)
            while piece.losses == ATTEMPTS - 1 and piece.outcome is None:
                self._step([one for one, mine in self._under_way.items() if mine is piece])

    def _fail_all(self, said: str) -> None:
        pieces = [*self._under_way.values(), *self._waiting]
        for piece in pieces:
            piece.fail(said)
        self.forget(pieces)


def _pickled(name: str, thing: Any) -> bytes:
    """Return a builder or a task as bytes; functions of a script or notebook travel by value."""
    import cloudpickle  # type: ignore[import-untyped]

    data: bytes = cloudpickle.dumps(thing)
    if len(data) > MOST_BYTES:
        raise ValueError(f"{name} must not hold a model's weights, got {len(data):,} bytes")
    return data


def _num_workers(executor: Executor) -> int:
    """Return how many workers an executor has."""
    client = getattr(executor, "_client", None)
    if client is not None:  # Dask's
        return max(1, int(sum(client.nthreads().values())))
    count: Any = getattr(executor, "_max_workers", None) or getattr(executor, "num_workers", None)
    if isinstance(count, int):
        return count
    raise ValueError(f"workers must be given: {executor!r} does not say how many it has")


def _said(problem: BaseException) -> str:
    """Return an error of an executor in one line."""
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"


# ----- Executors ----------------------------------------------------------------------------


@contextmanager
def local_processes(workers: int | None = None) -> Iterator[Callable[[], Executor]]:
    """Give a callable that makes loky processes of this machine; leaving it ends them.

    Parameters
    ----------
    workers : int, optional
        How many; one per core by default.
    """
    import loky  # type: ignore[import-untyped]

    if workers is not None:
        whole_number("workers", workers, at_least=1)
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    made: list[Any] = []

    def make() -> Executor:
        count = workers or threads.num_threads()
        starting = {"initializer": _begin, "initargs": (os.getpid(),), "env": one_thread}
        made.append(loky.ProcessPoolExecutor(count, **starting))
        is_main = threading.current_thread() is threading.main_thread()
        # Processes inherit that Ctrl-C is ignored, and never see one, not even while they import.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None
        try:
            made[-1].submit(int)  # starts them
        finally:
            if is_main:
                signal.signal(signal.SIGINT, before)
        found: Executor = made[-1]
        return found

    try:
        yield make
    finally:
        for one in made:
            one.shutdown(wait=True, kill_workers=True)


def _begin(parent: int) -> None:
    """Prepare a process: Ctrl-C is the parent's, and there is no life without it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def cluster(address: str, gpus: float = 0.0) -> Iterator[Executor]:
    """Join a cluster: ``tcp://HOST:PORT`` is a Dask scheduler, ``ray:HOST:PORT`` Ray.

    Parameters
    ----------
    address : str
        ``ray:auto`` is the Ray cluster of this machine.
    gpus : float
        That each piece asks for, on Ray.
    """
    kind, _, where = address.partition(":")
    if kind not in ("tcp", "tls", "ray"):
        raise ValueError(f"address must be tcp://HOST:PORT or ray:HOST:PORT, got {address!r}")
    host, _, port = where.strip("/").rpartition(":")
    try:
        if host:  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        if kind == "ray":
            joined: Any = RayExecutor(where or "auto", num_gpus=gpus)
        else:
            distributed = load_extra("distributed", "dask", "a Dask cluster")
            joined = distributed.Client(address, timeout=CONNECT_SECONDS)
    except (OSError, RuntimeError, ValueError) as problem:
        raise ExecutorError(f"no cluster at {address}: {_said(problem)}") from problem
    with joined:
        yield joined if kind == "ray" else joined.get_executor(pure=False)


class RayExecutor(Executor):
    """Tasks on a Ray cluster that is there already, started by ``ray start`` or ``ray.init``.

    Ray gives a task whose worker died to another, at most three times.

    Parameters
    ----------
    address : str
        ``HOST:PORT``, or ``auto`` for the cluster of this machine.
    num_cpus, num_gpus : float
        That each task asks for; a task sees the GPUs that it asked for.
    """

    def __init__(self, address: str = "auto", *, num_cpus: float = 1, num_gpus: float = 0) -> None:
        self._ray = ray = load_extra("ray", "ray", "a Ray cluster")
        self._joined = not ray.is_initialized()
        if self._joined:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        has, asked = ray.cluster_resources(), {"CPU": num_cpus, "GPU": num_gpus}
        room = [int(has.get(kind, 0) / count) for kind, count in asked.items() if count]
        self.num_workers = min(room, default=1)
        if not self.num_workers:
            raise ValueError(f"tasks must fit into the Ray cluster, got {asked} of {has}")
        # GPU tasks, too, keep their process: it holds the model.
        retries = ATTEMPTS - 1
        make = ray.remote(num_cpus=num_cpus, num_gpus=num_gpus, max_calls=0, max_retries=retries)
        self._task = make(lambda fn, args, kwargs: fn(*args, **kwargs))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a task."""
        future: Future[Any] = self._task.remote(fn, args, kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, where this joined it."""
        if self._joined:
            self._ray.shutdown()
