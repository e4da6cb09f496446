"""Moved to :mod:`counterprobe.run.results`."""

from counterprobe.run.results import SampleResult as SampleResult
from counterprobe.run.results import StopReason as StopReason
from counterprobe.run.results import versions as versions
