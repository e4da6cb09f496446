"""Notebooks: what they show is what running them shows, and nothing of a machine is in them."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import notebooks
import pytest

BOOKS = notebooks.notebooks()
MOST_BYTES = 200_000


@pytest.mark.parametrize(
    "name",
    ["01", *(pytest.param(name, marks=pytest.mark.slow) for name in ("02", "03", "04"))],
)
def test_running_a_notebook_shows_what_is_kept(name):
    """Every text and number of every cell, in a kernel of its own."""
    assert [book.name[:2] for book in BOOKS] == ["01", "02", "03", "04"]
    command = [sys.executable, notebooks.__file__, "--check", "--only", name]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr[-2000:]


@pytest.mark.parametrize("file", BOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_kept_small_whole_and_free_of_the_machine(file: Path):
    assert file.stat().st_size < MOST_BYTES
    text = file.read_text("utf-8")
    assert not re.search(r"/(?:tmp|home|root|work)/|Traceback|IPKernelApp", text)
    book = nbformat.read(file, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [one for cell in code for one in cell.outputs]
    assert outputs and not [one for one in outputs if one.output_type == "error"]
    assert [one for one in outputs if "image/png" in one.get("data", {})], "a picture"
    assert [one for one in outputs if 'class="counterprobe"' in str(one.get("data", ""))]
    assert book.cells[0].source.startswith("# "), "a title first"


@pytest.mark.parametrize(
    ("kept", "new", "count"),
    [
        (["a 1.0 b"], ["a 1.0005 b"], 0),
        (["a 1.0 b"], ["a 1.01 b"], 1),
        (["a 0 b"], ["a 1e-300 b"], 1),
        (["1,024 rows"], ["1,025 rows"], 0),
        (["20 rows"], ["21 rows"], 1),
        (["same   blanks"], ["same blanks"], 0),
        (["words"], ["other"], 1),
        (["one", "two"], ["one"], 1),
    ],
)
def test_what_counts_as_another_outcome(kept, new, count):
    assert len(notebooks.differences(kept, new)) == count
