"""Judge faults without leaving the process: only functions are exchanged, and only tests run.

    .venv/bin/python tools/mutants_in_memory.py --only run/ --most 12 --seed 1 --wider
    .venv/bin/python tools/mutants_in_memory.py --only graph/ --kernels

The faults are those of ``mutants.py``; file and seed decide which come first. The tests nearest to
a module are collected and run without a fault: once to see which test calls which function, and
once more in a copy of the process (a fork). Then each fault is put into the code of its function,
in a copy of its own, where the tests that call it run until one fails: nothing is loaded anew, and
most faults take about a second. What survives may be judged once more by wider tests, those of the
folder and the others that ``mutants.py`` names (``--wider``). Default values cannot be exchanged
in this way: they are counted as left out, and ``mutants.py`` judges them.

Compiled kernels cannot be exchanged either. ``--kernels`` judges these alone, and compiles
nothing: their loops run as Python. That shows whether tests notice other arithmetic, other bounds
and other branches. It does not show what a compiler makes of a fault: an index beyond an array is
an error here, and reads foreign memory there. A fault that shows in this way alone counts as
caught, and is counted apart ("by index"). Tests that fail without compilation, or take longer than
some seconds, are set aside.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import mutants
import numba
import pytest
from living_functions import Living, names_changed

# Modules that tests of another name cover, and the tests that come nearest.
NEAREST = {
    "graph/neighbours.py": ["tests/graph/test_neighbours.py", "tests/graph/test_edges.py"],
    "planning/make.py": ["tests/planning/test_make.py", "tests/planning/test_gap.py"],
    "discovery/compressed/readings.py": ["tests/discovery/compressed/test_readings.py"],
    "discovery/compressed/screen.py": [
        "tests/discovery/compressed/test_screen_steps.py",
        "tests/discovery/compressed/test_screen.py",
    ],
    "discovery/soft/selection.py": [
        "tests/discovery/soft/test_selection.py", "tests/discovery/soft/test_regression.py",
    ],
    "run/drawing.py": [
        "tests/run/test_drawing.py", "tests/run/test_candidates.py",
        "tests/run/test_remasking.py", "tests/run/test_verifying.py",
    ],
    "run/door.py": [
        "tests/run/test_door.py", "tests/run/test_run.py",
        "tests/run/test_verifying.py", "tests/run/test_driver.py",
        "tests/run/test_attention.py", "tests/run/test_transcript.py",
    ],
    "run/driver.py": ["tests/run/test_driver.py", "tests/run/test_attention.py"],
    "run/together.py": ["tests/run/test_together.py"],
    "run/transcript.py": [
        "tests/run/test_transcript.py", "tests/run/test_events.py", "tests/run/test_whole.py",
    ],
    "run/run.py": [
        "tests/run/test_run.py", "tests/run/test_candidates.py",
        "tests/run/test_verifying.py", "tests/run/test_remasking.py",
        "tests/run/test_events.py", "tests/run/test_attention.py",
    ],
    "targets/inference/components.py": ["tests/targets/inference/test_rows.py"],
    "targets/inference/marked.py": ["tests/targets/inference/test_rows.py"],
    "targets/inference/steps.py": [
        f"tests/targets/inference/test_{name}.py" for name in ("steps", "rows", "whole")
    ],
    "targets/inference/sweep.py": ["tests/targets/inference/test_rows.py"],
}  # fmt: skip
# A fault may make a loop endless: so many times what the tests took without it, and at least this.
PATIENCE, LEAST_SECONDS = 8.0, 10.0
# A test that takes more time of the processor without compilation does not judge kernels.
LONGEST_TEST = 2.0
# How a process ends in which the code could not be exchanged: no test has failed there.
FAILED_OUTSIDE = 71
# What is said of a fault in a kernel that shows only as an index beyond an array.
BY_INDEX = "by index"
# How a process ends that has judged a fault.
OUTCOMES = {0: mutants.SURVIVED, 1: mutants.CAUGHT, 2: BY_INDEX}


def nearest_tests(file: str) -> list[str]:
    """Return the tests that come nearest to a module."""
    return NEAREST.get(file) or mutants.tests_of(file)[0]


def wider_tests(file: str) -> list[str]:
    """Return all tests that judge a module, those of its folder too."""
    stages = [nearest_tests(file), *mutants.tests_of(file)]
    return sorted({path for stage in stages for path in stage})


# ----- Judging ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A fault, the whole source with it, and the functions that are another there."""

    file: str
    number: int
    line: int
    change: str
    source: str
    functions: frozenset[str]


