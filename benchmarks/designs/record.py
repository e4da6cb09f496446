"""Results on disk after every single measurement: what comes later can fail without loss."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _results import failures_of, plain, read_continued, write_results

__all__ = ["Entry", "Record", "Tasks", "device_name", "mean_row", "read_tasks"]

Entry = dict[str, Any]
Tasks = dict[str, dict[str, dict[str, Entry]]]


class Record:
    """Measurements by task, part (such as ``prices``) and key.

    Parameters
    ----------
    file : Path or None
        Where they go. A file of the same settings is continued: what it has is not measured again.
    settings : dict
        What the measurements depend on.
    claims : callable
        What is claimed of the measurements: judged anew whenever they are written.
    say : callable
        Told one line about each measurement.
    """

    def __init__(
        self,
        file: Path | None,
        settings: dict[str, Any],
        claims: Callable[[Tasks], list[Entry]],
        say: Callable[[str], None],
    ) -> None:
        self.file = file
        self.settings = _plain(settings)
        self.tasks: Tasks = {}
        self._claims = claims
        self._say = say
        self._started = time.perf_counter()
        if file is not None and file.is_file():
            self.tasks = read_continued(file, self.settings, "tasks")

    @property
    def seconds(self) -> float:
        """Time since this began."""
        return time.perf_counter() - self._started

    def part(self, task: str, part: str) -> dict[str, Entry]:
        """Return the measurements of one kind, those that failed left out."""
        known = self.tasks.get(task, {}).get(part, {})
        return {key: value for key, value in known.items() if "error" not in value}

    def measure(self, task: str, part: str, key: str, work: Callable[[], Entry]) -> Entry | None:
        """Return a measurement, from the file where it is there; None if it fails.

        A failure is kept in place of the result, so that the rest is still measured.
        """
        known = self.part(task, part)
        if key in known:
            return known[key]
        started = time.perf_counter()
        try:
            found = _plain(work())
        except Exception as problem:
            traceback.print_exc()
            found = {"error": f"{type(problem).__name__}: {problem}"}
        found["seconds"] = round(time.perf_counter() - started, 2)
        self.tasks.setdefault(task, {}).setdefault(part, {})[key] = found
        self.write()
        self._say(f"[{self.seconds:6.1f} s] {task} {part} {key}: {in_short(found)}")
        return None if "error" in found else found

    @contextmanager
    def attempt(self, task: str) -> Iterator[None]:
        """Go on with the next task where this one cannot even be begun; say so, and keep it."""
        try:
            yield
        except Exception as problem:
            if not isinstance(problem, ValueError):  # which says in one line what is wrong
                traceback.print_exc()
            failure = {"error": f"{type(problem).__name__}: {problem}"}
            self.tasks.setdefault(task, {})["task"] = {"begun": failure}
            self.write()
            self._say(f"[{self.seconds:6.1f} s] {task}: {failure['error']}")
        else:
            self.tasks.get(task, {}).pop("task", None)

    @property
    def claims(self) -> list[Entry]:
        """Each claim with its numbers, and whether it holds."""
        judged: list[Entry] = _plain(self._claims(self.tasks))
        return judged

    @property
    def failures(self) -> list[str]:
        """What could not be measured, one line each."""
        return failures_of(self.tasks)

    @property
    def figures(self) -> dict[str, float]:
        """The measured ratios by name, for ``benchmarks/compare.py``."""
        return {
            f"{task}.{part}.{key}.{name}".replace(" ", "_"): value
            for task, parts in self.tasks.items()
            for part, entries in parts.items()
            for key, entry in entries.items()
            for name, value in entry.items()
            if name.endswith(" ratio")
        }

    def write(self) -> None:
        """Write the file, whole or not at all, what is claimed first."""
        content = {
            "claims": self.claims,
            "figures": self.figures,
            "settings": self.settings,
            "tasks": self.tasks,
        }
        write_results(self.file, content)


def _plain(value: Any) -> Any:
    """Keep five digits: a measurement has no more."""
    return plain(value, digits=5)


def device_name(device: str) -> str:
    """Return what the device is called."""
    if torch.device(device).type != "cuda":
        return str(device)
    return str(torch.cuda.get_device_name(device))


def read_tasks(file: Path) -> Tasks:
    """Return the measurements of a file that a record wrote."""
    tasks: Tasks = json.loads(file.read_text())["tasks"]
    return tasks


def mean_row(
    parts: Sequence[Mapping[str, Entry]], ways: Sequence[str], batches: int, ours: str, free: str
) -> Entry:
    """Return the mean price of every way over parts that have all of them, with errors.

    Beside the ways stand the differences of ``ours`` to ``free`` and to ``own``, part by part, and
    in how many parts ours is the cheaper; errors are those of means over parts.
    """
    names = {way: f"{way} {batches}" for way in ways}
    whole = [one for one in parts if all("kl" in one.get(name, {}) for name in names.values())]
    if not whole:
        return {}
    values = {way: np.array([one[name]["kl"] for one in whole]) for way, name in names.items()}
    values[f"{ours} less {free}"] = values[ours] - values[free]
    values[f"{ours} less own"] = values[ours] - values["own"]
    row: Entry = {"templates": len(whole)}
    for name, found in values.items():
        row[name] = float(found.mean())
        several = len(found) > 1
        row[f"{name} se"] = float(found.std(ddof=1) / len(found) ** 0.5) if several else None
    row[f"cheaper than {free}"] = int((values[f"{ours} less {free}"] < 0).sum())
    return row


def in_short(found: Entry) -> str:
    """Return the plain numbers of a measurement in one line."""
    shown = []
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            continue
        if name == "error" or not isinstance(value, str):
            shown.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
    return ", ".join(shown)
