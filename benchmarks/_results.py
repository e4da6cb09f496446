"""What benchmarks of learned models share: files that are continued, and one program."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _made import made_again

__all__ = ["failures_of", "made_by", "plain", "read_continued", "run_program", "write_results"]

Entries = dict[str, dict[str, Any]]


def read_continued(file: Path, settings: dict[str, Any], what: str) -> dict[str, Any]:
    """Return the measurements of a file; refuse one that was measured with other settings."""
    known = json.loads(file.read_text())
    if known.get("settings") != settings:
        raise ValueError(
            f"{file} was measured with other settings; write to another file, or remove it"
        )
    measured: dict[str, Any] = known[what]
    return measured


def write_results(file: Path | None, content: dict[str, Any]) -> None:
    """Write a file, whole or not at all, with what made it and the versions it depends on."""
    if file is None:
        return
    versions = {"python": platform.python_version(), "torch": torch.__version__, **made_by()}
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    written = {"made": made_again(file), **content, **versions}
    partial.write_text(json.dumps(written, indent=1) + "\n")
    os.replace(partial, file)


def made_by() -> dict[str, Any]:
    """Return the command, the commit, the machine and the date of a result."""
    commit = os.environ.get("COUNTERPROBE_COMMIT")
    if commit is None:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
        commit = asked.stdout.strip() or "unknown"
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if torch.cuda.is_available():
        machine += f", {torch.cuda.get_device_name()}"
    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit,
        "machine": machine,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def failures_of(measured: dict[str, dict[str, Entries]]) -> list[str]:
    """Return what could not be measured, one line each."""
    return [
        f"{name} {part} {key}: {value['error']}"
        for name, parts in measured.items()
        for part, entries in parts.items()
        for key, value in entries.items()
        if "error" in value
    ]


def plain(value: Any, digits: int = 6) -> Any:
    """Turn arrays and their numbers into what JSON has; what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, digits) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return plain(value.tolist(), digits)
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if np.isfinite(value) else None
    return value


def run_program(
    parse: Callable[[Sequence[str] | None], argparse.Namespace],
    run: Callable[[argparse.Namespace], int],
    words: Sequence[str] | None = None,
) -> int:
    """Run a benchmark; bad input ends with one line."""
    try:
        return run(parse(words))
    except (ValueError, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
