"""Parallel unmasking: whole sequences from a masked model with few evaluations.

A target or a model offers an oracle; an ``Run`` is one run against it, with its ledger; a
sampler runs it to completion and returns a ``SampleResult``. ``sample`` does all of it for any
number of sequences. Whatever is not here has a named place: ``samplers``, ``planning``,
``evaluation``, ``rows``, ``run``, ``errors`` and so on.
"""

from counterprobe import (
    classes,
    discovery,
    errors,
    evaluation,
    models,
    oracles,
    planning,
    rows,
    run,
    samplers,
    theory,
    threads,
    trace,
)
from counterprobe.discovery import SoftStructure, Structure, discover, load_structure
from counterprobe.errors import (
    CheckpointError,
    CounterprobeError,
    Infeasible,
    OracleError,
    StructureError,
)
from counterprobe.infilling import fill_mask, infill, score
from counterprobe.oracles import CallableOracle, Oracle, OracleInfo, Query, Readouts, Reply
from counterprobe.run.batches import SampleBatch
from counterprobe.run.ledger import Ledger, Need
from counterprobe.run.results import SampleResult, StopReason
from counterprobe.run.run import Run
from counterprobe.sampling import sample
from counterprobe.states import MASK
from counterprobe.streams import Streams
from counterprobe.targets import ForestLaw, FrozenNoise, TableLaw, families
from counterprobe.version import __version__

# What people call, what they hand in, what they get back, what goes wrong; then named places.
__all__ = [
    "MASK",
    "CallableOracle",
    "CheckpointError",
    "CounterprobeError",
    "ForestLaw",
    "FrozenNoise",
    "Infeasible",
    "Ledger",
    "Need",
    "Oracle",
    "OracleError",
    "OracleInfo",
    "Query",
    "Readouts",
    "Reply",
    "Run",
    "SampleBatch",
    "SampleResult",
    "SoftStructure",
    "StopReason",
    "Streams",
    "Structure",
    "StructureError",
    "TableLaw",
    "__version__",
    "classes",
    "discover",
    "discovery",
    "errors",
    "evaluation",
    "families",
    "fill_mask",
    "infill",
    "load_structure",
    "models",
    "oracles",
    "planning",
    "rows",
    "run",
    "sample",
    "samplers",
    "score",
    "theory",
    "threads",
    "trace",
]


def __dir__() -> list[str]:
    """List the public names, and not every module that one of them was imported from."""
    return __all__
