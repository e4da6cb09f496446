"""``counterprobe samplers`` and ``counterprobe models``: for people and for programs."""

import json

import pytest

import counterprobe.cli.lists as module
from command_line import invoke, record_of, said
from counterprobe.models import registry
from counterprobe.samplers import SAMPLERS, build_sampler, describe_samplers


def test_json_lists_every_sampler_with_defaults_that_build_it(tmp_path):
    described = record_of("samplers")
    assert described == json.loads(json.dumps(describe_samplers()))
    assert sorted(entry["name"] for entry in described) == sorted(SAMPLERS)
    for entry in described:
        assert entry["summary"] and entry["source"]
        assert build_sampler(entry["name"], entry["settings"]) == SAMPLERS[entry["name"]]()


@pytest.mark.parametrize("width", [60, 200])
def test_the_list_for_people_names_samplers_and_settings(width):
    text = said("samplers", width=width)
    assert text.startswith("Designs from a model, few or many: auto")
    for entry in describe_samplers():
        assert f"{entry['name']} - {entry['summary']}" in text
        assert all(setting in text for setting in entry["settings"])


def test_every_model_is_listed_with_its_licence_size_and_source():
    text = said("models")
    for entry in registry.BUILT_IN:
        assert f"{entry.name} - {entry.summary} (installed)" in text
        assert f"size: {entry.size} licence: {entry.licence} source: {entry.source}" in text
    assert "install:" not in text, "what is installed needs no command"
    assert record_of("models") == [entry.as_dict() for entry in registry.BUILT_IN]


def test_a_model_that_is_not_installed_is_listed_with_its_command(monkeypatch):
    monkeypatch.setattr(registry.ModelEntry, "missing", property(lambda _: ["sapiens"]))
    text = said("models")
    for entry in registry.BUILT_IN:
        assert f"{entry.name} - {entry.summary} (not installed)" in text
        assert f"install: {entry.install}" in text


@pytest.mark.parametrize("arguments", [(), ("--json", "-")])
def test_a_package_whose_entry_is_broken_is_named_beside_the_rest(monkeypatch, arguments):
    listed = list(registry.BUILT_IN)
    broken = "entry point 'mine' cannot be loaded"
    monkeypatch.setattr(module, "all_models", lambda: (listed, [broken]))
    result = invoke("models", *arguments)
    assert (result.exit_code, result.stderr) == (1, f"counterprobe: {broken}\n")
    assert all(entry.name in result.stdout for entry in listed)
