"""docs/reports.md: its code runs as printed, and the commands it names have the option."""

import re
from pathlib import Path

import pytest
import typer.main

from counterprobe.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "docs/reports.md", "exec"), {"__name__": "page"})
    assert "<h1>Forty in a row</h1>" in (tmp_path / "found.html").read_text("utf-8")
    assert "<td>compressed</td>" in (tmp_path / "ours.html").read_text("utf-8")


@pytest.mark.parametrize(
    "line", [line for line in PAGE.splitlines() if line.startswith("counterprobe ")]
)
def test_every_command_of_the_page_has_the_option(line):
    group = typer.main.get_command(app)
    words = line.split()[1:]
    command = group.commands[words[0]]
    if words[0] == "study":
        command = command.commands[words[1]]
    known = {name for one in command.params for name in one.opts}
    assert {word for word in words if word.startswith("--")} <= known
    assert "--report" in words
