"""One sequence as N grows: evaluations, stages, rows, memory, seconds of samplers on exact laws.

    .venv/bin/python benchmarks/scale.py --json benchmarks/results/scale.json
    .venv/bin/python benchmarks/scale.py --families path --most 16 --seconds 60 --json scale.json
    .venv/bin/python benchmarks/scale.py --samplers compressed --anew --json scale.json

Sizes are powers of two, the small ones first. Each sampler goes on to the next size until a run
would take longer than ``--seconds`` (ten minutes). Every run is a process of its own, so that its
memory is its own; everything is compiled before, and it warms up on a small law before its clock
starts. Seconds of the processor are what it took on all cores, whoever else was waiting for them.
The file is written after each run, and the same command goes on where it was stopped: what is in
the file is not measured again, unless it was cut off by a lower limit than now. With ``--anew``
what is there of the chosen samplers, families and sizes is dropped first: after a change to them.
Every row says its commit and how busy the machine was when it ended (``load``, processes that
could run in the last minute, this one included). ``make tables`` writes docs/scale.md.

``compressed`` stands here three times: the decoder under both assumptions, and the regression
screen. ``packed`` is the cheapest of the grids that were made by hand for each family (preset
``tuned-by-hand`` of the study, which knows degrees and response sizes).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _made import made_again, made_now

import counterprobe as cp
from counterprobe.oracles import Query, Reply
from counterprobe.oracles.oracle import Wrapper
from counterprobe.samplers import Packed
from counterprobe.samplers.registry import build_sampler
from counterprobe.study.config import load_preset
from counterprobe.study.screening import least_total

SAMPLERS: dict[str, tuple[str, dict[str, Any]]] = {
    "compressed": ("compressed", {}),
    "compressed, generic": ("compressed", {"assume": "generic"}),
    "compressed, regression": ("compressed", {"method": "regression"}),
    "punt": ("punt", {"epsilon": 1e-9}),
    "packed": ("packed", {}),
    "random-balanced, N/4 batches": ("random-balanced", {}),
    "sequential": ("sequential", {}),
}
FAMILIES = ("path", "matching", "binary-tree", "growing-stars")
TARGET, STREAM = 196, 292
WARM = 256
# Beside the run: starting, compiling, building the law and judging what was drawn.
BESIDE = 120.0

Row = dict[str, Any]


class _Timed(Wrapper):
    """An oracle that knows how much of the processor its answers took."""

    seconds = 0.0

    def ask(self, query: Query) -> Reply:
        """Answer, and add up the time."""
        started = time.process_time()
        reply = self.inner.ask(query)
        self.seconds += time.process_time() - started
        return reply


def settings_at(name: str, family: str, length: int) -> dict[str, Any]:
    """Return the settings of a sampler of this list for one law."""
    kind, settings = SAMPLERS[name]
    if kind == "random-balanced":
        return {"batches": max(1, length // 4)}
    if kind == "packed":
        grid = load_preset("tuned-by-hand").candidate_settings(family, length)
        return min(grid, key=lambda one: least_total(Packed(**one), length))
    return settings


def draw(family: str, length: int, name: str) -> tuple[cp.ForestLaw, cp.SampleResult, Row]:
    """Draw one sequence; return it with what it took."""
    law = cp.families.build(family, length, TARGET)
    sampler = build_sampler(SAMPLERS[name][0], settings_at(name, family, length))
    oracle = _Timed(law.oracle())
    started, busy = time.perf_counter(), time.process_time()
    result = sampler(cp.run.Run(oracle), cp.Streams.from_seed(STREAM))
    return law, result, {
        "seconds": time.perf_counter() - started,
        "processor_seconds": time.process_time() - busy,
        "oracle_seconds": oracle.seconds,
    }  # fmt: skip


def measure(family: str, length: int, name: str) -> Row:
    """Draw one sequence in this process, everything counted."""
    draw(family, WARM, name)
    law, result, took = draw(family, length, name)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    ledger, kl = result.ledger, cp.evaluation.batch_kl(law, result)
    return {
        "family": family,
        "n": length,
        "sampler": name,
        "evaluations": ledger.evaluations,
        "stages": ledger.stages,
        "widest_stage": ledger.widest_stage,
        "rows_read": ledger.rows_read,
        **took,
        "peak_memory_gib": peak,
        "stop": str(result.stop),
        "batch_kl": kl.value,
        "batch_kl_se": kl.standard_error,
    }


def compile_for(family: str, name: str) -> None:
    """Compile what a sampler needs, outside every limit; it is kept on disk."""
    command = [sys.executable, __file__, "--one", family, str(WARM), name]
    subprocess.run(command, capture_output=True, check=True)


def apart(family: str, length: int, name: str, most: float) -> Row:
    """Measure in a process of its own; a run that takes too long, or dies, says only that."""
    command = [sys.executable, __file__, "--one", family, str(length), name]
    cell: Row = {"family": family, "n": length, "sampler": name, "limit": most}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=most + BESIDE)
    except subprocess.TimeoutExpired:
        return {**cell, "stop": "over the limit"}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return {**cell, "stop": f"ended with {done.returncode}: {last}"}
    row: Row = json.loads(done.stdout.splitlines()[-1])
    if row["seconds"] > most:
        row["stop"] = "over the limit"
    load = round(os.getloadavg()[0], 1)
    return {**row, "limit": most, "commit": made_now()["commit"], "load": load}


def is_known(row: Row, most: float) -> bool:
    """Say whether a row stands: measured, or cut off by a limit that is no lower than now."""
    return bool(row["stop"] == "completed" or row["limit"] >= most)


def continued(file: Path | None) -> list[Row]:
    """Return what a file has already."""
    if file is None or not file.is_file():
        return []
    rows: list[Row] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return rows


def write(file: Path | None, rows: list[Row]) -> None:
    """Write what there is, whole or not at all."""
    if file is None:
        return
    partial = file.with_name(f".{file.name}.partial")
    written = {"made": made_again(file), "target": TARGET, "stream": STREAM, "rows": rows}
    partial.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, file)


def main() -> None:
    """Measure sizes in turn, and write after every run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--one", nargs=3, metavar=("FAMILY", "N", "SAMPLER"))
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=list(SAMPLERS))
    parser.add_argument("--least", type=int, default=9, help="smallest N, as a power of two")
    parser.add_argument("--most", type=int, default=20, help="largest N, as a power of two")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of a run")
    parser.add_argument("--anew", action="store_true", help="measure what is chosen once more")
    parser.add_argument("--json", type=Path, help="write here, and go on with what is there")
    told = parser.parse_args()
    if told.one:
        family, length, name = told.one
        print(json.dumps(measure(family, int(length), name)))
        return
    for name in told.samplers:
        compile_for(told.families[0], name)
    rows = continued(told.json)
    if told.anew:
        sizes = {2**power for power in range(told.least, told.most + 1)}
        rows = [
            row
            for row in rows
            if row["family"] not in told.families
            or row["sampler"] not in told.samplers
            or row["n"] not in sizes
        ]
        write(told.json, rows)
    over: set[tuple[str, str]] = set()
    for power in range(told.least, told.most + 1):
        for family in told.families:
            for name in told.samplers:
                if (family, name) in over:
                    continue
                place = (family, 2**power, name)
                found = [row for row in rows if (row["family"], row["n"], row["sampler"]) == place]
                if found and is_known(found[0], told.seconds):
                    row = found[0]
                else:
                    row = apart(*place, told.seconds)
                    rows = [*(one for one in rows if one not in found), row]
                    print(row, flush=True)
                    write(told.json, rows)
                if row["stop"] != "completed":
                    over.add((family, name))


if __name__ == "__main__":
    main()
