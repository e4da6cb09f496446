"""How far a draw goes before it meets the model: modules crossed, and frames on the way.

::

    python tools/corridor.py [--n 64] [--list] [--json docs/data/corridor.json]

For each sampler one sequence is drawn with ``cp.sample`` from a law wrapped as a plain function.
Counted are the modules of the library in which some function runs, from the call to the result
but not inside the model, and the library's frames on the stack at the first and at the deepest
call of the model.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import counterprobe as cp

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_now

SAMPLERS = ("sequential", "packed", "compressed")
# The same at commit 26a12cb, before oracles had one verb.
BEFORE = {
    "sequential": {"modules": 24, "first": 11, "deepest": 11},
    "packed": {"modules": 41, "first": 13, "deepest": 15},
    "compressed": {"modules": 54, "first": 14, "deepest": 21},
}


def corridor(sampler: str, length: int) -> tuple[set[str], int, int]:
    """Return the modules that a draw crosses, and its first and its deepest way to the model."""
    law = cp.families.path(length=length, target_seed=196)
    exact = law.oracle()
    depths: list[int] = []

    def model(states: np.ndarray) -> np.ndarray:
        depths.append(_depth(sys._getframe(1)))
        watching = sys.getprofile()
        sys.setprofile(None)  # what the law computes is the model's
        try:
            return answer(states)
        finally:
            sys.setprofile(watching)

    def answer(states: np.ndarray) -> np.ndarray:
        everywhere = np.zeros((*states.shape, law.vocab_size))
        readouts = cp.Readouts.every_masked(states)
        rows = exact.rows(states, readouts).dense()
        everywhere[readouts.state_index, readouts.position] = rows
        everywhere[states >= 0, 0] = 1.0
        return everywhere

    oracle = cp.CallableOracle(model, length, law.vocab_size, row_error=exact.row_error)
    modules: set[str] = set()

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("counterprobe"):
            modules.add(name)

    settings = {"shared_by": length} if sampler == "packed" else {}  # screens all the same
    cp.sample(oracle, sampler, progress=False, **settings)  # compiles and imports
    depths.clear()
    sys.setprofile(watch)
    try:
        cp.sample(oracle, sampler, progress=False, **settings)
    finally:
        sys.setprofile(None)
    return modules, depths[0], max(depths)


def _depth(frame: FrameType | None) -> int:
    depth = 0
    while frame is not None:
        depth += frame.f_globals.get("__name__", "").startswith("counterprobe")
        frame = frame.f_back
    return depth


def main() -> int:
    """Print one line per sampler."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--list", action="store_true", help="name the modules")
    parser.add_argument("--json", type=Path, help="write a file of results")
    options = parser.parse_args()
    found = {}
    for sampler in SAMPLERS:
        modules, first, deepest = corridor(sampler, options.n)
        found[sampler] = {"modules": len(modules), "first": first, "deepest": deepest}
        print(f"{sampler}: {len(modules)} modules, {first} to {deepest} frames to the model")
        if options.list:
            print("   " + " ".join(sorted(m.removeprefix("counterprobe.") for m in modules)))
    if options.json is not None:
        content = {"made": [made_now()], "n": options.n, "before": BEFORE, "now": found}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
