"""docs/engines.md: its numbers are the code's, and its commands have the options they show."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterprobe.cli.main import app
from counterprobe.engines import ENGINES, Processes, RayCluster
from counterprobe.engines.sharded import AHEAD, BATCH_SIZE

PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^counterprobe (.+)$", PAGE, flags=re.MULTILINE)


def test_its_numbers_are_those_of_the_code():
    assert (BATCH_SIZE, AHEAD) == (32, 3)
    assert f"micro-batches of {BATCH_SIZE} (`batch_size`)" in PAGE
    assert "three micro-batches a worker" in PAGE
    assert Processes().attempts == RayCluster().attempts == 3
    assert "up to three times in all" in PAGE
    assert f"an error after {RayCluster().start_seconds:.0f} seconds" in PAGE
    assert all(f"| `{name}` |" in PAGE for name in ENGINES)


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_have_the_options_they_show(command):
    words = command.split()
    verbs = words[: next(k for k, word in enumerate(words) if word.startswith("--"))]
    shown = CliRunner().invoke(app, [*verbs, "--help"], terminal_width=200).stdout
    assert len(COMMANDS) == 5
    for option in (word for word in words if word.startswith("--")):
        assert option in shown, f"{command}: {option}"


def test_its_python_parses():
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    compile(block, "docs/engines.md", "exec")
