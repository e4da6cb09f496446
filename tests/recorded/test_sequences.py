"""Every sampler draws what it drew when ``tests/recorded`` was recorded, at the same charge.

Refactorings must keep this. A change that is meant to alter drawn values records them anew with
``tools/record_sequences.py --write``.
"""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "record_sequences.py"

_spec = importlib.util.spec_from_file_location("record_sequences", SCRIPT)
assert _spec is not None and _spec.loader is not None
recorder = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(recorder)

# What the run itself was charged and drew, whatever stands around its oracle.
OF_THE_RUN = ("tokens", "rounds", "stop", "whole", "each", "ledgers")


TARGETS = [
    pytest.param(*target, marks=[pytest.mark.slow] if target[1] == recorder.LARGE else [])
    for target in recorder.TARGETS
]


@pytest.mark.parametrize(("family", "length"), TARGETS)
def test_tokens_stops_and_ledgers_are_as_recorded(family: str, length: int) -> None:
    assert recorder.differences(family, length) == []


def test_the_record_holds_every_target_and_sampler() -> None:
    recorded = recorder.load()
    assert recorded.keys() == {recorder.key(*target) for target in recorder.TARGETS}
    for runs in recorded.values():
        assert {run.split(",")[0] for run in runs} == recorder.RUNS.keys()
        assert recorder.SAMPLERS.keys() <= recorder.RUNS.keys()


# ----- Other ways, and measures --------------------------------------------------------------


@pytest.mark.parametrize("way", recorder.WAYS)
def test_every_other_way_to_run_is_as_recorded(way: str) -> None:
    assert recorder.other_differences("ways", way) == []


@pytest.mark.parametrize("measure", recorder.MEASURES)
def test_every_measure_is_as_recorded(measure: str) -> None:
    assert recorder.other_differences("measures", measure) == []


@pytest.mark.parametrize("file", recorder.OTHERS)
def test_the_record_holds_every_kind(file: str) -> None:
    assert recorder.load_other(file).keys() == recorder.OTHERS[file].keys()


@pytest.mark.parametrize("way", ["retried", "resumed"])
def test_what_is_recorded_of_wrapped_runs_is_what_they_draw_unwrapped(way: str) -> None:
    recorded = recorder.load_other("ways")
    assert recorded[way].keys() == recorded["plain"].keys()
    for run, wrapped in recorded[way].items():
        plain = recorded["plain"][run]
        assert {column: wrapped[column] for column in OF_THE_RUN} == {
            column: plain[column] for column in OF_THE_RUN
        }
        if way == "resumed":  # and a few states a life, by which the oracle is recognised
            assert 1 <= wrapped["once done"] <= 3
            assert wrapped["before"] + wrapped["after"] <= plain["states"] + wrapped["once done"]
