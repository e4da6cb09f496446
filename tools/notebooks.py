"""Run the notebooks of docs/notebooks anew, and keep what they show.

    python tools/notebooks.py                 # all of them, in place
    python tools/notebooks.py --only 02       # those whose names begin so
    python tools/notebooks.py --check         # compare with what is kept, write nothing

Kept are sources and outputs, nothing that changes from run to run: no times, no counters of the
kernel, no standard error. Numbers count as the same within a thousandth; those of learned models
within a tenth, since their rows differ in the last bits between machines, and a draw that flips
moves a measured price within its error.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
SECONDS = 900
CLOSE, LEARNED_CLOSE = 1e-3, 0.1
LEARNED = ("03", "04")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?", re.I)


def notebooks(only: str = "") -> list[Path]:
    """Return the notebooks in order."""
    return [file for file in sorted(FOLDER.glob("*.ipynb")) if file.name.startswith(only)]


def executed(file: Path) -> Any:
    """Run a notebook in a kernel of its own, and return it with what it shows."""
    book = nbformat.read(file, as_version=4)
    where = {"metadata": {"path": str(file.parent)}}
    NotebookClient(book, timeout=SECONDS, kernel_name="python3", resources=where).execute()
    return cleaned(book)


def cleaned(book: Any) -> Any:
    """Leave out what changes from run to run."""
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    count = 0
    for k, cell in enumerate(book.cells):
        cell.id = f"cell-{k:02d}"
        cell.metadata = {}
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            for one in cell.outputs:
                one.pop("execution_count", None)
                if one.output_type == "execute_result":
                    one.execution_count = count
                    one.metadata = {}
    return book


def shown(book: Any) -> list[str]:
    """Return the texts that each cell of code printed or returned."""
    texts = []
    for cell in book.cells:
        if cell.cell_type == "code":
            parts = [
                one.text if one.output_type == "stream" else one.data.get("text/plain", "")
                for one in cell.outputs
                if one.output_type in ("stream", "execute_result")
            ]
            texts.append("".join(parts))
    return texts


def differences(kept: Sequence[str], new: Sequence[str], close: float = CLOSE) -> list[str]:
    """Say where two runs show something else: other words, or numbers further apart.

    Examples
    --------
    >>> differences(["3 of 1,000: 0.5"], ["3 of 1,000: 0.50001"])
    []
    >>> differences(["3 of 1,000"], ["4 of 1,000"])
    ['cell 1 shows 4 where 3 is kept']
    """
    if len(kept) != len(new):
        return [f"{len(new)} cells of code where {len(kept)} are kept"]
    found = []
    for k, (before, after) in enumerate(zip(kept, new, strict=True), 1):
        if NUMBER.sub("#", before).split() != NUMBER.sub("#", after).split():
            found.append(f"cell {k} says {after!r:.200} where {before!r:.200} is kept")
            continue
        for old, one in zip(NUMBER.findall(before), NUMBER.findall(after), strict=True):
            x, y = (float(text.replace(",", "")) for text in (old, one))
            if abs(x - y) > close * max(abs(x), abs(y)):
                found.append(f"cell {k} shows {one} where {old} is kept")
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Run what was asked for; the exit code says whether a check failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="names that begin so")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    asked = parser.parse_args(words)
    failed = 0
    for file in notebooks(asked.only):
        book = executed(file)
        if asked.check:
            close = LEARNED_CLOSE if file.name.startswith(LEARNED) else CLOSE
            wrong = differences(shown(nbformat.read(file, as_version=4)), shown(book), close)
            failed += len(wrong)
            for line in wrong:
                print(f"{file.name}: {line}")
        else:
            nbformat.write(book, file)
            print(f"{file.name}: {file.stat().st_size / 1000:,.0f} kB")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
