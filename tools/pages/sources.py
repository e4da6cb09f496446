"""Files of results by name, and what made each of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["FOLDERS", "ROOT", "read_sources", "result_files"]

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "benchmarks" / "results", ROOT / "docs" / "data")


def result_files() -> list[Path]:
    """Return every committed file of results."""
    return [file for folder in FOLDERS for file in sorted(folder.glob("*.json"))]


def read_sources() -> dict[str, Any]:
    """Return what every file holds, by the name of the file without its ending."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in result_files()}
