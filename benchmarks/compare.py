"""How far the last benchmark results have drifted from the committed ones.

Reads ``benchmarks/results/*.json`` from the working tree and from the last commit and shows every
figure that is a ratio, old beside new. Exits with 1 if a ratio fell by more than a third.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def committed(file: Path) -> dict[str, float] | None:
    """Return the figures of a file as committed, or None."""
    shown = subprocess.run(
        ["git", "show", f"HEAD:./{file.name}"], cwd=file.parent, capture_output=True, text=True
    )
    return json.loads(shown.stdout).get("figures", {}) if shown.returncode == 0 else None


def main() -> int:
    """Compare every ratio."""
    worst = 1.0
    for file in sorted(RESULTS.glob("*.json")):
        new = json.loads(file.read_text()).get("figures", {})
        old = committed(file)
        if old is None:
            print(f"{file.name}: nothing committed to compare with")
            continue
        for key, value in new.items():
            if key.endswith("_ratio") and key in old:
                change = value / old[key]
                worst = min(worst, change)
                print(f"{file.stem}.{key:45s} {old[key]:9.3g} -> {value:9.3g}  x{change:.2f}")
    return 1 if worst < 2 / 3 else 0


if __name__ == "__main__":
    sys.exit(main())
