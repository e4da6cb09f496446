"""The header says what the run was; seeds and settings survive JSON and a browser."""

import json
import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.events import Opened
from counterprobe.trace import About
from counterprobe.trace.arrays import unpack

SETTINGS = {"epsilon": math.inf, "edges": tuple((k, k + 1) for k in range(100))}


def opening(given=(-1, 1, -1)) -> Opened:
    def even(states):
        return np.full((*states.shape, 2), 0.5)

    oracle = cp.CallableOracle(even, length=3, vocab_size=2, name="oracle")
    run = cp.run.Run(oracle, given=given, temperature=0.5, sequence=4)
    return Opened(run, run.state, cp.Streams(2**60 + 1, 7), "hand", SETTINGS)


def test_a_header_is_plain_json():
    header = About().header(opening())
    assert json.loads(json.dumps(header, allow_nan=False)) == header
    assert header["title"] == "hand on oracle"
    assert header["settings"] == {"epsilon": "inf", "edges": "100 values"}
    assert header["given"] == [-1, 1, -1]
    assert (header["sequence"], header["temperature"]) == (4, 0.5)


def test_seeds_that_a_browser_would_round_are_text():
    seeds = About().header(opening())["seeds"]
    assert seeds == {"decision": str(2**60 + 1), "commit": 7}


def test_nothing_given_is_null():
    given = np.full(3, cp.MASK, dtype=np.int32)
    assert About().header(opening(given=given))["given"] is None


def test_what_the_caller_knows_stands_beside_it():
    about = About(
        title="<b>",
        family="path",
        model="m",
        tokens="ab",
        positions=["</script>", "1", "2"],
        true_edges=[(0, 1)],
        coordinates=np.arange(9.0).reshape(3, 3),
        command="counterprobe x",
        stretches=[(0, "A"), (2, "B")],
        beside={"discovery": 64, "measuring": 0},
    )
    header = about.header(opening())
    assert header["tokens"] == ["a", "b"]
    assert header["positions"] == ["</script>", "1", "2"]
    assert header["true_edges"] == [[0, 1]]
    assert header["stretches"] == [[0, "A"], [2, "B"]]
    assert header["beside"] == {"discovery": 64}
    assert unpack(header["coordinates"]).tolist() == np.arange(9.0).reshape(3, 3).tolist()
    assert (header["title"], header["family"], header["model"]) == ("<b>", "path", "m")


@pytest.mark.parametrize("about", [About(tokens="abc"), About(positions=["a"])])
def test_names_must_be_as_many_as_what_they_name(about):
    with pytest.raises(ValueError, match=r"must be . strings"):
        about.header(opening())
