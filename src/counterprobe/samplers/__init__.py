"""Samplers: one file each, all behind the same call and the same ledger."""

from counterprobe.samplers.balanced import OneBatch as OneBatch
from counterprobe.samplers.balanced import RandomBalanced as RandomBalanced
from counterprobe.samplers.base import Sampler as Sampler
from counterprobe.samplers.compressed import Compressed as Compressed
from counterprobe.samplers.packed import Packed as Packed
from counterprobe.samplers.packed import PackedTheory as PackedTheory
from counterprobe.samplers.registry import SAMPLERS as SAMPLERS
from counterprobe.samplers.registry import build_sampler as build_sampler
from counterprobe.samplers.registry import describe_samplers as describe_samplers
from counterprobe.samplers.sequential import Sequential as Sequential
