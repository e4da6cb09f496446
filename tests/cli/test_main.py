"""The program as a whole: version, help, commands, and the installed entry point."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import counterprobe as cp
from counterprobe.cli.main import app

PROGRAM = "from counterprobe.cli.main import main; main()"
COMMANDS = ["sample", "reference", "samplers"]


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the entry point in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=300
    )


def test_the_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"counterprobe {cp.__version__}\n"


def test_the_package_can_be_run_as_a_module():
    command = [sys.executable, "-m", "counterprobe", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"counterprobe {cp.__version__}\n"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_commands_and_exit_codes(flag):
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [flag])
    assert result.exit_code == 0
    for command in COMMANDS:
        assert command in result.stdout
    for code in ("0 done", "1 failed", "2 bad input", "3 infeasible", "130 interrupted"):
        assert code in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(command):
    for flag in ("-h", "--help"):
        result = CliRunner().invoke(app, [command, flag])
        assert result.exit_code == 0
        assert "--json" in result.stdout


def test_no_command_shows_the_help():
    result = CliRunner().invoke(app, [])
    assert result.exit_code in (0, 2)
    assert "Usage" in result.output
    assert "sample" in result.output


def test_an_unknown_command_is_exit_code_two():
    result = CliRunner().invoke(app, ["smaple"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "smaple" in result.stderr


def test_the_program_in_a_process_of_its_own():
    version = run_program("--version")
    assert (version.returncode, version.stderr) == (0, "")
    assert version.stdout == f"counterprobe {cp.__version__}\n"
    wrong = run_program("sample", "--family", "nothing")
    assert wrong.returncode == 2
    assert wrong.stdout == ""
    assert wrong.stderr.startswith("counterprobe: unknown family 'nothing'; known families: ")
    assert len(wrong.stderr.splitlines()) == 1
