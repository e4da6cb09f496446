"""Results on disk after every single measurement: what comes later can fail without loss."""

from __future__ import annotations

import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["Record", "device_name", "plain", "read_tasks"]

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
        self.settings = plain(settings)
        self.tasks: Tasks = {}
        self._claims = claims
        self._say = say
        self._started = time.perf_counter()
        if file is not None and file.is_file():
            known = json.loads(file.read_text())
            if known.get("settings") != self.settings:
                raise ValueError(
                    f"{file} was measured with other settings; write to another file, or remove it"
                )
            self.tasks = known["tasks"]

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
            found = plain(work())
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
        judged: list[Entry] = plain(self._claims(self.tasks))
        return judged

    @property
    def failures(self) -> list[str]:
        """What could not be measured, one line each."""
        return [
            f"{task} {part} {key}: {value['error']}"
            for task, parts in self.tasks.items()
            for part, entries in parts.items()
            for key, value in entries.items()
            if "error" in value
        ]

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
        if self.file is None:
            return
        content = {
            "claims": self.claims,
            "figures": self.figures,
            "settings": self.settings,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "tasks": self.tasks,
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_name(f".{self.file.name}.partial")
        partial.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(partial, self.file)


def device_name(device: str) -> str:
    """Return what the device is called."""
    if torch.device(device).type != "cuda":
        return str(device)
    return str(torch.cuda.get_device_name(device))


def read_tasks(file: Path) -> Tasks:
    """Return the measurements of a file that a record wrote."""
    tasks: Tasks = json.loads(file.read_text())["tasks"]
    return tasks


def plain(value: Any) -> Any:
    """Turn arrays and their numbers into what JSON has; what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.5g}") if np.isfinite(value) else None
    return value


def in_short(found: Entry) -> str:
    """Return the plain numbers of a measurement in one line."""
    shown = []
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            continue
        if name == "error" or not isinstance(value, str):
            shown.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
    return ", ".join(shown)
