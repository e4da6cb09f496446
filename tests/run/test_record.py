"""What determines a run: every term changes the key, and a file gives the record back."""

import json
import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.record import OracleIdentity, RunRecord, needs_of

LAW = cp.TableLaw(np.full((2, 2, 2), 1 / 8))
ORACLE = OracleIdentity.of(LAW.oracle())


def record(**changed) -> RunRecord:
    said = {
        "sampler": "punt",
        "settings": {"epsilon": math.inf, "sizes": (1, 2)},
        "oracle": ORACLE,
        "streams": cp.Streams(2**60 + 1, 2),
        "given": np.array([-1, 1, -1], dtype=np.int32),
        "allowed": cp.Need.VERIFY | cp.Need.SELECT,
        "more": {"structure": np.arange(3), "paranoid": 0.5},
    }
    return RunRecord(**{**said, **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"sampler": "wino"}, {"settings": {}}, {"oracle": OracleIdentity("other", 3, 2)},
        {"oracle": OracleIdentity(ORACLE.name, 3, 2, "other")}, {"streams": cp.Streams(1, 2)},
        {"streams": cp.Streams(2**60 + 1, 3)}, {"given": None}, {"count": 2}, {"orders": "fresh"},
        {"temperature": 0.5}, {"allowed": cp.Need.NONE}, {"max_evaluations": 3}, {"more": {}},
        {"more": {"structure": np.arange(4), "paranoid": 0.5}},
    ],
    ids=lambda changed: next(iter(changed)),
)  # fmt: skip
def test_every_term_is_part_of_the_key(changed):
    assert record(**changed).key != record().key == record().key
    assert record(**changed) != record() == record() and len({record(), record()}) == 1


def test_an_oracle_is_told_from_others_by_its_name_its_size_and_what_is_in_it():
    assert ORACLE == OracleIdentity(
        LAW.oracle().name, LAW.length, LAW.vocab_size, LAW.oracle().digest
    )
    other = cp.families.path(LAW.length, target_seed=7)
    assert OracleIdentity.of(other.oracle()).digest != ORACLE.digest is not None


def test_what_does_not_determine_a_run_is_no_part_of_the_key():
    assert record(versions={"python": "2.7"}) == record()
    wide = np.array([-1, 1, -1], dtype=np.int64)
    assert record(given=wide) == record()
    assert record(given=np.full(3, cp.MASK)) == record(given=None)


@pytest.mark.parametrize("given", [None, [-1, 1, -1], [[-1, 1, -1], [0, -1, -1]]])
def test_a_file_gives_the_record_back(given):
    one = record(given=None if given is None else np.array(given), count=2, max_evaluations=9)
    back = RunRecord.from_json(json.loads(json.dumps(one.to_json(), allow_nan=False)))
    assert back == one and back.terms == one.terms and back.versions == one.versions
    assert back.allowed == one.allowed and back.streams == one.streams


def test_what_is_no_record_is_refused():
    content = record().to_json()
    for name in ("sampler", "oracle", "given", "more"):
        with pytest.raises(ValueError, match="this is no record of a run"):
            RunRecord.from_json({key: value for key, value in content.items() if key != name})
    with pytest.raises(ValueError, match="this is no record of a run"):
        RunRecord.from_json({**content, "oracle": {"name": "x"}})


@pytest.mark.parametrize("needs", [cp.Need.NONE, *cp.Need, cp.Need.VERIFY | cp.Need.REMASK])
def test_needs_come_back_by_their_names(needs):
    assert needs_of(needs.names()) == needs
