"""Exact rows: the component walk against a kernel that always walks all N positions.

N = 16384, three classes, general pair tables, batches of 64 trusted states, one run. Both sides
use one thread; the two-thread figure and single states through ``Run`` are reported too.
"""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
from _timing import alternate, arguments, report

import counterprobe as cp
from counterprobe.oracles import Readouts
from counterprobe.run import Probe
from counterprobe.targets import forests, inference

LENGTH, CLASSES, STATES = 16_384, 3, 64


def make_law(length: int) -> cp.ForestLaw:
    """Build a path with random labels and general tables."""
    rng = np.random.default_rng(0)
    label = rng.permutation(length)
    return cp.ForestLaw(
        rng.uniform(0.5, 1.0, (length, CLASSES)),
        label[forests.path(length)],
        rng.uniform(0.5, 2.0, (length - 1, CLASSES, CLASSES)),
    )


def make_states(law: cp.ForestLaw, masked: float, rng: np.random.Generator) -> np.ndarray:
    """Draw random states with a given masked fraction."""
    states = rng.integers(0, CLASSES, (STATES, law.length)).astype(np.int32)
    states[rng.random(states.shape) < masked] = cp.MASK
    return states


def first_masked(states: np.ndarray, count: int) -> Readouts:
    """Read a few random masked positions from each state."""
    rng = np.random.default_rng(2)
    chosen = [
        rng.choice(np.flatnonzero(state == cp.MASK), count, replace=False) for state in states
    ]
    return Readouts.pairs(np.repeat(np.arange(len(states)), count), np.concatenate(chosen))


def compare(law: cp.ForestLaw, states: np.ndarray, readouts: Readouts, repeats: int) -> dict:
    """Time the oracle's kernel, one and two threads, against the reference."""
    oracle = law.oracle()
    counts = np.bincount(readouts.state_index, minlength=len(states))
    start = np.concatenate([[0], np.cumsum(counts)])
    out = np.empty((len(readouts), CLASSES))

    def walk_all() -> None:
        inference.rows_all_positions(
            law.arrays, oracle.scratch(), states, start, readouts.position, out, 0, len(states)
        )

    def walk_components() -> None:
        inference.rows_of_states(
            law.arrays, oracle.scratch(), states, start, readouts.position, out, 0, len(states)
        )

    cp.threads.set_num_threads(2)
    best = alternate(
        {
            "reference": walk_all,
            "kernel": walk_components,
            "oracle": lambda: oracle.rows(states, readouts),
        },
        repeats=repeats,
    )
    micro = {name: 1e6 * seconds / len(states) for name, seconds in best.items()}
    return {
        "reference_us_per_state": micro["reference"],
        "kernel_us_per_state": micro["kernel"],
        "two_threads_us_per_state": micro["oracle"],
        "speedup_ratio": micro["reference"] / micro["kernel"],
    }


def main() -> None:
    """Run every comparison."""
    options = arguments(__doc__)
    repeats = 3 if options.quick else 25
    rng = np.random.default_rng(1)
    law = make_law(LENGTH)
    figures: dict[str, float] = {}
    cases = {}
    states = make_states(law, 1 / 8, rng)
    cases["eighth_masked"] = states, Readouts.every_masked(states)
    states = make_states(law, 0.01, rng)
    cases["99_percent_revealed_16_readouts"] = states, first_masked(states, 16)
    states = np.full((STATES, LENGTH), cp.MASK, dtype=np.int32)
    cases["all_masked"] = states, Readouts.every_masked(states)
    for name, (states, readouts) in cases.items():
        for key, value in compare(law, states, readouts, repeats).items():
            figures[f"{name}.{key}"] = value

    run = cp.run.Run(law.oracle())
    single = {}
    for name, (states, readouts) in cases.items():
        mine = readouts.position[readouts.state_index == 0]
        single[name] = lambda s=states[0], p=mine: run.do(Probe(s, p)).rows
    for name, seconds in alternate(single, repeats=repeats).items():
        figures[f"{name}.single_state_through_the_door_us"] = 1e6 * seconds

    for order in ("index", "random", "confidence"):
        started = time.perf_counter()
        cp.samplers.Sequential(order)(cp.run.Run(law.oracle()), cp.Streams(1, 2))
        figures[f"sequential_{order}_seconds"] = time.perf_counter() - started

    big = make_law(131_072)
    states = np.full((STATES, big.length), cp.MASK, dtype=np.int32)
    tracemalloc.start()
    big.oracle().rows(states, Readouts.every_masked(states))
    figures["n_131072_64_states_peak_mib"] = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    report(figures, options.json)


if __name__ == "__main__":
    main()
