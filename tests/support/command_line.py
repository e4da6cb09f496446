"""The command line in this process: words in, the result, its JSON or its refusal out."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from counterprobe.cli.main import app


def invoke(*words: object, width: int = 120) -> Result:
    """Run a command on a terminal of some width."""
    return CliRunner(env={"COLUMNS": str(width)}).invoke(app, [str(word) for word in words])


def said(*words: object, width: int = 100) -> str:
    """Return what a command that succeeds shows, its blanks joined."""
    result = invoke(*words, width=width)
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stdout.split())


def record_of(*words: object, code: int = 0) -> Any:
    """Return the JSON of a command, which must be all of standard output."""
    result = invoke(*words, "--json", "-")
    assert result.exit_code == code, result.stderr
    return json.loads(result.stdout)


def refused(*words: object) -> str:
    """Return the one line with which bad input is turned away."""
    result = invoke(*words)
    assert result.exit_code == 2, result.stdout + result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("counterprobe: ")
    return line
