"""Results on disk after every single measurement: what comes later can fail without loss."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from denoisers.claims import claims, figures

__all__ = ["Store"]

Parts = dict[str, dict[str, dict[str, Any]]]


class Store:
    """Measurements by law, part (such as ``samplers``) and key.

    Parameters
    ----------
    file : Path or None
        Where they go. A file of the same settings is continued: what it has is not measured again.
    settings : dict
        What the measurements depend on.
    """

    def __init__(self, file: Path | None, settings: dict[str, Any]) -> None:
        self.file = file
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.laws: dict[str, Parts] = {}
        if file is not None and file.is_file():
            self.merge(file)

    def merge(self, file: Path) -> None:
        """Take over the laws of a file; refuse one that was measured with other settings."""
        known = json.loads(file.read_text())
        if known.get("settings") != self.settings:
            raise ValueError(
                f"{file} was measured with other settings; write to another file, or remove it"
            )
        self.laws.update(known["laws"])

    def part(self, law: str, part: str) -> dict[str, dict[str, Any]]:
        """Return the measurements of one kind, those that failed left out."""
        known = self.laws.get(law, {}).get(part, {})
        return {key: value for key, value in known.items() if "error" not in value}

    def has(self, law: str, part: str, key: str) -> bool:
        """Whether something was measured already."""
        return key in self.part(law, part)

    def add(self, law: str, part: str, key: str, value: dict[str, Any]) -> None:
        """Keep a measurement, and write everything."""
        self.laws.setdefault(law, {}).setdefault(part, {})[key] = plain(value)
        self.write()

    @property
    def failures(self) -> list[str]:
        """What could not be measured, one line each."""
        return [
            f"{law} {part} {key}: {value['error']}"
            for law, parts in self.laws.items()
            for part, entries in parts.items()
            for key, value in entries.items()
            if "error" in value
        ]

    def write(self) -> None:
        """Write the file, whole or not at all, the few numbers that matter first."""
        if self.file is None:
            return
        content = {
            "figures": plain(figures(self.laws)),
            "claims": plain(claims(self.laws)),
            "settings": self.settings,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "laws": self.laws,
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_name(f".{self.file.name}.partial")
        partial.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(partial, self.file)


def plain(value: Any) -> Any:
    """Turn arrays and their numbers into what JSON has; NaN becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return value
