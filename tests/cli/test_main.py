"""The program as a whole: version, help, commands, and the installed entry point."""

import itertools
import subprocess
import sys

import pytest
import typer.main

import counterprobe as cp
from command_line import invoke
from counterprobe.cli.main import app
from counterprobe.cli.output import BESIDE

GROUP = typer.main.get_command(app)
COMMANDS = [name for name in GROUP.commands if name != "study"]
COMMANDS += [f"study {name}" for name in GROUP.commands["study"].commands]


def test_the_version():
    assert invoke("--version").stdout == f"counterprobe {cp.__version__}\n"


@pytest.mark.parametrize(
    "start",
    [["-c", "from counterprobe.cli.main import main; main()"],
     pytest.param(["-m", "counterprobe"], marks=pytest.mark.slow)],
)  # fmt: skip
def test_the_program_in_a_process_of_its_own(start):
    command = [sys.executable, *start, "sample", "--family", "nothing"]
    wrong = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("counterprobe: unknown family 'nothing'; known families: ")
    assert len(wrong.stderr.splitlines()) == 1


def test_the_program_does_not_import_what_only_some_commands_need():
    of_scipy = {f"scipy.{part}" for part in ("stats", "optimize", "spatial", "sparse", "special")}
    heavy = {"matplotlib", "torch", "numba", *of_scipy}
    code = f"import sys, counterprobe.cli.main; print({{*sys.modules}} & {heavy})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_commands_and_exit_codes(flag):
    shown = invoke(flag, width=200).stdout
    for name in GROUP.commands:
        assert name in shown
    for code in ("0 done", "1 failed", "2 bad input", "3 infeasible", "130 interrupted"):
        assert code in shown
    assert "Usage" in invoke().output


def test_an_unknown_command_is_exit_code_two():
    result = invoke("smaple")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "smaple" in result.stderr


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_the_terminal_fills_its_lines_and_has_an_example(command):
    lines = invoke(*command.split(), "--help", width=80).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    prose = [line.strip() for line in itertools.takewhile(lambda x: not x.startswith("╭"), lines)]
    for line, following in itertools.pairwise(prose):
        if line and following:
            # The next word would not have fitted: eighty columns less the margins.
            assert len(f"{line} {following.split()[0]}") > 77, (line, following)
    if command not in ("", "samplers", "models"):
        assert f"counterprobe {command}" in " ".join(prose)[1:]


@pytest.mark.parametrize("command", [c for c in COMMANDS if not c.startswith("study")])
def test_every_command_writes_json_and_says_nothing_of_where_results_go(command):
    """What is written is no part of what makes a result, or it would be written again."""
    options = {one.name: one for one in GROUP.commands[command].params}
    assert "json" in options
    files = [name for name, one in options.items() if one.rich_help_panel == "Output"
             and one.metavar == "FILE"]  # fmt: skip
    assert set(files) - {"html"} <= BESIDE
