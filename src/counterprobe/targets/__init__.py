"""Hidden laws with exact oracles, and frozen noise around any oracle."""

from counterprobe.targets import families as families
from counterprobe.targets import forests as forests
from counterprobe.targets.law import ForestLaw as ForestLaw
from counterprobe.targets.law import ForestOracle as ForestOracle
from counterprobe.targets.noise import FrozenNoise as FrozenNoise
from counterprobe.targets.table import TableLaw as TableLaw
from counterprobe.targets.table import TableOracle as TableOracle
