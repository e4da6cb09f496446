"""``counterprobe samplers``: every sampler is listed, for people and for programs."""

import json

from typer.testing import CliRunner

from counterprobe.cli.main import app
from counterprobe.samplers import SAMPLERS, build_sampler, describe_samplers


def test_json_lists_every_sampler():
    result = CliRunner().invoke(app, ["samplers", "--json", "-"])
    assert result.exit_code == 0
    assert result.stderr == ""
    described = json.loads(result.stdout)
    assert described == json.loads(json.dumps(describe_samplers()))
    assert sorted(entry["name"] for entry in described) == sorted(SAMPLERS)
    for entry in described:
        assert {"name", "summary", "settings", "rights", "bound", "source"} <= entry.keys()
        assert entry["summary"]
        assert entry["source"]


def test_listed_defaults_build_the_sampler():
    listed = json.loads(CliRunner().invoke(app, ["samplers", "--json", "-"]).stdout)
    for entry in listed:
        assert build_sampler(entry["name"], entry["settings"]) == SAMPLERS[entry["name"]]()


def test_the_list_for_people_names_samplers_and_settings():
    # Also on a narrow terminal, where names must not be cut short.
    for columns in ("60", "80", "200"):
        result = CliRunner(env={"COLUMNS": columns}).invoke(app, ["samplers"])
        assert result.exit_code == 0
        text = " ".join(result.stdout.split())
        for entry in describe_samplers():
            assert entry["name"] in text
            assert entry["summary"] in text
            for setting in entry["settings"]:
                assert setting in text


def test_a_file_is_written_whole(tmp_path):
    file = tmp_path / "samplers.json"
    result = CliRunner().invoke(app, ["samplers", "--json", str(file)])
    assert result.exit_code == 0
    assert [entry["name"] for entry in json.loads(file.read_text())] == sorted(SAMPLERS)
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_folder_is_refused(tmp_path):
    missing = tmp_path / "nowhere" / "samplers.json"
    result = CliRunner().invoke(app, ["samplers", "--json", str(missing)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "does not exist" in result.stderr
