"""Every sampler draws what it drew when ``sequences.json`` was recorded, at the same charge.

Refactorings must keep these. A change that is meant to alter drawn values records them anew with
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


@pytest.mark.parametrize(("family", "length"), recorder.TARGETS)
def test_tokens_stops_and_ledgers_are_as_recorded(family: str, length: int) -> None:
    assert recorder.differences(family, length) == []


def test_the_record_holds_every_target_and_sampler() -> None:
    recorded = recorder.load()
    assert recorded.keys() == {recorder.key(*target) for target in recorder.TARGETS}
    for runs in recorded.values():
        assert {run.split(",")[0] for run in runs} == recorder.RUNS.keys()
        assert recorder.SAMPLERS.keys() <= recorder.RUNS.keys()
