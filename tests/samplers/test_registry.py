"""Samplers by name, and settings from text."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from counterprobe.run import CommitAll
from counterprobe.run.ledger import Need
from counterprobe.samplers import (
    SAMPLERS,
    OneBatch,
    RandomBalanced,
    Sampler,
    Sequential,
    build_sampler,
    describe_samplers,
)
from counterprobe.samplers.registry import read_settings


@dataclass(frozen=True)
class Knobs(Sampler):
    """One setting of each type that text can be turned into."""

    name: ClassVar[str] = "knobs"
    summary: ClassVar[str] = "a sampler for tests"
    source: ClassVar[str] = "nowhere"

    count: int = 1
    ratio: float = 0.5
    is_fast: bool = False
    mode: Literal["a", "b"] = "a"
    power: Literal[1, 2] = 1
    limit: int | None = None
    choice: Literal["x", "y"] | None = None
    label: str = ""

    def unmask(self, view, rng):
        yield CommitAll([view.residual])

    @property
    def needs(self) -> Need:
        return Need.VERIFY | Need.REMASK


@pytest.fixture
def knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SAMPLERS, "knobs", Knobs)


def test_samplers_by_name():
    assert build_sampler("sequential") == Sequential()
    assert build_sampler("one-batch", {}) == OneBatch()
    assert build_sampler("random-balanced", {"batches": 7}) == RandomBalanced(7)
    assert build_sampler("random-balanced", {"batches": "7"}) == RandomBalanced(7)
    assert build_sampler("sequential", {"order": "entropy"}) == Sequential("entropy")


def test_every_sampler_builds_from_its_own_settings(sampler):
    assert build_sampler(sampler.name, sampler.settings) == sampler
    as_text = {name: str(value) for name, value in sampler.settings.items()}
    assert build_sampler(sampler.name, as_text) == sampler


def test_an_unknown_sampler_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown sampler 'greedy'; known samplers: ") as error:
        build_sampler("greedy")
    for name in SAMPLERS:
        assert name in str(error.value)


def test_an_unknown_setting_lists_the_known_ones(knobs):
    with pytest.raises(
        ValueError, match="'random-balanced' has no setting 'batch'; its settings: batches"
    ):
        build_sampler("random-balanced", {"batch": 3})
    with pytest.raises(
        ValueError, match="'one-batch' has no setting 'batches'; its settings: none"
    ):
        build_sampler("one-batch", {"batches": 3})
    with pytest.raises(ValueError, match="its settings: choice, count, is_fast, label, limit"):
        build_sampler("knobs", {"name": "other"})


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("count", "12", 12),
        ("count", "-3", -3),
        ("ratio", "0.25", 0.25),
        ("ratio", "1e-3", 0.001),
        ("ratio", "2", 2.0),
        ("is_fast", "true", True),
        ("is_fast", "True", True),
        ("is_fast", "false", False),
        ("mode", "b", "b"),
        ("power", "2", 2),
        ("limit", "none", None),
        ("limit", "None", None),
        ("limit", "", None),
        ("limit", "5", 5),
        ("choice", "none", None),
        ("choice", "y", "y"),
        ("label", "7", "7"),
    ],
)
def test_text_becomes_the_type_of_the_setting(knobs, setting, text, value):
    built = getattr(build_sampler("knobs", {setting: text}), setting)
    assert built == value
    assert type(built) is type(value)


@pytest.mark.parametrize(
    ("setting", "text", "message"),
    [
        ("count", "1.5", "knobs.count must be an integer, got '1.5'"),
        ("count", "many", "knobs.count must be an integer, got 'many'"),
        ("count", "none", "knobs.count must be an integer, got 'none'"),
        ("ratio", "half", "knobs.ratio must be a number, got 'half'"),
        ("is_fast", "1", "knobs.is_fast must be true or false, got '1'"),
        ("mode", "c", "knobs.mode must be one of a, b; got 'c'"),
        ("power", "3", "knobs.power must be one of 1, 2; got '3'"),
        ("choice", "z", "knobs.choice must be one of x, y; got 'z'"),
        ("limit", "x", "knobs.limit must be an integer, got 'x'"),
    ],
)
def test_text_of_another_type_is_refused(knobs, setting, text, message):
    with pytest.raises(ValueError, match=message):
        build_sampler("knobs", {setting: text})


def test_values_that_are_not_text_are_left_to_the_sampler(knobs):
    assert build_sampler("knobs", {"limit": None, "ratio": 0.1}) == Knobs(limit=None, ratio=0.1)
    with pytest.raises(ValueError, match="batches must be at least 1"):
        build_sampler("random-balanced", {"batches": 0})
    with pytest.raises(ValueError, match="order must be one of"):
        build_sampler("sequential", {"order": "left"})


def test_every_sampler_is_described(knobs):
    described = {entry["name"]: entry for entry in describe_samplers()}
    assert list(described) == sorted(SAMPLERS)
    assert described["random-balanced"]["settings"] == {
        "batches": 64,
        "larger_first": True,
    }
    assert described["one-batch"]["settings"] == {}
    assert described["sequential"]["settings"] == {"order": "index"}
    assert described["knobs"]["needs"] == ["verify", "remask"]
    assert described["knobs"]["bound"] == "none"
    assert described["knobs"]["sweep"] is None
    assert described["factor"]["sweep"]["setting"] == "factor"
    assert 1.0 in described["factor"]["sweep"]["values"]
    assert described["centroid-layers"]["knows"] == "its forest"


def test_settings_are_key_value_words():
    words = ["batches=4", "tv-cut = 0.1", "name=a=b", "empty="]
    assert read_settings(words) == {
        "batches": "4", "tv_cut": "0.1", "name": "a=b", "empty": "",
    }  # fmt: skip
    for word in ("batches", "=4", ""):
        with pytest.raises(ValueError, match="key=value"):
            read_settings([word])
