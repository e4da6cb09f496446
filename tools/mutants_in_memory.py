"""Judge faults without leaving the process: only functions are exchanged, and only tests run.

    .venv/bin/python tools/mutants_in_memory.py --only run/ --most 12 --seed 1

The faults are those of ``mutants.py``; file and seed decide which come first. The tests nearest to
a module are collected and run twice without a fault, the second time in a copy of the process (a
fork). Then each fault is put into the code of its function, in a copy of its own, where the same
tests run until one fails: nothing is loaded anew, and most faults take about a second. Compiled
kernels cannot be exchanged in this way, nor can default values: they are counted as left out, and
``mutants.py`` judges them.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import random
import signal
import time
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import mutants
import pytest
from numba.core.registry import CPUDispatcher

# Modules that tests of another name cover, and the tests that come nearest.
NEAREST = {
    "planning/make.py": ["tests/planning/test_make.py", "tests/planning/test_gap.py"],
    "probing/compressed/data.py": ["tests/probing/compressed/test_readings.py"],
    "probing/packed/planes.py": ["tests/probing/packed/test_votes.py"],
    "run/candidates.py": ["tests/run/test_candidates.py", "tests/run/test_remasking.py"],
    "run/door.py": [
        "tests/run/test_door.py", "tests/run/test_unmasking.py", "tests/run/test_recheck.py",
        "tests/run/test_verifying.py", "tests/run/test_gathered.py",
        "tests/run/test_attention.py", "tests/run/test_transcript.py",
    ],
    "run/gathered.py": ["tests/run/test_gathered.py", "tests/run/test_attention.py"],
    "run/joined.py": [
        "tests/run/test_joined.py", "tests/run/test_gathered.py", "tests/run/test_attention.py",
    ],
    "run/reading.py": [
        "tests/run/test_reading.py", "tests/run/test_unmasking.py", "tests/run/test_listening.py",
        "tests/run/test_recheck.py", "tests/run/test_gathered.py",
    ],
    "run/recognition.py": ["tests/run/test_recognition.py", "tests/run/test_checkpoint.py"],
    "run/reply_check.py": ["tests/run/test_reply_check.py", "tests/run/test_unmasking.py"],
    "run/rounds.py": ["tests/run/test_rounds.py", "tests/run/test_lockstep.py"],
    "run/streamed.py": ["tests/run/test_streamed.py", "tests/run/test_refusals.py"],
    "run/transcript.py": ["tests/run/test_transcript.py", "tests/run/test_listening.py"],
    "run/unmasking.py": [
        "tests/run/test_unmasking.py", "tests/run/test_candidates.py",
        "tests/run/test_verifying.py", "tests/run/test_remasking.py",
        "tests/run/test_listening.py", "tests/run/test_attention.py",
    ],
    "run/verifying.py": ["tests/run/test_verifying.py"],
    "run/whole.py": ["tests/run/test_whole.py", "tests/run/test_gathered.py"],
}  # fmt: skip
# A fault may make a loop endless: so many times what the tests took without it, and at least this.
PATIENCE, LEAST_SECONDS = 8.0, 10.0
# How a process ends in which the code could not be exchanged: no test has failed there.
FAILED_OUTSIDE = 71


def nearest_tests(file: str) -> list[str]:
    """Return the tests that come nearest to a module."""
    return NEAREST.get(file) or mutants.tests_of(file)[0]


def functions_of(code: CodeType) -> dict[str, CodeType]:
    """Return the functions and methods of a module's code by their qualified names."""
    found: dict[str, CodeType] = {}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & 0x2:  # CO_NEWLOCALS: a function, where a class body has none
                found[inner.co_qualname] = inner
            else:
                found |= functions_of(inner)
    return found


class Living:
    """The functions of a module that stand in memory, and can be given other code.

    Parameters
    ----------
    place : Path
        The module's file.
    """

    def __init__(self, place: Path) -> None:
        self._place = str(place)
        self._before = functions_of(
            compile(place.read_text(encoding="utf-8"), self._place, "exec")
        )
        objects = gc.get_objects()
        compiled = {id(one.py_func) for one in objects if type(one) is CPUDispatcher}
        self._functions = [
            one for one in objects
            if type(one) is FunctionType and one.__code__.co_filename == self._place
            and id(one) not in compiled
        ]  # fmt: skip
        self._caches = [
            one for one in objects
            if type(one) is functools._lru_cache_wrapper
            and str(getattr(one, "__module__", "")).startswith("counterprobe")
        ]  # fmt: skip

    def changed(self, source: str) -> list[tuple[FunctionType, CodeType]]:
        """Return the functions that are another with a changed source, each with its new code."""
        after = functions_of(compile(source, self._place, "exec"))
        names = {name for name, code in self._before.items() if after.get(name, code) != code}
        return [
            (one, after[one.__code__.co_qualname])
            for one in self._functions
            if one.__code__.co_qualname in names
        ]

    def exchange(self, changed: list[tuple[FunctionType, CodeType]]) -> None:
        """Give functions their new code, and forget what the old ones returned."""
        for function, code in changed:
            function.__code__ = code
        for cache in self._caches:
            cache.cache_clear()


