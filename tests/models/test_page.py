"""docs/models.md: its code runs as printed."""

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from counterprobe.cli.main import app
from counterprobe.models.registry import BUILT_IN

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def test_the_page_runs(capsys):
    known: dict[str, object] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(block, "docs/models.md", "exec"), known)
    assert (
        "Template(3 of 13 positions masked, 20 tokens: 'EVQLVESGGGXXX')" in capsys.readouterr().out
    )


def test_the_commands_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    masked = "EVQLVESGGGLVQPGGSLRLSCAASGFXXXXXXXXWVRQAPGKGLEWVAR"
    Path("designs.masked").write_text(masked + "\n")
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "counterprobe"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, f"{line}\n{result.stderr}"
    assert {file.name for file in tmp_path.iterdir()} == {
        "designs.masked", "designs.fasta", "designs.npz", "designs.svg", "designs.csv",
    }  # fmt: skip
    assert Path("designs.csv").read_text().count("\n") == 1 + 100


def test_every_model_is_named_with_its_command_licence_and_size():
    for entry in BUILT_IN:
        assert f"`{entry.name}`" in PAGE
        assert (entry.install.partition(" && ")[2] or entry.install) in PAGE
        assert f"{entry.size.partition(',')[0]}, {entry.licence}" in PAGE