class TookLong(BaseException):
    """A test takes longer than it may."""


def _stop_test(signum: int, frame: FrameType | None) -> None:
    raise TookLong


class Loop:
    """Takes the place of pytest's loop over tests: once without a fault, then once for each.

    Parameters
    ----------
    faults : list of Fault
        What is judged, of one module or of several.
    plain : bool
        Whether kernels run as Python: tests that fail or take long are then set aside.
    """

    def __init__(self, faults: list[Fault], *, plain: bool) -> None:
        self._faults = faults
        self._plain = plain
        self._failed = False
        self._failed_by_index = False
        self._living: dict[str, Living] = {}
        self._seconds: dict[pytest.Item, float] = {}
        self._called: dict[pytest.Item, set[tuple[str, str]]] = {}
        self.outcomes: list[str] = []
        self.set_aside: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge the faults."""
        for file in {fault.file: None for fault in self._faults}:
            importlib.import_module(f"counterprobe.{file.removesuffix('.py').replace('/', '.')}")
            self._living[file] = Living(mutants.ROOT / mutants.PACKAGE / file)
        self._look_around(session)
        if self._judge(None, self._tests_of(self._faults)) != mutants.SURVIVED:
            raise SystemExit("mutants: tests fail when they run again without a fault")
        self.outcomes = [self._judge(fault, self._tests_of([fault])) for fault in self._faults]
        session.testsfailed = 0
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Remember that a test has failed."""
        report = yield
        if report.failed:
            if self._plain and call.excinfo is not None and call.excinfo.errisinstance(IndexError):
                self._failed_by_index = True
            else:
                self._failed = True
        return report

    def _look_around(self, session: pytest.Session) -> None:
        """Run every test without a fault, and note its time and the functions that it calls."""
        signal.signal(signal.SIGPROF, _stop_test)
        with ExitStack() as stack:
            called: dict[str, set[str]] = {}
            for file, living in self._living.items():
                stack.enter_context(living.noting(called.setdefault(file, set())))
            for k, item in enumerate(session.items):
                for names in called.values():
                    names.clear()
                began = time.monotonic()
                signal.setitimer(signal.ITIMER_PROF, LONGEST_TEST if self._plain else 0.0)
                try:
                    self._run(item, session.items[k + 1 : k + 2])
                except TookLong:
                    self._failed = True
                signal.setitimer(signal.ITIMER_PROF, 0.0)
                if not (self._failed or self._failed_by_index):
                    self._seconds[item] = time.monotonic() - began
                    self._called[item] = {(file, name) for file in called for name in called[file]}
                elif self._plain:
                    self._failed = self._failed_by_index = False
                    self.set_aside.append(item.nodeid)
                else:
                    raise SystemExit(f"mutants: {item.nodeid} fails without a fault")

    def _tests_of(self, faults: list[Fault]) -> list[pytest.Item]:
        """Return the tests that call a function with a fault, file by file, the quickest first."""
        names = {(fault.file, name) for fault in faults for name in fault.functions}
        chosen = [item for item, called in self._called.items() if called & names]
        of_file: dict[Path, float] = {}
        for item in chosen:
            of_file[item.path] = of_file.get(item.path, 0.0) + self._seconds[item]
        return sorted(
            chosen, key=lambda item: (of_file[item.path], item.path, self._seconds[item])
        )

    def _run(self, item: pytest.Item, following: list[pytest.Item]) -> None:
        item._initrequest()  # type: ignore[attr-defined]
        after = following[0] if following else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)

    def _judge(self, fault: Fault | None, tests: list[pytest.Item]) -> str:
        """Run tests with a fault until one fails, in a copy of the process."""
        child = os.fork()
        if child == 0:
            code = FAILED_OUTSIDE
            try:
                os.setsid()
                if fault is not None:
                    living = self._living[fault.file]
                    living.exchange(living.changed(fault.source))
                code = 1
                for k, item in enumerate(tests):
                    self._run(item, tests[k + 1 : k + 2])
                    if self._failed:
                        break
                code = 1 if self._failed else 2 if self._failed_by_index else 0
            finally:
                os._exit(code)
        most = max(LEAST_SECONDS, PATIENCE * sum(self._seconds[item] for item in tests))
        deadline = time.monotonic() + most
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                if code == FAILED_OUTSIDE:
                    raise SystemExit("mutants: a fault could not be put into its function")
                return OUTCOMES.get(code, mutants.CAUGHT)
            time.sleep(0.01)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return mutants.HUNG


