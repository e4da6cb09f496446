"""Shared by the benchmarks: timings, the best of several, and a JSON file of ratios."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
from _made import made_now

import counterprobe as cp


class TimedOracle:
    """An oracle that knows how long its rows took."""

    def __init__(self, inner: cp.Oracle) -> None:
        self.inner = inner
        self.length, self.vocab_size = inner.length, inner.vocab_size
        self.row_error, self.trusted, self.name = inner.row_error, True, "timed"
        self.seconds = 0.0

    def rows(self, states: np.ndarray, readouts: cp.Readouts) -> cp.rows.Rows:
        """Answer, and add up the time."""
        started = time.perf_counter()
        rows = self.inner.rows(states, readouts)
        self.seconds += time.perf_counter() - started
        return rows


def alternate(
    works: dict[str, Callable[[], object]],
    *,
    repeats: int = 15,
    once: Collection[str] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Time several pieces of work turn by turn and return the best time of each, in seconds.

    Turn by turn, so that a slow spell of the machine hits all of them alike. What is in ``once``
    was warmed up before, and takes part in the first turn only. A clock of the processor's own
    time (``time.process_time``) is for work of one thread beside that of others.
    """
    best = dict.fromkeys(works, float("inf"))
    for name, work in works.items():
        if name not in once:
            work()  # compile and warm up
    for turn in range(repeats):
        for name, work in works.items():
            if turn and name in once:
                continue
            started = clock()
            work()
            best[name] = min(best[name], clock() - started)
    return best


def arguments(description: str) -> argparse.Namespace:
    """Every benchmark takes ``--json FILE`` and ``--quick``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, smaller sizes")
    return parser.parse_args()


def report(figures: dict[str, Any], file: Path | None) -> None:
    """Print the figures and write them; keys that end in ``_ratio`` are compared across runs."""
    for key, value in figures.items():
        print(f"{key:48s} {value:.4g}" if isinstance(value, float) else f"{key:48s} {value}")
    if file is not None:
        machine = {"python": platform.python_version(), "machine": platform.machine()}
        written = {"made": [made_now()], "figures": figures, **machine}
        file.write_text(json.dumps(written, indent=1) + "\n")
