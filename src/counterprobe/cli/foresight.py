"""What a run will take, said before it: more submissions than positions, or too much memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from counterprobe.cli.targets import DEFAULT_LENGTH, Target
from counterprobe.samplers import Sampler

__all__ = ["available_memory", "check_memory", "needed_memory", "say_costs"]

# Peak bytes a position while a law of three classes is built and its batch KL is measured.
LAW_BYTES = 480
# Copies of pair tables of their own, while they are drawn and checked.
TABLE_COPIES = 3
DEFAULT_CLASSES = 3
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
MEMINFO = Path("/proc/meminfo")


def say_costs(samplers: Iterable[Sampler], length: int, vocab_size: int) -> None:
    """Say, on standard error, which samplers will make more submissions than one at a time."""
    for sampler in samplers:
        foreseen = sampler.foreseen_submissions(length, vocab_size)
        if foreseen is not None and foreseen > length:
            print(
                f"counterprobe: note: {sampler.name} will make about {foreseen:,} submissions or "
                f"more for {length:,} positions; one at a time would take {length:,}",
                file=sys.stderr,
            )


def needed_memory(target: Target, samplers: Iterable[Sampler]) -> int:
    """Return about how many bytes a run on a target takes at its peak."""
    working = max((sampler.bytes_per_position for sampler in samplers), default=0)
    tables = 0
    if target.tables == "random":
        tables = TABLE_COPIES * 8 * (target.classes or DEFAULT_CLASSES) ** 2
    return _length(target) * (LAW_BYTES + tables + working)


def available_memory() -> int | None:
    """Return the bytes that this process may still take, if the system says."""
    limits = []
    try:
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(1024 * int(line.split()[1]))
    except (OSError, ValueError):
        names = ("SC_PAGE_SIZE", "SC_PHYS_PAGES")
        if all(name in os.sysconf_names for name in names):
            limits.append(os.sysconf(names[0]) * os.sysconf(names[1]))
    try:
        limits.append(int(CGROUP_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no control groups, or "max"
        pass
    return min(limits, default=None)


def check_memory(target: Target, samplers: Iterable[Sampler]) -> None:
    """Refuse a target for which this machine has too little memory, before it is built."""
    needed, available = needed_memory(target, samplers), available_memory()
    if available is not None and needed > available:
        raise ValueError(
            f"N = {_length(target):,} needs about {_gigabytes(needed)} of memory, and "
            f"{_gigabytes(available)} are available; choose a smaller --n or another sampler"
        )


def _length(target: Target) -> int:
    return DEFAULT_LENGTH if target.n is None else target.n


def _gigabytes(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB"
