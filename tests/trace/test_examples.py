"""The shipped traces: what they show, and that they are made by the command they name."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.trace import EXAMPLES, load_example, load_trace, replay
from counterprobe.trace.arrays import unpack

TOOL = Path(__file__).parents[2] / "tools" / "make_traces.py"


def events(trace, kind):
    return [event for event in trace.events if event["type"] == kind]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_replays_to_its_end(name):
    trace = load_example(name)
    followed = replay(trace)
    assert trace.end["stop"] == "completed"
    assert followed.tokens.tolist() == unpack(trace.end["tokens"]).tolist()
    ledger = trace.end["ledger"]
    assert followed.ledger == {key: ledger[key] for key in followed.ledger}
    assert trace.header["command"] == f"python tools/make_traces.py {name}"


def test_the_papers_example_is_run_as_it_stands_there():
    trace = load_example("paper")
    assert trace.header["positions"] == [str(k) for k in range(1, 16)]
    first, second = (event["screen"] for event in events(trace, "probe"))
    # "A column indexes local vocabulary banks": a, c, b at vertex 1 and b, b, a elsewhere.
    a, b, c = 0, 1, 2
    expected = np.array([[a, *[b] * 14], [c, *[b] * 14], [b, *[a] * 14]])
    assert (unpack(first["columns"]) == expected).all()
    assert unpack(first["draft"]).tolist() == [a, *[b] * 14]
    assert (first["num_colors"], first["chunk_size"]) == (80, 2)
    # "One peel commit, then two centroid batches."
    (hubs,) = events(trace, "hubs")
    assert (hubs["positions"], hubs["claims"], hubs["cutoff"]) == ([0], [10], 9)
    batches = [[k + 1 for k in event["positions"]] for event in events(trace, "commit")]
    assert batches == [[1], [*range(2, 10), 11, 14], [10, 12, 13, 15]]
    assert unpack(second["residual"]).tolist() == list(range(1, 15))
    labelled = (replay(trace).edges + 1).tolist()
    assert labelled == [[10, 11], [11, 12], [13, 14], [14, 15]]
    assert trace.end["batch_kl"] == 0.0


def test_the_antibody_has_letters_and_tests():
    trace = load_example("antibody")
    assert "".join(trace.header["tokens"]) == "ACDEFGHIKLMNPQRSTVWY"
    given = unpack(trace.header["given"])
    assert (given == -1).sum() == 27
    assert events(trace, "tests") and events(trace, "candidates")


def test_the_protein_lies_in_space_and_has_a_price():
    trace = load_example("protein")
    backbone = cp.models.Backbone.shipped("1ubi")
    where = unpack(trace.header["coordinates"])
    assert np.abs(where - backbone.coordinates[:, 1]).max() < 1e-3
    (plan,) = events(trace, "plan")
    assert plan["price"] > 0
    assert len(events(trace, "commit")) == 8


@pytest.mark.slow
def test_the_papers_example_is_what_its_command_makes(tmp_path):
    made = runpy.run_path(str(TOOL))["make"]("paper", tmp_path)
    fresh, shipped = load_trace(made), load_example("paper")
    fresh.header["library"] = shipped.header["library"]
    assert fresh == shipped


def test_an_unknown_example_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="paper, antibody, protein; got 'x'"):
        load_example("x")
