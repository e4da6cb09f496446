"""Where evaluations and study cells run: this process, processes of this machine, or Ray.

An engine starts workers; a :class:`WorkerPool` gives them tasks and bears losses; a
:class:`ShardedOracle` spreads the evaluations of a stage over replicas. Ray is imported when its
engine is first used.
"""

from counterprobe.engines.choose import ENGINES, AnyEngine, engine_named
from counterprobe.engines.cluster import RayCluster
from counterprobe.engines.engine import Engine, EngineError, InProcess
from counterprobe.engines.pool import Done, TaskLost, WorkerPool
from counterprobe.engines.processes import Processes
from counterprobe.engines.sharded import ShardedOracle

__all__ = [
    "ENGINES",
    "AnyEngine",
    "Done",
    "Engine",
    "EngineError",
    "InProcess",
    "Processes",
    "RayCluster",
    "ShardedOracle",
    "TaskLost",
    "WorkerPool",
    "engine_named",
]
