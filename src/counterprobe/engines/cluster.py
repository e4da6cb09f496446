"""Ray: workers are actors of a cluster, on this machine or on many.

Without an address a cluster of this machine is started for the run and ended with it, which other
machines cannot reach: it listens on the loopback address alone. With one, work goes to a cluster
that is there already; counterprobe, and what a job needs, must be installed on all of its machines
in the same versions. Usage statistics, the dashboard and the forwarding of logs are off in what is
started here.

Actors are not restarted by Ray: a lost one is a lost worker, and the pool decides.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from counterprobe import threads
from counterprobe.arguments import whole_number
from counterprobe.engines.closing import Closing
from counterprobe.engines.engine import EngineError, Worker, check_task_seconds
from counterprobe.engines.outcomes import Failed, Job, Lost, MakeJob, Outcome, Placed, begin, do
from counterprobe.errors import CounterprobeError
from counterprobe.extras import load_extra

__all__ = ["RayCluster"]

# How long the machine of an address may take to answer.
CONNECT_SECONDS = 10.0
# Read by Ray when it is imported or starts a cluster: no statistics are sent, and no word is
# said about workers without a GPU of their own, from whom the actor itself hides all.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Ray's switch for clusters of several machines, by which it stays local on Windows and macOS.
MANY_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@dataclass(slots=True)
class RayCluster(Closing):
    """A Ray cluster.

    Parameters
    ----------
    address : str, optional
        Of a running cluster: ``host:port``, ``ray://host:port`` or ``auto``. By default one is
        started on this machine; a program that has called ``ray.init`` keeps its own.
    workers : int, optional
        Actors that a pool starts; by default as many as the cluster has room for.
    cpus, gpus : float
        What each of them asks for. An actor sees the GPUs that it was given and no others, so
        that its model on ``cuda`` has one of its own; several share one by asking for less.
    attempts : int
        How often a task is begun before its losses end the run.
    start_seconds : float
        How long actors may wait for room when none is at work.
    task_seconds : float, optional
        How long an actor may take over a task: then it is killed, and the task begun in another.
    """

    address: str | None = None
    workers: int | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    attempts: int = 3
    start_seconds: float = 60.0
    task_seconds: float | None = None
    _ray: Any = field(default=None, init=False, repr=False, compare=False)
    _is_own: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.workers is not None:
            whole_number("workers", self.workers, at_least=1)
        whole_number("attempts", self.attempts, at_least=1)
        check_task_seconds(self.task_seconds)
        for name in ("cpus", "gpus", "start_seconds"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)!r}")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(
                f"gpus must be a whole number, or below 1 to share one, got {self.gpus!r}"
            )

    @property
    def name(self) -> str:
        """What it is called."""
        return "ray"

    @property
    def num_workers(self) -> int:
        """Actors that a pool starts."""
        room = self._room()
        if self.workers is None:
            if not room:
                raise EngineError(
                    f"the Ray cluster has no room for a worker: {self._asked()}, and "
                    f"{self._offered()}"
                )
            return room
        if self.workers > room:
            raise ValueError(
                f"workers must be at most {room}, the number that the Ray cluster has room for "
                f"({self._asked()}); got {self.workers}"
            )
        return self.workers

    def prepare(self, make: MakeJob) -> Any:
        """Put what makes a job where every machine can fetch it; functions travel by value."""
        ray = self._connected()
        try:
            return ray.put(ray.cloudpickle.dumps(make))
        except Exception as problem:
            raise ValueError(
                f"what makes a job must be picklable, got {make!r} ({problem})"
            ) from problem

    def start_worker(self, prepared: Any) -> Worker:
        """Start an actor, as far from the others as there is room."""
        ray = self._connected()
        actor = ray.remote(_Actor).options(
            num_cpus=self.cpus,
            num_gpus=self.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )
        return _RayWorker(ray, actor.remote(self.gpus > 0), prepared)

    def ready(self, workers: Sequence[Worker], seconds: float | None) -> list[Worker]:
        """Wait for an outcome."""
        mine = {worker.pending: worker for worker in workers if isinstance(worker, _RayWorker)}
        asked: dict[str, Any] = {"num_returns": 1}
        if seconds == 0:  # all that are done, also where a reply has not reached this machine
            asked = {"num_returns": len(mine), "fetch_local": False}
        done, _ = self._ray.wait(list(mine), timeout=seconds, **asked)
        return [mine[pending] for pending in done]

    def close(self) -> None:
        """End the cluster that was started here, or leave the one that was joined."""
        if self._is_own:
            self._ray.shutdown()
        self._ray, self._is_own = None, False

    # ----- Inside --------------------------------------------------------------------------

    def _connected(self) -> Any:
        """Return Ray, connected; the first call imports it and may start a cluster."""
        if self._ray is not None:
            return self._ray
        for key, value in QUIET.items():
            os.environ.setdefault(key, value)
        ray = load_extra("ray", "ray", "the Ray engine")
        if not ray.is_initialized():
            own: dict[str, Any] = {"address": self.address}
            if self.address is not None:
                _require_listener(self.address)
            else:
                own = {
                    "address": "local",
                    "include_dashboard": False,
                    # A GPU job may need fewer cores than jobs; logical ones, so more are no harm.
                    "num_cpus": max(threads.num_threads(), self.workers or 1),
                }
            try:
                with nullcontext() if self.address is not None else _on_loopback():
                    ray.init(**own, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError, TimeoutError) as problem:
                where = "on this machine" if self.address is None else f"at {self.address}"
                text = " ".join(str(problem).split())
                raise EngineError(
                    f"no Ray cluster {where}: {text[:300]}; start one with `ray start --head`, "
                    "and check --address"
                ) from problem
            if self.address is None:
                _require_loopback(ray)
            self._is_own = True
        self._ray = ray
        return ray

    def _room(self) -> int:
        """How many workers fit into what the cluster has in all, machine by machine."""
        room = 0
        for has in self._machines():
            fits = []
            if self.cpus:
                fits.append(int(has.get("CPU", 0.0) / self.cpus))
            if self.gpus >= 1:
                fits.append(int(has.get("GPU", 0.0) / self.gpus))
            elif self.gpus:  # a share is of one GPU, never of two
                fits.append(int(has.get("GPU", 0.0)) * int(1 / self.gpus))
            room += min(fits, default=threads.num_threads())
        return room

    def _machines(self) -> list[dict[str, float]]:
        """Return what each machine of the cluster has in all."""
        nodes = self._connected().nodes()
        return [node["Resources"] for node in nodes if node["Alive"] and node["Resources"]]

    def _asked(self) -> str:
        return f"each asks for {self.cpus:g} CPUs and {self.gpus:g} GPUs"

    def _offered(self) -> str:
        has = [f"{m.get('CPU', 0):g} and {m.get('GPU', 0):g}" for m in self._machines()]
        return f"its machines have {', '.join(has) or 'nothing'}"


class _Actor:
    """What runs on the cluster: one job."""

    def __init__(self, has_gpus: bool) -> None:
        self._job: Job | None = None
        if not has_gpus:  # else every such worker of a machine would load its model on the first
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def arrive(self) -> Outcome:
        """Say that there is room; nothing heavy has happened yet."""
        return Placed()

    def begin(self, make: bytes) -> Outcome:
        """Make the job."""
        threads.set_num_threads(1)
        self._job, outcome = begin(lambda: pickle.loads(make)())
        return outcome

    def do(self, task: Any) -> Outcome:
        """Do one task."""
        if self._job is None:
            return Failed(CounterprobeError("the job was never made"))
        return do(self._job, task)


class _RayWorker:
    """One actor, and the reply that it owes."""

    def __init__(self, ray: Any, actor: Any, make: Any) -> None:
        self._ray = ray
        self._actor = actor
        self._make = make
        self.is_placed = False
        self.pending = actor.arrive.remote()

    def send(self, task: Any) -> None:
        self.pending = self._actor.do.remote(task)

    def receive(self) -> Outcome:
        try:
            outcome: Outcome = self._ray.get(self.pending)
        except self._ray.exceptions.RayTaskError as problem:  # such as a task that cannot be read
            return Failed(CounterprobeError(f"{type(problem.cause).__name__}: {problem.cause}"))
        except self._ray.exceptions.RayError as problem:
            return Lost(f"a Ray worker was lost: {_first_lines(problem)}")
        if isinstance(outcome, Placed):
            self.is_placed = True
            self.pending = self._actor.begin.remote(self._make)
        return outcome

    def close(self) -> None:
        if self._ray.is_initialized():
            self._ray.kill(self._actor)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let what Ray starts meanwhile listen on the loopback address alone.

    On Linux Ray turns ``127.0.0.1`` into an address that other machines reach, and listens on all
    of them, unless this switch says that there are no other machines. Its processes read it from
    the environment, and this one has read it when Ray was imported.
    """
    constants: Any = sys.modules.get("ray._private.ray_constants")
    was, said = getattr(constants, "ENABLE_RAY_CLUSTER", None), os.environ.get(MANY_MACHINES)
    os.environ[MANY_MACHINES] = "0"
    if was is not None:
        constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        if was is not None:
            constants.ENABLE_RAY_CLUSTER = was
        os.environ.pop(MANY_MACHINES)
        if said is not None:
            os.environ[MANY_MACHINES] = said


def _require_loopback(ray: Any) -> None:
    """End a cluster that other machines could reach: a Ray that has another switch."""
    where = ray.util.get_node_ip_address()
    if where not in ("127.0.0.1", "::1"):
        ray.shutdown()
        raise EngineError(
            f"this version of Ray listens on {where}, which other machines may reach; start a "
            "cluster with `ray start --head` if that is meant, and name it by --address"
        )


def _require_listener(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit() or not host:  # 'auto' and the like are Ray's to find
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as problem:
        raise EngineError(
            f"no Ray cluster at {address}: {problem}; start one with `ray start --head`, and "
            "check --address"
        ) from problem


def _first_lines(problem: Exception) -> str:
    """Return what Ray says in one line; details of actors are left out."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    told = [line for line in lines if ": " not in line or line.startswith("The actor")]
    return " ".join(told)[:300] or type(problem).__name__
