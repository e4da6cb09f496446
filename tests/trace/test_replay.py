"""Following a trace: what was committed, remasked and known; traces that contradict themselves."""

import pytest

from counterprobe.trace import Trace, replay, summary

HEADER = {"length": 4, "vocab_size": 3, "given": [-1, 2, -1, -1]}


def commit(positions, tokens, **more):
    return {"type": "commit", "positions": positions, "tokens": tokens, **more}


def test_commits_remasks_and_edges_add_up():
    events = [
        {"type": "graph", "pairs": [[0, 2], [2, 3]], "status": [1, 1]},
        commit([2, 0], [1, 0], ledger=[1, 5, 1, 3, 9]),
        {"type": "graph", "pairs": [[0, 2]], "status": [0]},
        {"type": "remask", "positions": [0], "ledger": [1, 6, 1, 4, 10]},
        {"type": "unheard of", "positions": "nonsense"},
        commit([0], [2], ledger=[1, 6, 2, 5, 11]),
    ]
    followed = replay(Trace(HEADER, events))
    assert followed.tokens.tolist() == [2, 2, 1, -1]
    assert followed.round_of_position.tolist() == [1, -1, 0, -2]
    assert followed.ledger == {
        "preprocessing": 1, "probes": 6, "commits": 2, "stages": 5, "rows_read": 11,
    }  # fmt: skip
    assert followed.edges.tolist() == [[2, 3]]
    assert followed.num_events == {"graph": 2, "commit": 2, "remask": 1, "unheard of": 1}


def test_a_trace_of_nothing_ends_where_it_began():
    followed = replay(Trace({"length": 2, "vocab_size": 1}, []))
    assert followed.tokens.tolist() == [-1, -1]
    assert set(followed.ledger.values()) == {0}
    assert followed.edges.shape == (0, 2)


CONTRADICTIONS = {
    "given is committed": [commit([1], [0])],
    "committed twice": [commit([0], [0]), commit([0], [1])],
    "one position twice": [commit([0, 0], [0, 1])],
    "beyond the last position": [commit([4], [0])],
    "before the first position": [commit([-1], [0])],
    "beyond the last token": [commit([0], [3])],
    "the mask as a token": [commit([0], [-1])],
    "fewer tokens": [commit([0, 2], [1])],
    "no tokens": [{"type": "commit", "positions": [0]}],
    "fractions": [commit([0.5], [0])],
    "words": [commit("all", [0])],
    "ledger too short": [commit([0], [0], ledger=[1, 2])],
    "ledger of words": [commit([0], [0], ledger=list("abcde"))],
    "remasked nowhere": [{"type": "remask", "positions": [9]}],
    "edge to nowhere": [{"type": "graph", "pairs": [[0, 9]], "status": [1]}],
    "edge without status": [{"type": "graph", "pairs": [[0, 1]], "status": []}],
    "half an edge": [{"type": "graph", "pairs": [0, 1], "status": [1]}],
}


@pytest.mark.parametrize("events", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_contradictions_are_refused_with_the_event_that_has_them(events):
    with pytest.raises(ValueError, match=f"event {len(events) - 1}"):
        replay(Trace(HEADER, events))


def test_context_of_another_length_is_refused():
    with pytest.raises(ValueError, match="given must have shape"):
        replay(Trace({**HEADER, "given": [0, 1]}, []))


def test_what_was_spent_beside_a_run_is_summed_up_whatever_else_a_file_says():
    end = {"type": "end", "beside": {"discovery and pricing": 70, "words": "many"}}
    spent = {**HEADER, "beside": {"measuring": 16, "nothing": None}}
    assert summary(Trace(spent, [end]))["beside"] == {"measuring": 16, "discovery and pricing": 70}
    assert summary(Trace({**HEADER, "beside": [3]}, []))["beside"] == {}


@pytest.mark.parametrize(
    ("header", "place"),
    [
        ({"sequence": 2, "count": 4}, (2, 4)),
        ({"sequence": 0, "count": 1}, (None, None)),
        ({"sequence": 4, "count": 4}, (None, None)),
        ({"sequence": True, "count": 4}, (None, None)),
        ({"sequence": "2", "count": 4}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_a_summary_names_a_sequence_among_many_and_nothing_else(header, place):
    told = summary(Trace({**HEADER, **header}, []))
    assert (told["sequence"], told["count"]) == place


def test_a_summary_adds_up_and_leaves_out_what_is_no_text():
    events = [commit([2, 0], [1, 0], ledger=[1, 5, 1, 3, 9])]
    end = {"type": "end", "stop": "completed", "thinned": ["rows left out", 3, None]}
    header = {**HEADER, "thinned": "no list", "sampler": "punt"}
    told = summary(Trace(header, [*events, end]))
    assert (told["evaluations"], told["committed"], told["edges"]) == (7, 2, 0)
    assert (told["n"], told["vocab"], told["sampler"], told["stop"]) == (4, 3, "punt", "completed")
    assert told["thinned"] == ["rows left out"] and not told["truncated"]
    cut = summary(Trace(HEADER, events, is_truncated=True))
    assert cut["truncated"] and cut["stop"] is None
