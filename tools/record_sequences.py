"""Record what every sampler draws at fixed seeds, and compare with what was recorded.

    .venv/bin/python tools/record_sequences.py           # compare, and name what differs
    .venv/bin/python tools/record_sequences.py --write   # record anew, or one file of three:
    .venv/bin/python tools/record_sequences.py --write measures

Each run leaves a digest of its tokens, its stop and its ledger. Single runs of every sampler stand
here; every other way to run one, many side by side, wrapped, resumed, by a structure, of a text,
in ``tests/support/recorded_ways.py``; and what is measured, stepped, traced or interrupted in
``tests/support/recorded_measures.py``. A change that is meant to keep
behaviour keeps the file; one that is meant to alter it records anew, and a change of drawn values
is entered under **Streams** in the changelog.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import math
import sys
import tempfile
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import counterprobe as cp
from counterprobe.samplers import SAMPLERS
from counterprobe.samplers.registry import build_sampler

TESTS = Path(__file__).resolve().parent.parent / "tests"
FILE = TESTS / "recorded" / "sequences.json"
sys.path.insert(0, str(TESTS / "support"))

from recorded_measures import MEASURES, SINGLE  # noqa: E402
from recorded_ways import WAYS  # noqa: E402

# What is recorded elsewhere, by the name of its file.
OTHERS = {"ways": WAYS, "measures": MEASURES}

SMALL, LARGE = 48, 200
LARGE_FAMILIES = ("path", "growing-stars", "random-recursive-tree", "two-type-path")
TARGETS = [(family, SMALL) for family in cp.families.FAMILIES]
TARGETS += [(family, LARGE) for family in LARGE_FAMILIES]
SEEDS = (1, 2)
LEDGER = [field.name for field in fields(cp.Ledger)]
COLUMNS = ["tokens", "stop", *LEDGER]

# Beside every sampler as it comes: settings under which a rule takes another path.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "sequential random": ("sequential", {"order": "random"}),
    "sequential confidence": ("sequential", {"order": "confidence"}),
    "packed shared": ("packed", {"shared_by": 1000}),
    "packed 4": ("packed", {"num_colors": 4, "num_colorings": 24, "degree_cutoff": 3}),
    "random-balanced 6": ("random-balanced", {"batches": 6}),
    "threshold 0.4": ("threshold", {"threshold": 0.4, "confidence": "candidate"}),
    "entropy-bounded 4": ("entropy-bounded", {"gamma": 4.0}),
    "punt parallel": ("punt", {"epsilon": 0.05, "tests": "parallel"}),
    "remdm loop": ("remdm", {"strategy": "loop", "steps": 30}),
    "wino 0.3": ("wino", {"threshold": 0.3, "threshold_back": 0.5, "block_length": 20}),
    "planned 4": ("planned", {"batches": 4, "method": "search"}),
}
RUNS = {name: (name, {}) for name in SAMPLERS} | VARIANTS

# How many probes the compressed screen takes is its own affair; what it commits is not, except in
# the hard family, of which it resolves only what its budget allows.
PROBE_COUNTS = {"probes", "stages", "rows_read", "widest_stage"}
UNSETTLED = "hard-matching"


def record(family: str, length: int) -> dict[str, Any]:
    """Run everything on one target, the same target draw at every seed."""
    law = cp.families.build(family, length, target_seed=0)
    return {
        f"{name}, seed {seed}": _outcome(law, *RUNS[name], seed) for name in RUNS for seed in SEEDS
    }


def _outcome(law: cp.ForestLaw, name: str, settings: dict[str, Any], seed: int) -> list[Any]:
    """Tokens digest (None without tokens), stop, and the ledger in the order of its fields."""
    sampler = build_sampler(name, settings).informed_by(law)
    result = sampler(cp.run.Run(law.oracle()), cp.Streams.from_seed(seed))
    digest = None
    if result.tokens is not None:
        digest = hashlib.sha256(result.tokens.astype("<i8").tobytes()).hexdigest()[:16]
    counts = asdict(result.ledger)
    return [digest, str(result.stop), *(counts[field] for field in LEDGER)]


def compared(family: str, run: str, outcome: list[Any]) -> dict[str, Any]:
    """Return the part of an outcome that must not change."""
    named = dict(zip(COLUMNS, outcome, strict=True))
    if not run.startswith("compressed,"):
        return named
    if family == UNSETTLED:
        return {"stop": named["stop"]}
    return {column: value for column, value in named.items() if column not in PROBE_COUNTS}


def differences(family: str, length: int) -> list[str]:
    """Say which runs on one target differ from the record, and how."""
    recorded = load()[key(family, length)]
    drawn = record(family, length)
    found = [f"{run}: recorded but not run" for run in sorted(recorded.keys() - drawn.keys())]
    for run, outcome in drawn.items():
        if run not in recorded:
            found.append(f"{run}: run but not recorded")
            continue
        before, after = (compared(family, run, o) for o in (recorded[run], outcome))
        changed = [
            f"{column} was {before[column]}, is {after[column]}"
            for column in before
            if before[column] != after[column]
        ]
        if changed:
            found.append(f"{run}: {', '.join(changed)}")
    return found


def key(family: str, length: int) -> str:
    """Name a target in the file."""
    return f"{family} {length}"


def load() -> dict[str, dict[str, Any]]:
    """Return the recorded outcomes by target and run."""
    runs: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["runs"]
    return runs


def write() -> None:
    """Record every target, one line a run."""
    lines = []
    for family, length in TARGETS:
        outcomes = record(family, length)
        body = ",\n".join(f"   {json.dumps(run)}: {json.dumps(outcomes[run])}" for run in outcomes)
        lines.append(f"  {json.dumps(key(family, length))}: {{\n{body}\n  }}")
    columns = json.dumps(COLUMNS)
    text = f'{{\n "columns": {columns},\n "runs": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    FILE.write_text(text, encoding="utf-8")


# ----- Other ways, and measures -----------------------------------------------------------------


def record_other(file: str, kind: str) -> dict[str, Any]:
    """Run one kind of what is recorded elsewhere, and return its outcomes as JSON has them."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes: dict[str, Any] = json.loads(json.dumps(OTHERS[file][kind](Path(folder))))
    return outcomes