def judge(faults: list[Fault], tests: list[str], *, plain: bool) -> dict[str, list[str]] | None:
    """Judge faults by some tests in a process of its own.

    Returns the outcomes and the tests that were set aside, or None if it could not be done. With
    ``plain``, kernels run as Python: the package must not have been loaded before.
    """
    assert not plain or "counterprobe" not in sys.modules
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        child = os.fork()
        if child == 0:
            code = 70
            try:
                numba.config.DISABLE_JIT = plain
                os.environ["NUMBA_DISABLE_JIT"] = str(int(plain))
                os.chdir(mutants.ROOT)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                loop = Loop(faults, plain=plain)
                words = ["-q", "-n", "0", "-p", "no:cacheprovider", *mutants.QUIET]
                # Integers that wrap round do so silently when compiled.
                words += ["-W", "ignore::RuntimeWarning"] if plain else []
                code = int(pytest.main([*words, *tests], plugins=[loop]))
                result = {"outcomes": loop.outcomes, "set_aside": loop.set_aside}
                found.write_text(json.dumps(result), encoding="utf-8")
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) or not found.exists():
            return None
        outcome: dict[str, list[str]] = json.loads(found.read_text(encoding="utf-8"))
        return outcome


# ----- Choosing -----------------------------------------------------------------------------


def shuffled(file: str, count: int, seed: int) -> list[int]:
    """Return the numbers of a module's faults in an order that file and seed decide."""
    numbers = list(range(count))
    random.Random(f"{seed} {file}").shuffle(numbers)
    return numbers


def survivors_of(report: Path) -> dict[str, list[int]]:
    """Return the numbers of the faults that survived, file by file."""
    found: dict[str, list[int]] = {}
    for line in report.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        numbers = [one["number"] for one in record["verdicts"]
                   if one["outcome"] == mutants.SURVIVED]  # fmt: skip
        if numbers:
            found[record["file"]] = numbers
    return found


def chosen_faults(
    file: str, numbers: list[int] | None, seed: int, most: int, *, kernels: bool
) -> tuple[list[Fault], int]:
    """Return the first faults of a module that can be exchanged, and how many were left out."""
    text = (mutants.ROOT / mutants.PACKAGE / file).read_text(encoding="utf-8")
    faults = mutants.Faults(text)
    chosen: list[Fault] = []
    left_out = 0
    for number in shuffled(file, len(faults), seed) if numbers is None else numbers:
        if len(chosen) == most:
            break
        if faults.is_in_kernel(number) != kernels:
            continue
        line, change, source = faults[number]
        functions = names_changed(text, source)
        if functions:
            chosen.append(Fault(file, number, line, change, source, frozenset(functions)))
        elif source != text:
            left_out += 1
    return chosen, left_out


# ----- Reporting ----------------------------------------------------------------------------


