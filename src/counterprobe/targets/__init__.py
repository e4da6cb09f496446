"""Hidden laws with exact oracles, and frozen noise around any oracle."""

from counterprobe.targets import families, forests
from counterprobe.targets.law import ForestLaw, ForestOracle
from counterprobe.targets.noise import FrozenNoise
from counterprobe.targets.table import TableLaw, TableOracle

__all__ = [
    "ForestLaw",
    "ForestOracle",
    "FrozenNoise",
    "TableLaw",
    "TableOracle",
    "families",
    "forests",
]
