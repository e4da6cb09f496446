"""Configurations: presets, files of one's own, and what is refused."""

import functools
import math
from importlib import resources

import pytest

from counterprobe.samplers import Packed, build_sampler
from counterprobe.study.config import (
    PRESETS,
    Accuracy,
    Draws,
    Seeds,
    config_from_dict,
    load_preset,
    read_config,
)
from counterprobe.theory.colorings import enough_votes

# Loading a preset checks every candidate of its grid.
preset = functools.cache(load_preset)
LEAST = {"name": "mine", "families": ["path"], "sizes": [64]}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_load_and_come_back_from_plain_values(name):
    config = preset(name)
    assert config.name == name
    assert config.description
    assert config_from_dict(config.as_dict(), "again") == config


def test_every_preset_file_is_listed():
    folder = resources.files("counterprobe.study").joinpath("presets")
    assert {entry.name for entry in folder.iterdir()} == {f"{name}.toml" for name in PRESETS}


@pytest.mark.parametrize("name", ["paper", "tuned-by-hand"])
def test_the_full_presets_follow_the_papers_protocol(name):
    config = preset(name)
    assert config.families == ("matching", "path", "binary-tree", "growing-stars")
    assert config.sizes == (8192, 10240, 12288, 14336, 16384)
    assert config.seeds == Seeds((171, 172, 173), (271, 272), (196, 197, 198), (292, 293),
                                 (294, 295))  # fmt: skip
    assert config.draws == Draws(32, 64, 128)
    assert config.accuracy == Accuracy(1e-3, 1e-10)
    assert config.candidates == 6
    assert config.random.width == 0.05
    printed = {
        "matching": 6.375289e-9, "path": 2.801962e-9, "binary-tree": 1.226162e-9,
        "growing-stars": 5.138930e-12,
    }  # fmt: skip
    for family, threshold in printed.items():
        found = config.accuracy.evaluation * config.reference.values[family]
        assert found == pytest.approx(threshold, rel=1e-12)


@pytest.mark.parametrize("name", PRESETS)
def test_every_candidate_of_a_preset_is_a_sampler(name):
    config = preset(name)
    for family in config.families:
        for length in config.sizes:
            settings = config.candidate_settings(family, length)
            kinds = {tuple(entry.get(key) for key in config.differ_in) for entry in settings}
            assert len(settings) >= len(kinds) >= config.candidates
            for entry in settings:
                assert isinstance(build_sampler(config.sampler, entry), Packed)


@pytest.mark.parametrize("name", ["paper", "strict", "quick", "smoke"])
def test_one_grid_serves_all_families_and_sizes_with_peeling_and_ordinary_fillers(name):
    config = preset(name)
    cells = [(family, length) for family in config.families for length in config.sizes]
    grids = [config.candidate_settings(*cell) for cell in cells]
    assert all(grid == grids[0] for grid in grids)
    for entry in grids[0]:
        sampler = build_sampler("packed", entry)
        assert sampler.filler == "most-likely"
        assert sampler.phase_cap is None or sampler.phase_cap > 0
        assert sampler.num_colorings is not None
    tuned = ("num_colors", "num_colorings", "degree_cutoff", "majority_fraction", "tv_cut")
    for setting in tuned:
        assert len({entry[setting] for entry in grids[0]}) > 1


def test_the_strict_preset_differs_from_the_papers_in_its_development_alone():
    differences = preset("paper").differences(preset("strict"))
    assert differences == ["accuracy.development", "name"]
    accuracy = preset("strict").accuracy
    assert accuracy.development == accuracy.evaluation


def test_lists_expand_and_votes_are_derived():
    grid = [
        {"num_colors": [3, 4], "degree_cutoff": [1, 2], "votes": {"degree": 1, "miss": 1e-3}},
        {"families": ["matching"], "num_colors": 8},
        {"num_colors": 3, "degree_cutoff": 1, "votes": {"degree": 1, "miss": 1e-3}},
    ]
    config = config_from_dict({**LEAST, "grid": {"packed": grid}}, "here")
    found = config.candidate_settings("path", 64)
    assert [(c["num_colors"], c["degree_cutoff"]) for c in found] == [
        (3, 1), (3, 2), (4, 1), (4, 2),
    ]  # fmt: skip
    for entry in found:
        votes = enough_votes(
            64, entry["num_colors"], degree=1, degree_cutoff=entry["degree_cutoff"], miss=1e-3
        )
        assert entry["num_colorings"] == votes.num_colorings
        assert entry["majority_fraction"] == votes.majority_fraction
    assert config.candidate_settings("matching", 64)[-1] == {"num_colors": 8}


def test_a_sampler_without_a_grid_stands_with_its_defaults():
    config = config_from_dict({**LEAST, "sampler": "sequential"}, "here")
    assert config.candidate_settings("path", 64) == [{}]


def test_the_baseline_can_be_left_out():
    assert config_from_dict({**LEAST, "random": False}, "here").random is None
    config = config_from_dict({**LEAST, "random": False}, "here")
    assert config_from_dict(config.as_dict(), "again") == config