class Report:
    """What was found of each module so far.

    Parameters
    ----------
    place : Path
        A record of each module is written here, one a line.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._records: dict[str, dict[str, Any]] = {}
        place.parent.mkdir(exist_ok=True)
        self._write()

    def add(self, faults: list[Fault], outcomes: list[str], left_out: int) -> None:
        """Note and print what the nearest tests say of the faults of a module."""
        file = faults[0].file
        verdicts = [
            {"number": one.number, "line": one.line, "change": one.change, "outcome": outcome,
             "wider": False}
            for one, outcome in zip(faults, outcomes, strict=True)
        ]  # fmt: skip
        self._records[file] = {"file": file, "left_out": left_out, "verdicts": verdicts}
        self._write()
        caught = len(outcomes) - outcomes.count(mutants.SURVIVED)
        print(f"{file}: {caught} of {len(outcomes)} caught, {left_out} left out", flush=True)
        for one, outcome in zip(faults, outcomes, strict=True):
            if outcome == mutants.SURVIVED:
                print(f"  survived #{one.number}: line {one.line}  {one.change:.200}", flush=True)

    def correct(self, faults: list[Fault], outcomes: list[str]) -> None:
        """Note and print what wider tests say of faults that survived the nearest."""
        for fault, outcome in zip(faults, outcomes, strict=True):
            for one in self._records[fault.file]["verdicts"]:
                if one["number"] == fault.number:
                    one.update(outcome=outcome, wider=True)
            print(f"  wider tests, {fault.file} #{fault.number}: {outcome}", flush=True)
        self._write()

    def _write(self) -> None:
        lines = [json.dumps(record) + "\n" for record in self._records.values()]
        self._place.write_text("".join(lines), encoding="utf-8")

    def table(self) -> tuple[str, float]:
        """Return a table with a line for each folder, and the share that was caught of all."""
        folders: dict[str, list[dict[str, Any]]] = {}
        for file, record in self._records.items():
            folder, _, _ = file.rpartition("/")
            folders.setdefault(folder or file, []).append(record)
        heads = ("by wider tests", "by hanging", "by index", "left out")
        lines = [f"{'modules':28}{'judged':>8}{'caught':>8}{'share':>7}"
                 + "".join(f"{head:>{len(head) + 2}}" for head in heads)]  # fmt: skip
        share = 1.0
        for name, records in [*folders.items(), ("together", [*self._records.values()])]:
            verdicts = [one for record in records for one in record["verdicts"]]
            caught = [one for one in verdicts if one["outcome"] != mutants.SURVIVED]
            wider = sum(one["wider"] for one in caught)
            hung, by_index = (sum(one["outcome"] == outcome for one in caught)
                              for outcome in (mutants.HUNG, BY_INDEX))  # fmt: skip
            left_out = sum(record["left_out"] for record in records)
            share = len(caught) / len(verdicts) if verdicts else 0.0
            lines.append(f"{f'{name} ({len(records)})':28}{len(verdicts):8}{len(caught):8}"
                         f"{share:7.0%}{wider:16}{hung:12}{by_index:10}{left_out:10}")  # fmt: skip
        return "\n".join(lines), share


def judge_by_wider_tests(survivors: list[Fault], report: Report, *, kernels: bool) -> None:
    """Judge what survived by wider tests, which modules of one folder have in common."""
    groups: dict[tuple[str, ...], list[Fault]] = {}
    for fault in survivors:
        groups.setdefault(tuple(wider_tests(fault.file)), []).append(fault)
    for tests, faults in groups.items():
        found = judge(faults, list(tests), plain=kernels)
        if found is None:
            print(f"mutants: {' '.join(tests)} could not judge", flush=True)
        else:
            report.correct(faults, found["outcomes"])


def main() -> None:
    """Read the command line, and judge some faults of each module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[""], help="begins of the names of files")
    parser.add_argument("--most", type=int, default=10, help="faults of one module, at most")
    parser.add_argument("--seconds", type=float, help="begin no further module after these")
    parser.add_argument("--kernels", action="store_true", help="judge kernels, as Python")
    parser.add_argument("--wider", action="store_true", help="judge survivors by wider tests too")
    parser.add_argument("--json", type=Path, default=mutants.ROOT / ".mutants" / "memory.jsonl")
    parser.add_argument("--again", type=Path, help="a report: judge only what survived there")
    chosen = parser.parse_args()
    again = None if chosen.again is None else survivors_of(chosen.again)
    for name in mutants.SHARED:
        importlib.import_module(name)
    files = [file for file in mutants.core_files() if file.startswith(tuple(chosen.only))
             and (again is None or file in again)]  # fmt: skip
    if chosen.seconds is not None:
        random.Random(chosen.seed).shuffle(files)  # where time ends must not favour a folder

    began = time.monotonic()
    report = Report(chosen.json)
    survivors: list[Fault] = []
    for file in files:
        if chosen.seconds is not None and time.monotonic() - began > chosen.seconds:
            break
        numbers = None if again is None else again[file]
        faults, left_out = chosen_faults(
            file, numbers, chosen.seed, chosen.most, kernels=chosen.kernels
        )
        if not faults:
            continue
        found = judge(faults, nearest_tests(file), plain=chosen.kernels)
        if found is None:
            print(f"mutants: {file} could not be judged", flush=True)
            continue
        if found["set_aside"]:
            print(f"{file}: {len(found['set_aside'])} tests set aside", flush=True)
        report.add(faults, found["outcomes"], left_out)
        survivors += [fault for fault, outcome in zip(faults, found["outcomes"], strict=True)
                      if outcome == mutants.SURVIVED]  # fmt: skip
    if chosen.wider:
        judge_by_wider_tests(survivors, report, kernels=chosen.kernels)
    table, share = report.table()
    print(table)
    sys.exit(0 if share >= mutants.GOAL else 1)


if __name__ == "__main__":
    main()
