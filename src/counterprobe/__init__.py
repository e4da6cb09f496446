"""Parallel unmasking: whole sequences from a masked model with few evaluations.

A target or a model offers an oracle; a sampler is a rule that draws a sequence from it; ``sample``
draws any number of sequences and counts in a ledger what they took. Whatever is not here has a
named place: ``samplers``, ``planning``, ``evaluation``, ``rows``, ``run``, ``errors`` and so on.
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
from counterprobe.discovery import Structure, discover
from counterprobe.errors import (
    CacheError,
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
from counterprobe.sampling import sample
from counterprobe.states import MASK
from counterprobe.streams import Streams
from counterprobe.targets import ForestLaw, FrozenNoise, TableLaw, families
from counterprobe.version import __version__

# What people call, what they hand in, what they get back, what goes wrong; then named places.
__all__ = [
    "MASK",
    "CacheError",
    "CallableOracle",
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
    "SampleBatch",
    "SampleResult",
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
