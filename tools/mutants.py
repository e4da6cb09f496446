"""Put single faults into core modules, and count those that the quick tests catch.

    .venv/bin/python tools/mutants.py --seconds 1800 --seed 1 --json .mutants/report.json

mutmut's operators make the faults: a number off by one, a comparison turned round, an argument
lost. Each is written into a copy of the tree, one at a time, and judged by the tests of its module
and then by those of its folder, in a process of its own. A fault that no test notices survives.
Texts of errors are left alone. Kernels are compiled anew when a file they are made of changes
(``compiled.py``), so that no fault hides behind a cache. The order is fixed by the seed; the time
decides how far it is followed.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import MutationVisitor, deep_replace
from mutmut.mutation.mutators import mutation_operators, operator_string
from mutmut.mutation.pragma_handling import IgnoredCode

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/counterprobe")
TREE = ROOT / ".mutants" / "tree"
CORE = (
    "oracles", "run", "planning", "discovery", "targets/inference", "graph",
    "states.py", "streams.py", "rows.py",
)  # fmt: skip
# Tests that cover a folder's modules and stand elsewhere.
FURTHER = {
    "targets/inference": ["tests/targets/test_inference.py", "tests/targets/test_session.py"],
    "oracles": ["tests/recorded"],
    "run": ["tests/recorded"],
    "planning": ["tests/recorded"],
    "discovery": ["tests/recorded"],
    "streams.py": ["tests/recorded", "tests/samplers/test_universal_coupling.py"],
    "rows.py": ["tests/run/test_run.py", "tests/run/test_candidates.py"],
}
# A fault may make a loop endless: so many times what its tests took without it, and at least this.
PATIENCE, LEAST_SECONDS = 8.0, 90.0
# Loaded once for all processes. Tests have no share in what pytest would rewrite of these, and are
# not told of it.
SHARED = ("numba", "scipy.stats", "scipy.sparse", "pytest", "hypothesis.strategies")
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
CAUGHT, SURVIVED, HUNG = "caught", "survived", "hung"
# The function that raises an error of the text that it is given.
REFUSES = "refuse"
# The share of faults that quick tests should catch.
GOAL = 0.9
# What compiles a function (``compiled.py``).
KERNELS = ("kernel", "allocating_kernel", "inlined")


class FaultVisitor(MutationVisitor):
    """Finds faults in every function, decorated ones too: each is written out as source."""

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, (cst.Raise, cst.Assert, cst.Decorator, cst.Annotation, cst.Import)):
            return True
        if isinstance(node, cst.Call) and getattr(node.func, "value", None) == REFUSES:
            return True
        if isinstance(node, cst.FunctionDef):
            return False
        return bool(super()._skip_node_and_children(node))


class Faults:
    """The faults of one source, each written out when it is asked for.

    Parameters
    ----------
    source : str
    """

    def __init__(self, source: str) -> None:
        operators = [pair for pair in mutation_operators if pair[1] is not operator_string]
        visitor = FaultVisitor(operators, IgnoredCode(set(), set(), set()))
        self._source = source
        self._module = MetadataWrapper(cst.parse_module(source)).visit(visitor)
        # What stands outside of functions are constants and records.
        self._found = [one for one in visitor.mutations if one.contained_by_top_level_function]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._found)

    def is_in_kernel(self, number: int) -> bool:
        """Return whether a fault lies in a function that is compiled."""
        function = self._found[number].contained_by_top_level_function
        decorators = getattr(function, "decorators", ())  # a field of a record has none
        return any(getattr(one.decorator, "value", "") in KERNELS for one in decorators)

    def __getitem__(self, number: int) -> tuple[int, str, str]:
        """Return a fault's line, what changes, and the whole source with it."""
        chosen = self._found[number]
        changed = deep_replace(self._module, chosen.original_node, chosen.mutated_node)
        assert isinstance(changed, cst.Module)
        before, after = self._source.splitlines(), changed.code.splitlines()
        lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))
        line = int(lines[2].split()[1].lstrip("-").partition(",")[0]) if lines else 0
        return line, " ".join(one.strip() for one in lines[3:]), changed.code


def core_files() -> list[str]:
    """List the core modules below the package."""
    found: list[str] = []
    for part in CORE:
        path = ROOT / PACKAGE / part
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        found += [file.relative_to(ROOT / PACKAGE).as_posix() for file in files
                  if file.name != "__init__.py"]  # fmt: skip
    return found


def tests_of(file: str) -> list[list[str]]:
    """Return the tests that judge a module, nearest first: its own, then those of its folder."""
    path = Path(file)
    own = Path("tests") / path.parent / f"test_{path.stem}.py"
    top = path.parts[0] if len(path.parts) > 1 else ""
    folder = Path("tests") / path.parent
    stages = [[str(own)]] if (ROOT / own).is_file() else []
    stages += [paths for part, paths in FURTHER.items() if file.startswith(part)]
    if top and (ROOT / folder).is_dir():
        stages.append([str(folder)])
    return stages


