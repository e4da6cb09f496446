"""docs/models.md: its code runs as printed."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterprobe.cli.main import app
from counterprobe.models import Backbone
from counterprobe.models.registry import BUILT_IN
from structure_files import copies, pdb_of

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


@pytest.fixture
def dimer(tmp_path, monkeypatch) -> None:
    """Work where the page's structure file and its rules are."""
    monkeypatch.chdir(tmp_path)
    piece = Backbone.shipped("1ubi").part(range(20), "dimer")
    pdb_of(replace(copies(piece, "AB", (20.0, 20.0, 5.0)), name="dimer"), tmp_path)
    (rules,) = re.findall(r"```\n(# rules.txt\n.*?)```", PAGE, flags=re.DOTALL)
    Path("rules.txt").write_text(rules)


def test_the_page_runs(capsys, dimer):
    known: dict[str, object] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(block, "docs/models.md", "exec"), known)
    assert "EVQLVESGGGXXX\n3 of 13 positions masked; 20 tokens" in capsys.readouterr().out


def test_the_commands_run(tmp_path, dimer):
    masked = "EVQLVESGGGLVQPGGSLRLSCAASGFXXXXXXXXWVRQAPGKGLEWVAR"
    Path("designs.masked").write_text(masked + "\n")
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    for line in "".join(blocks).splitlines():
        program, *arguments = shlex.split(line)
        assert program == "counterprobe"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, f"{line}\n{result.stderr}"
    assert {file.name for file in tmp_path.iterdir()} == {
        "dimer.pdb", "rules.txt", "designs.masked", "designs.fasta", "designs.npz", "designs.svg",
        "designs.csv",
    }  # fmt: skip
    assert Path("designs.csv").read_text().count("\n") == 1 + 100


def test_every_model_is_named_with_its_command_licence_and_size():
    for entry in BUILT_IN:
        assert f"`{entry.name}`" in PAGE
        assert (entry.install.partition(" && ")[2] or entry.install) in PAGE
        assert f"{entry.size.partition(',')[0]}, {entry.licence}" in PAGE
