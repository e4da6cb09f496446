"""README.md: what it shows works as printed, with what it told the reader to install."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from printed_pages import ROOT, environment

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TEXT, flags=re.DOTALL)
PYTHON = [text for language, text in BLOCKS if language == "python"]
PRINTED = re.findall(r"prints\n\n```\n(.*?)```", TEXT, flags=re.DOTALL)
COMMANDS = [
    line.split("#")[0].strip()
    for language, text in BLOCKS
    if language == ""
    for line in text.splitlines()
    if line.startswith("counterprobe ")
]
# Those of the quick tests: a program takes seconds to start.
QUICK = ("--plot quality.png", "counterprobe infill")


def run(command: list[str], folder: Path, names: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=names, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.parametrize("count", [2, pytest.param(len(PYTHON), marks=pytest.mark.slow)])
def test_the_python_blocks_run_in_order_and_print_what_is_shown(tmp_path, count):
    page = tmp_path / "page.py"
    page.write_text("\n\n".join(PYTHON[:count]), encoding="utf-8")
    printed = run([sys.executable, str(page)], tmp_path, environment(tmp_path))
    assert len(printed.splitlines()) >= count
    shown = "".join(PRINTED)
    assert printed == (shown if count == len(PYTHON) else shown[: len(printed)])
    assert (tmp_path / "path.npz").exists() == (count == len(PYTHON))


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(line, marks=() if any(words in line for words in QUICK) else pytest.mark.slow)
        for line in COMMANDS
        if line.split()[1] != "reproduce"
    ],
)
def test_a_command_of_the_page_works_as_printed(command, tmp_path):
    names = environment(tmp_path)
    run(shlex.split(command), tmp_path, names)
    if "--json run.json" in command:
        again = next(line for line in COMMANDS if "reproduce" in line)
        assert "the same" in run(shlex.split(again), tmp_path, names)
    if "--plot" in command:
        assert (tmp_path / command.split()[-1]).read_bytes().startswith(b"\x89PNG")


def test_the_page_is_read():
    assert len(PYTHON) == len(PRINTED) == 3
    assert len(COMMANDS) == 11
    assert {line.split()[1] for line in COMMANDS} >= {"sample", "compare", "plan", "study"}


def test_what_needs_an_extra_comes_after_its_installation():
    installed = TEXT.index("pip install '.[study]'")
    for needs in ("--plot", "study run"):
        assert TEXT.index(needs) > installed
    plain, _ = TEXT.split("With the extra `study`")
    assert "--plot" not in plain and "study run" not in plain


def test_the_first_screen_has_a_result_its_command_and_a_short_example():
    first = TEXT.split("## Your own model")[0]
    assert "counterprobe compare --family path --n 16384" in " ".join(first.split())
    assert "pip install ." in first
    assert len(PYTHON[0].strip().splitlines()) <= 10


def test_the_page_is_short_and_leads_to_every_other():
    assert len(TEXT.splitlines()) < 240
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert page.stem == "index" or f"](docs/{page.name}" in TEXT, page.name
