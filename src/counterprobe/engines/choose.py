"""Engines by name, as the command line and configurations name them."""

from __future__ import annotations

from counterprobe.engines.cluster import RayCluster
from counterprobe.engines.engine import InProcess
from counterprobe.engines.processes import Processes

__all__ = ["ENGINES", "AnyEngine", "engine_named"]

ENGINES = ("local", "processes", "ray")
AnyEngine = InProcess | Processes | RayCluster


def engine_named(
    name: str,
    *,
    workers: int | None = None,
    address: str | None = None,
    gpus: float | None = None,
    attempts: int = 3,
    task_seconds: float | None = None,
) -> AnyEngine:
    """Return an engine by its name; options that it does not have are refused.

    Parameters
    ----------
    name : {"local", "processes", "ray"}
    workers : int, optional
        Worker processes, or actors.
    address : str, optional
        Of a running Ray cluster.
    gpus : float, optional
        GPUs that each actor asks for.
    attempts : int
        How often a task is begun before its losses end the run.
    task_seconds : float, optional
        How long a worker may take over a task; the engine local has none to end.

    Examples
    --------
    >>> engine_named("processes", workers=2).num_workers
    2
    """
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    if name != "ray":
        given = {"address": address, "gpus": gpus}
        foreign = [option for option, value in given.items() if value is not None]
        if foreign:
            raise ValueError(f"{foreign[0]} must come with the engine ray, got {name!r}")
    if name == "local":
        if workers not in (None, 1):
            raise ValueError(
                f"workers must be 1 or left out with the engine local, got {workers}; the engine "
                "processes has more"
            )
        if task_seconds is not None:
            raise ValueError(
                "task_seconds must be left out with the engine local, which has no worker to end, "
                f"got {task_seconds}; the engine processes has some"
            )
        return InProcess()
    if name == "processes":
        return Processes(workers, attempts, task_seconds)
    return RayCluster(
        address, workers, gpus=gpus or 0.0, attempts=attempts, task_seconds=task_seconds
    )
