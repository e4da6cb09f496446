"""Results on disk after every single measurement: what comes later can fail without loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from _made import Made
from _results import failures_of, plain, read_continued, write_results

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
        self.taken: list[Made] = []
        if file is not None and file.is_file():
            self.merge(file)

    def merge(self, file: Path) -> None:
        """Take over the laws of a file; refuse one that was measured with other settings."""
        self.laws.update(read_continued(file, self.settings, "laws"))

    def take(self, file: Path) -> None:
        """Put what another file measured, on more sequences say, in the place of what is here.

        Only what both have; failures stay where they are. What made that file is kept.
        """
        other = json.loads(file.read_text())
        for law, parts in other["laws"].items():
            for part, entries in parts.items():
                known = self.laws.get(law, {}).get(part, {})
                for key, value in entries.items():
                    if key in known and "error" not in value:
                        known[key] = value
        self.taken += other["made"]

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
        return failures_of(self.laws)

    def write(self) -> None:
        """Write the file, whole or not at all, the few numbers that matter first."""
        content = {
            "figures": plain(figures(self.laws)),
            "claims": plain(claims(self.laws)),
            "settings": self.settings,
            "laws": self.laws,
        }
        write_results(self.file, content, self.taken)
