"""Local processes: workers of one thread each, with a pipe to every one of them.

They are spawned, never forked, because compiled kernels and CUDA do not survive a fork. A pipe
that closes is a process that died, so that one death costs one task and not the whole pool. A
process that loses its parent ends itself: killing a run leaves nothing behind.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection, resource_tracker
from typing import Any

from counterprobe import threads
from counterprobe.arguments import whole_number
from counterprobe.engines.closing import Closing
from counterprobe.engines.engine import Worker, check_task_seconds
from counterprobe.engines.outcomes import Failed, Lost, MakeJob, Outcome, begin, do, portable

__all__ = ["Processes"]

# How long a process that was told to end may take before it is killed.
GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Processes(Closing):
    """Processes of this machine.

    Parameters
    ----------
    workers : int, optional
        How many; one per core by default.
    attempts : int
        How often a task is begun before its losses end the run.
    task_seconds : float, optional
        How long a process may take over a task: then it is killed, and the task begun in another.
    """

    workers: int | None = None
    attempts: int = 3
    task_seconds: float | None = None
    start_seconds: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.workers is not None:
            whole_number("workers", self.workers, at_least=1)
        whole_number("attempts", self.attempts, at_least=1)
        check_task_seconds(self.task_seconds)

    @property
    def name(self) -> str:
        """What it is called."""
        return "processes"

    @property
    def num_workers(self) -> int:
        """Processes that a pool starts."""
        return threads.num_threads() if self.workers is None else self.workers

    def prepare(self, make: MakeJob) -> bytes:
        """Pickle what makes a job."""
        try:
            return pickle.dumps(make)
        except Exception as problem:
            raise ValueError(
                "what makes a job must be picklable to reach another process: a function of a "
                "module, functools.partial of one, or an object of an importable class; got "
                f"{make!r} ({problem})"
            ) from problem

    def start_worker(self, prepared: bytes) -> Worker:
        """Start a process."""
        return _ProcessWorker(prepared)

    def ready(self, workers: Sequence[Worker], seconds: float | None) -> list[Worker]:
        """Wait for a reply, or for a pipe that closes."""
        mine = [worker for worker in workers if isinstance(worker, _ProcessWorker)]
        # Those that could not be written to are known to be gone.
        gone: list[Worker] = [worker for worker in mine if worker.is_broken]
        if gone:
            return gone
        readable = set(connection.wait([worker.pipe for worker in mine], seconds))
        return [worker for worker in mine if worker.pipe in readable]


class _ProcessWorker:
    """One spawned process."""

    is_placed = True

    def __init__(self, make: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.is_broken = False
        self._process = context.Process(target=_serve, args=(there, make), daemon=True)
        try:
            with threads.one_thread_for_children(), _ctrl_c_held():
                self._process.start()
        except BaseException:
            if self._process.pid is not None:
                self.close()
            raise
        there.close()

    def send(self, task: Any) -> None:
        try:
            self.pipe.send(task)
        except OSError:
            self.is_broken = True

    def receive(self) -> Outcome:
        try:
            if not self.is_broken:
                outcome: Outcome = self.pipe.recv()
                return outcome
        except (EOFError, OSError):
            pass
        self._process.join(GRACE_SECONDS)
        code = self._process.exitcode
        return Lost(f"a worker process died, perhaps for want of memory (exit code {code})")

    def close(self) -> None:
        self._process.terminate()
        self._process.join(GRACE_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self.pipe.close()


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Put Ctrl-C off for a moment.

    A child inherits the signal mask: started here it never sees one, not even while it is still
    importing. Another thread of this process may still take it, which would interrupt the start
    half way and leave a child that complains; it is kept, and raised right afterwards. The
    first start would also begin `multiprocessing`'s tracker of resources, which lets Ctrl-C
    through again when it is done, so the tracker is begun before.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "pthread_sigmask") or not is_main:
        yield
        return
    resource_tracker.ensure_running()
    heard: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if heard:
            signal.raise_signal(signal.SIGINT)


def _serve(pipe: Any, make: bytes) -> None:
    """Live a worker's life: make the job, then do one task after another."""
    _prepare_worker()
    job, outcome = begin(lambda: pickle.loads(make)())
    pipe.send(outcome)
    while job is not None:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        reply = do(job, task)
        try:
            pipe.send(reply)
        except OSError:
            return
        except Exception as problem:  # an answer that cannot be pickled
            pipe.send(Failed(portable(problem)))


def _prepare_worker() -> None:
    """Prepare a worker: one thread, Ctrl-C left to the parent, no life without it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where masks do not exist
    threads.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel

        def watch() -> None:
            connection.wait([sentinel])
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
