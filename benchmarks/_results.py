"""What benchmarks of learned models share: files that are continued, and one program."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _made import Made, made_again

__all__ = ["failures_of", "plain", "read_continued", "run_program", "write_results"]

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


def write_results(file: Path | None, content: dict[str, Any], taken: Sequence[Made] = ()) -> None:
    """Write a file, whole or not at all, with what made it and the versions it depends on."""
    if file is None:
        return
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    written = {"made": made_again(file, taken), **content, **versions}
    partial.write_text(json.dumps(written, indent=1) + "\n")
    os.replace(partial, file)


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