class Loop:
    """Takes the place of pytest's loop over tests: once without a fault, then once for each."""

    def __init__(self, file: str, faults: mutants.Faults, numbers: list[int], most: int) -> None:
        self._place = mutants.ROOT / mutants.PACKAGE / file
        self._file = file
        self._faults = faults
        self._numbers = numbers
        self._most = most
        self.verdicts: list[dict[str, Any]] = []
        self.left_out = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge the faults."""
        began = time.monotonic()
        self._run(session)
        if session.testsfailed or not session.items:
            raise SystemExit(f"mutants: the tests of {self._file} fail without a fault")
        most_seconds = max(LEAST_SECONDS, PATIENCE * (time.monotonic() - began))
        living = Living(self._place)
        source = self._place.read_text(encoding="utf-8")
        if self._judge(session, living, [], most_seconds) != mutants.SURVIVED:
            raise SystemExit(f"mutants: the tests of {self._file} fail when they run again")
        for number in self._numbers:
            if len(self.verdicts) == self._most:
                break
            line, change, after = self._faults[number]
            if after == source:
                continue
            changed = living.changed(after)
            if not changed:
                self.left_out += 1
                continue
            outcome = self._judge(session, living, changed, most_seconds)
            self.verdicts.append({"file": self._file, "number": number, "line": line,
                                  "change": change, "outcome": outcome})  # fmt: skip
        return True

    def _run(self, session: pytest.Session) -> None:
        for k, item in enumerate(session.items):
            item._initrequest()  # type: ignore[attr-defined]
            following = session.items[k + 1] if k + 1 < len(session.items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed or session.shouldfail:
                return

    def _judge(
        self,
        session: pytest.Session,
        living: Living,
        changed: list[tuple[FunctionType, CodeType]],
        seconds: float,
    ) -> str:
        child = os.fork()
        if child == 0:
            code = FAILED_OUTSIDE
            try:
                os.setsid()
                living.exchange(changed)
                code = 1
                self._run(session)
                code = 1 if session.testsfailed else 0
            finally:
                os._exit(code)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                if code == FAILED_OUTSIDE:
                    raise SystemExit(f"mutants: a fault could not be put into {self._file}")
                return mutants.SURVIVED if code == 0 else mutants.CAUGHT
            time.sleep(0.01)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return mutants.HUNG


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


def judge_file(file: str, numbers: list[int] | None, seed: int, most: int, out: Path) -> None:
    """Judge faults of one module in a process of its own; add what was found to a file."""
    faults = mutants.Faults((mutants.ROOT / mutants.PACKAGE / file).read_text(encoding="utf-8"))
    if numbers is None:
        numbers = shuffled(file, len(faults), seed)
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.chdir(mutants.ROOT)
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, 1)
            loop = Loop(file, faults, numbers, most)
            words = ["-q", "-n", "0", "-p", "no:cacheprovider", *mutants.QUIET]
            code = int(pytest.main([*words, *nearest_tests(file)], plugins=[loop]))
            with out.open("a", encoding="utf-8") as lines:
                record = {"file": file, "faults": len(faults), "left_out": loop.left_out,
                          "verdicts": loop.verdicts}  # fmt: skip
                lines.write(json.dumps(record) + "\n")
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status):
        print(f"mutants: {file} could not be judged", flush=True)


def main() -> None:
    """Read the command line, and judge some faults of each module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[""], help="begins of the names of files")
    parser.add_argument("--most", type=int, default=10, help="faults of one module, at most")
    parser.add_argument("--json", type=Path, default=mutants.ROOT / ".mutants" / "memory.jsonl")
    parser.add_argument("--again", type=Path, help="a report: judge only what survived there")
    chosen = parser.parse_args()
    again = None if chosen.again is None else survivors_of(chosen.again)
    for name in mutants.SHARED:
        __import__(name)
    chosen.json.parent.mkdir(exist_ok=True)
    chosen.json.write_text("", encoding="utf-8")
    judged = caught = 0
    for file in mutants.core_files():
        if not file.startswith(tuple(chosen.only)):
            continue
        if again is not None and file not in again:
            continue
        numbers = None if again is None else again[file]
        judge_file(file, numbers, chosen.seed, chosen.most, chosen.json)
        record = json.loads(chosen.json.read_text(encoding="utf-8").splitlines()[-1])
        if record["file"] != file:
            continue
        survivors = [one for one in record["verdicts"] if one["outcome"] == mutants.SURVIVED]
        judged += len(record["verdicts"])
        caught += len(record["verdicts"]) - len(survivors)
        print(f"{file}: {len(record['verdicts']) - len(survivors)} of {len(record['verdicts'])} "
              f"caught, {record['left_out']} left out", flush=True)  # fmt: skip
        for one in survivors:
            print(
                f"  survived #{one['number']}: line {one['line']}  {one['change']:.200}",
                flush=True,
            )
    print(f"mutants: {caught} of {judged} caught")


if __name__ == "__main__":
    main()