def other_differences(file: str, kind: str) -> list[str]:
    """Say which runs of one kind differ from the record, and how."""
    recorded, drawn = load_other(file)[kind], record_other(file, kind)
    tolerance = 1e-4 if kind in SINGLE else 1e-12
    found = []
    for run in sorted(recorded.keys() | drawn.keys()):
        before, after = recorded.get(run, {}), drawn.get(run, {})
        changed = [
            f"{column} was {before.get(column)}, is {after.get(column)}"
            for column in before | after
            if not is_same(before.get(column), after.get(column), tolerance)
        ]
        if changed:
            found.append(f"{run}: {', '.join(changed)}")
    return found


def is_same(before: Any, after: Any, tolerance: float) -> bool:
    """Whether two values are the same, floating-point numbers to a relative tolerance."""
    if isinstance(before, float) and isinstance(after, float | int):
        return math.isclose(before, after, rel_tol=tolerance, abs_tol=tolerance / 100)
    if isinstance(before, list) and isinstance(after, list):
        alike = len(before) == len(after)
        return alike and all(is_same(*pair, tolerance) for pair in zip(before, after, strict=True))
    return type(before) is type(after) and before == after


def load_other(file: str) -> dict[str, dict[str, Any]]:
    """Return the outcomes that are recorded elsewhere, by kind and run."""
    kinds: dict[str, dict[str, Any]] = json.loads(other_file(file).read_text(encoding="utf-8"))
    return kinds


def other_file(file: str) -> Path:
    """Return the path of a file of other records."""
    return TESTS / "recorded" / f"{file}.json"


def write_other(file: str) -> None:
    """Record every kind, one line a run."""
    lines = []
    for kind in OTHERS[file]:
        outcomes = record_other(file, kind)
        body = ",\n".join(f"  {json.dumps(run)}: {json.dumps(outcomes[run])}" for run in outcomes)
        lines.append(f" {json.dumps(kind)}: {{\n{body}\n }}")
    other_file(file).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Compare with the record, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    files = ["sequences", *OTHERS]
    parser.add_argument("--write", nargs="*", choices=files, help="record anew: all, or these")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", cp.errors.InfeasibleWarning)
    logging.getLogger("counterprobe").setLevel(logging.ERROR)  # of calls that fail on purpose
    if arguments.write is not None:
        for file in arguments.write or files:
            write() if file == "sequences" else write_other(file)
        return
    found = [
        f"{key(family, length)}, {line}"
        for family, length in TARGETS
        for line in differences(family, length)
    ]
    for file, kinds in OTHERS.items():
        found += [f"{kind}, {line}" for kind in kinds for line in other_differences(file, kind)]
    print("\n".join(found) or "every run is as recorded")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
