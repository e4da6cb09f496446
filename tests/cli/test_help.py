"""Help at the width of a terminal: no line ends before its sentence needs it to."""

import itertools
import re

import pytest
from typer.testing import CliRunner

from counterprobe.cli.main import app

COMMANDS = ["", "sample", "compare", "reproduce", "reference", "samplers", "plan", "verify"]
COMMANDS += ["dependence"]
COMMANDS += [f"study {verb}" for verb in ("run", "resume", "status", "figure", "table")]


def help_of(command: str, width: int = 80) -> list[str]:
    runner = CliRunner(env={"COLUMNS": str(width), "TERMINAL_WIDTH": str(width)})
    outcome = runner.invoke(app, [*command.split(), "--help"])
    assert outcome.exit_code == 0
    return outcome.stdout.splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_paragraphs_fill_their_lines(command):
    prose = []
    for line in help_of(command):
        if line.startswith("╭"):
            break
        prose.append(line.strip())
    for line, following in itertools.pairwise(prose):
        if line and following:
            # The next word would not have fitted: eighty columns less the margins.
            assert len(f"{line} {following.split()[0]}") > 77, (line, following)


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_cut_off(command):
    text = "\n".join(help_of(command))
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("command", ["sample", "compare"])
def test_the_default_family_is_named(command):
    text = " ".join(re.sub(r"[│╭╰╮╯─]", " ", "\n".join(help_of(command))).split())
    assert "hidden forest, path by default: matching, path," in text
