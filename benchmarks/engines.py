"""Throughput of a sharded oracle: one stage of states over 1, 2 and more workers.

Two oracles. The exact one of a path with N = 16384 and nine tenths masked keeps a core busy, so
that it scales up to the cores and no further. One that waits instead of computing, as a remote
model does, scales with the workers until messages and the process that asks are the limit. Every
result is compared with one process, bit for bit. Ratios are against one worker of the same engine.
"""

from __future__ import annotations

import os
import time
from functools import partial

import numpy as np
from _timing import arguments, report

import counterprobe as cp
from counterprobe.engines import AnyEngine, Processes, RayCluster, ShardedOracle
from counterprobe.oracles import Readouts
from counterprobe.run import Probe, Requests, Stream, measuring

LENGTH, READOUTS = 16_384, 64
WAIT_SECONDS = 0.02


class Waiting:
    """A law's oracle behind a wait for every micro-batch."""

    trusted = True

    def __init__(self, inner: cp.Oracle) -> None:
        self.inner, self.name, self.row_error = inner, "waiting", inner.row_error
        self.length, self.vocab_size = inner.length, inner.vocab_size

    def rows(self, states: np.ndarray, readouts: Readouts) -> cp.rows.Rows:
        """Wait, then answer."""
        time.sleep(WAIT_SECONDS)
        return self.inner.rows(states, readouts)


def make_requests(length: int, count: int) -> list[tuple[np.ndarray, Readouts]]:
    """Draw requests of 64 states with nine tenths masked, and read a few positions."""
    rng = np.random.default_rng(0)
    requests = []
    for _ in range(count):
        states = rng.integers(0, 3, (64, length)).astype(np.int32)
        masked = rng.permutation(length)[: 9 * length // 10]
        states[:, masked] = cp.MASK
        requests.append((states, Readouts.same(64, masked[:READOUTS])))
    return requests


def answered(oracle: cp.Oracle, requests: list[tuple[np.ndarray, Readouts]]) -> list[np.ndarray]:
    """Ask for the rows of one stage, some requests ahead of their replies."""
    found: list[np.ndarray] = []

    def stage() -> Requests[None]:
        probes = (Probe(*request) for request in requests)
        yield Stream(probes, lambda probe, rows: found.append(rows.masses))

    measuring.measure(oracle, [stage()])
    return found


def measure(
    engine: AnyEngine,
    oracle: cp.Oracle,
    requests: list[tuple[np.ndarray, Readouts]],
    repeats: int,
) -> float:
    """Return states a second, the best of some repeats, and insist on equal rows."""
    expected = [oracle.rows(*request).masses for request in requests]
    num_states = sum(len(states) for states, _ in requests)
    best = float("inf")
    with engine, ShardedOracle.copies_of(oracle, engine, batch_size=16) as sharded:
        replies = answered(sharded, requests[:2])  # load kernels, meet every worker
        for _ in range(repeats):
            started = time.perf_counter()
            replies = answered(sharded, requests)
            best = min(best, time.perf_counter() - started)
            for one, other in zip(replies, expected, strict=True):
                np.testing.assert_array_equal(one, other)
    return num_states / best


def main() -> None:
    """Measure every engine with every number of workers."""
    options = arguments(__doc__)
    repeats = 2 if options.quick else 5
    computing = cp.families.path(LENGTH, 1).oracle()
    waiting = Waiting(cp.families.path(256, 1).oracle())
    cases = {
        "computing": (computing, make_requests(LENGTH, 4 if options.quick else 16), (1, 2)),
        "waiting": (waiting, make_requests(256, 8 if options.quick else 16), (1, 2, 4)),
    }
    figures: dict[str, float | int] = {"cores": len(os.sched_getaffinity(0))}
    for case, (oracle, requests, workers) in cases.items():
        for kind in (Processes, partial(RayCluster, None)):
            found: dict[int, float] = {}
            for count in workers:
                engine = kind(workers=count)
                found[count] = measure(engine, oracle, requests, repeats)
                key = f"{case}.{engine.name}.{count}_workers"
                figures[f"{key}.states_per_second"] = found[count]
                if count > 1:
                    figures[f"{key}_ratio"] = found[count] / found[1]
    figures["load_when_measured"] = os.getloadavg()[0]
    report(figures, options.json)


if __name__ == "__main__":
    main()