def test_differences_name_the_keys_but_not_the_description():
    one = config_from_dict(LEAST, "here")
    changed = {"sizes": [65], "seeds": {"random_streams": [1]}, "description": "another"}
    other = config_from_dict({**LEAST, **changed}, "here")
    assert one.differences(other) == ["seeds.random_streams", "sizes"]
    assert one.differences(one) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"color": 3}, "unknown key color; valid keys: name, families, sizes"),
        ({"seeds": {"draws": [1]}}, "unknown key seeds.draws; valid keys: development_draws"),
        ({"seeds": [1]}, "seeds must be a table"),
        ({"sizes": []}, "sizes must list at least one"),
        ({"sizes": [64, 64]}, "each once"),
        ({"sizes": 64}, "sizes must be a list, got 64"),
        ({"sizes": ["64"]}, "sizes must be of type int, got '64'"),
        ({"sizes": [1]}, "sizes must be at least 2"),
        ({"families": ["pathh"]}, "unknown family 'pathh'; known: matching, path"),
        ({"name": " "}, "name must not be empty"),
        ({"candidates": 0}, "candidates at least 1"),
        ({"candidates": True}, "candidates must be of type int"),
        ({"accuracy": {"evaluation": 0}}, "accuracy.evaluation must be positive"),
        ({"draws": {"screening": 1}}, "draws.screening must be at least 2"),
        ({"seeds": {"evaluation_draws": [171]}}, "must not share a draw"),
        ({"seeds": {"random_streams": []}}, "seeds.random_streams must list"),
        ({"seeds": {"random_streams": [-1]}}, "non-negative"),
        ({"reference": {"values": {"matching": 1.0}}}, "missing: ['path']"),
        ({"reference": {"values": {"path": -1.0}}}, "positive numbers"),
        ({"reference": {"values": ["path"]}}, "reference.values must be a table"),
        ({"grid": ["packed"]}, "grid must be a table"),
        (
            {"grid": {"packed": [{}]}, "differ_in": ["num_colours"]},
            "differ_in must name settings of sampler 'packed', got ['num_colours']; its settings",
        ),
        ({"reference": {"draws": []}}, "needs values, or a length and draws"),
        ({"sampler": "packd"}, "unknown sampler 'packd'"),
        ({"random": {"sampler": "sequential"}}, "has no setting 'batches'"),
        ({"random": {"width": 0}}, "random.width must lie in (0, 1)"),
        ({"random": {"variants": []}}, "random.variants must list at least one, each once"),
        ({"random": {"variants": [{}, {}]}}, "random.variants must list at least one, each once"),
        ({"random": {"variants": [{"batches": 3}]}}, "must leave batches to the search"),
        ({"random": {"variants": [{"larger": True}]}}, "has no setting 'larger'"),
        ({"random": {"variants": [3]}}, "random.variants must be a table, got 3"),
        ({"screening": "some"}, "screening must be one of all, cheapest-first; got 'some'"),
        ({"random": {"first": [2.0]}}, "random.first must lie in (0, 1]"),
        ({"grid": {"packd": []}}, "grid.packd: unknown sampler"),
        ({"grid": {"packed": {}}}, "must be a list of tables, [[grid.packed]]"),
        ({"grid": {"packed": [{"colors": 3}]}}, "has no setting 'colors'; its settings: "),
        ({"grid": {"packed": [{"num_colors": 1}]}}, "num_colors must be at least 2, got 1"),
        ({"grid": {"packed": [{"families": ["x"]}]}}, "unknown family 'x'"),
        ({"grid": {"packed": [{"families": ["matching"]}]}}, "no candidate for family 'path'"),
        ({"grid": {"packed": [{"votes": {"degree": 1}}]}}, "votes must have the keys"),
        (
            {"grid": {"packed": [{"num_colors": 3, "votes": {"degree": 1, "miss": 0.1}}]}},
            "votes needs degree_cutoff beside it",
        ),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(ValueError) as problem:
        config_from_dict({**LEAST, **change}, "mine.toml")
    assert str(problem.value).startswith("mine.toml: ")
    assert message in str(problem.value)


def test_a_missing_key_is_named():
    with pytest.raises(ValueError, match="sizes is missing"):
        config_from_dict({"name": "a", "families": ["path"]}, "x")


def test_files(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nfamilies = ["path"]\nsizes = [64]\n')
    assert read_config(file) == config_from_dict(LEAST, "x")
    file.write_text("name = [")
    with pytest.raises(ValueError, match="is not a TOML file"):
        read_config(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not a TOML file"):
        read_config(file)
    with pytest.raises(FileNotFoundError):
        read_config(tmp_path / "none.toml")
    with pytest.raises(ValueError, match="unknown preset 'papers'; presets: paper, strict"):
        preset("papers")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {"packed": [{"num_colors": [*range(101)], "degree_cutoff": [*range(100)]}]}},
         "has an entry of 10,100 candidates, at most 10,000 are tried"),
        ({"sizes": [10**400]}, "sizes must be at most 2147483647"),
        ({"accuracy": {"evaluation": math.inf}}, "values must be finite numbers, texts"),
        ({"grid": {"packed": [{"num_colors": 4, "degree_cutoff": 8,
                               "votes": {"degree": "2", "miss": 0.1}}]}},
         "votes.degree must be a number, got '2'"),
        ({"a\nb": 1}, "unknown key a b; valid keys: name"),
    ],
)  # fmt: skip
def test_what_could_not_be_checked_or_kept_is_refused_in_one_line(changes, message):
    with pytest.raises(ValueError) as problem:
        config_from_dict({**LEAST, **changes}, "mine.toml")
    assert message in str(problem.value)
    assert "\n" not in str(problem.value) and len(str(problem.value)) < 450


def test_a_table_without_end_and_a_file_without_end_are_refused(tmp_path):
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(ValueError, match=r"deep.toml is not a TOML file"):
        read_config(tmp_path / "deep.toml")
    with pytest.raises(ValueError, match="/dev/zero must have at most 1,048,576 bytes"):
        read_config("/dev/zero")