# ----- Judging ------------------------------------------------------------------------------


def copy_tree() -> None:
    """Copy what tests need, dates and compiled kernels included."""
    shutil.rmtree(TREE, ignore_errors=True)
    TREE.mkdir(parents=True)
    for name in ("src", "tests", "tools", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, TREE / name)
    shutil.copy2(ROOT / "pyproject.toml", TREE)


def run_tests(paths: list[str], seconds: float) -> str:
    """Run tests in a process of its own; return whether something failed or took too long."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setsid()
            os.chdir(TREE)
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            sys.path.insert(0, str(TREE / "src"))
            os.environ["PYTHONPATH"] = str(TREE / "src")
            import pytest

            words = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *QUIET, *paths]
            os._exit(int(pytest.main(words)))
        os._exit(70)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return SURVIVED if os.waitstatus_to_exitcode(status) == 0 else CAUGHT
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return HUNG


class Judge:
    """Judges faults by tests that pass without them."""

    def __init__(self, *, nearest: bool = False) -> None:
        self._nearest = nearest
        self._took: dict[tuple[str, ...], float] = {}

    def verdict(self, file: str, source: str) -> str:
        """Write a fault into the tree, run its tests and take it out again."""
        place = TREE / PACKAGE / file
        for stage in tests_of(file)[: 1 if self._nearest else None]:
            most = max(LEAST_SECONDS, PATIENCE * self._time_of(stage))
            try:
                place.write_text(source, encoding="utf-8")
                outcome = run_tests(stage, most)
            finally:
                shutil.copy2(ROOT / PACKAGE / file, place)
            if outcome != SURVIVED:
                return outcome
        return SURVIVED

    def _time_of(self, stage: list[str]) -> float:
        """Return how long tests take without a fault; they must pass."""
        key = tuple(stage)
        if key not in self._took:
            began = time.monotonic()
            outcome = run_tests(stage, 900.0)
            if outcome != SURVIVED:
                raise SystemExit(f"mutants: {' '.join(stage)} {outcome} without a fault")
            self._took[key] = time.monotonic() - began
        return self._took[key]


def in_order(faults: dict[str, Faults], seed: int) -> list[tuple[str, int]]:
    """Return file and number of all faults, one of each file in turn; the seed shuffles them."""
    draw = random.Random(seed)
    by_file = []
    for file in sorted(faults):
        numbers = list(range(len(faults[file])))
        draw.shuffle(numbers)
        by_file.append([(file, number) for number in numbers])
    draw.shuffle(by_file)
    depth = max(map(len, by_file), default=0)
    return [found[k] for k in range(depth) for found in by_file if k < len(found)]


def main() -> None:
    """Read the command line, and judge faults until the time is up."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="begin of the names of files to take")
    parser.add_argument("--nearest", action="store_true", help="a module's own tests only")
    parser.add_argument("--json", type=Path, default=ROOT / ".mutants" / "report.json")
    chosen = parser.parse_args()
    for name in SHARED:
        importlib.import_module(name)

    began = time.monotonic()
    files = [file for file in core_files() if file.startswith(chosen.only)]
    texts = {file: (ROOT / PACKAGE / file).read_text(encoding="utf-8") for file in files}
    faults = {file: Faults(text) for file, text in texts.items()}
    order = in_order(faults, chosen.seed)
    print(f"mutants: {len(order):,} faults in {len(files)} files, seed {chosen.seed}, "
          f"{chosen.seconds:g} seconds", flush=True)  # fmt: skip
    copy_tree()
    judge = Judge(nearest=chosen.nearest)
    judged: list[dict[str, object]] = []
    for file, number in order:
        if time.monotonic() - began > chosen.seconds:
            break
        line, change, source = faults[file][number]
        if source == texts[file]:
            continue
        outcome = judge.verdict(file, source)
        judged.append(
            {"file": file, "number": number, "line": line, "change": change, "outcome": outcome}
        )
        print(f"{outcome}: {file}:{line}  {change:.200}", flush=True)
    caught = sum(one["outcome"] != SURVIVED for one in judged)
    share = caught / len(judged) if judged else 0.0
    chosen.json.parent.mkdir(exist_ok=True)
    report = {"seed": chosen.seed, "faults": len(order), "judged": len(judged),
              "caught": caught, "share": round(share, 4), "verdicts": judged}  # fmt: skip
    chosen.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"mutants: {caught} of {len(judged)} caught, {share:.0%}; {chosen.json}")
    sys.exit(0 if share >= GOAL else 1)


if __name__ == "__main__":
    main()
