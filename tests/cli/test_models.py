"""``counterprobe models``: what it lists, as text and as JSON, and what it says of the rest."""

import json

import pytest
from typer.testing import CliRunner, Result

import counterprobe.cli.models as module
from counterprobe.cli.main import app
from counterprobe.models import registry


def invoke(*arguments: object, width: int = 120) -> Result:
    runner = CliRunner(env={"COLUMNS": str(width)})
    return runner.invoke(app, ["models", *map(str, arguments)])


def test_every_model_is_listed_with_its_licence_size_and_source():
    result = invoke()
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    said = " ".join(result.stdout.split())
    for entry in registry.BUILT_IN:
        assert f"{entry.name} - {entry.summary} (installed)" in said
        assert f"size: {entry.size} licence: {entry.licence} source: {entry.source}" in said
    assert "install:" not in said, "what is installed needs no command"


def test_lines_end_where_their_text_ends():
    for line in invoke().stdout.splitlines():
        assert line == line.rstrip()


def test_a_model_that_is_not_installed_is_listed_with_its_command(monkeypatch):
    monkeypatch.setattr(registry.ModelEntry, "missing", property(lambda _: ["sapiens"]))
    said = " ".join(invoke().stdout.split())
    for entry in registry.BUILT_IN:
        assert f"{entry.name} - {entry.summary} (not installed)" in said
        assert f"install: {entry.install}" in said


def test_json_is_all_of_standard_output_and_the_same_in_a_file(tmp_path):
    printed = invoke("--json", "-")
    assert printed.exit_code == 0, printed.stderr
    assert json.loads(printed.stdout) == [entry.as_dict() for entry in registry.BUILT_IN]
    file = tmp_path / "models.json"
    assert invoke("--json", file).exit_code == 0
    assert file.read_text() == printed.stdout


@pytest.mark.parametrize("arguments", [(), ("--json", "-")])
def test_a_package_whose_entry_is_broken_is_named_beside_the_rest(monkeypatch, arguments):
    listed = list(registry.BUILT_IN)
    broken = "entry point 'mine' cannot be loaded"
    monkeypatch.setattr(module, "all_models", lambda: (listed, [broken]))
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stderr == f"counterprobe: {broken}\n"
    assert all(entry.name in result.stdout for entry in listed)


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    result = invoke("--json", tmp_path / "nowhere" / "models.json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "nowhere does not exist" in result.stderr
    assert len(result.stderr.splitlines()) == 1
