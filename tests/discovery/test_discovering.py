"""A discovery that somebody listens to: what is told, and that its account is the ledger."""

import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import testing
from counterprobe.trace import About, Recorder, Trace, load_trace, replay
from counterprobe.trace.arrays import unpack

STREAMS = cp.Streams(3, 4)


@pytest.fixture(scope="module")
def law() -> cp.ForestLaw:
    rng = np.random.default_rng(0)
    edges = [(i, i + 1) for i in range(11)]
    unary = np.exp(rng.normal(0, 0.5, (12, 5)))
    return cp.ForestLaw(unary, edges, np.exp(rng.normal(size=(11, 5, 5))))


@pytest.fixture(scope="module")
def lying(law) -> cp.Oracle:
    """Rows that a few neighbours do not explain, though they are said to be exact."""
    return testing.NoisyLogits.with_mean_error(law.oracle(), 0.03, 1).declaring(1e-9)


def told(folder: Path, oracle: cp.Oracle, **options: object):
    """Discover with a recorder; return the trace and what was found."""
    with Recorder(folder / "found.json", About(title="a discovery")) as recorder:
        found = cp.discover(oracle, STREAMS, on_event=recorder, **options)
    return load_trace(folder / "found.json"), found


def events(trace: Trace, kind: str) -> list[dict]:
    return [event for event in trace.events if event["type"] == kind]


def check_account(trace: Trace, ledger: cp.Ledger) -> None:
    """Count every charged event again, and compare the end with the ledger."""
    counted = np.zeros(4, dtype=int)
    for event in trace.events[:-1]:
        if "ledger" in event:
            asked = [1, 0] if event["type"] == "preprocess" else [0, event["count"]]
            counted += [*asked, 0, 1]
            assert event["ledger"][:4] == counted.tolist()
    assert trace.end["ledger"] == ledger.as_dict()
    followed = replay(trace)
    assert followed.ledger == {name: getattr(ledger, name) for name in followed.ledger}


def pairs(edges: np.ndarray) -> list[list[int]]:
    return sorted(np.sort(edges, axis=1).tolist())


def test_a_certified_structure_is_told_with_its_graph_and_its_account(tmp_path, law):
    trace, found = told(tmp_path, law.oracle(), mode="exact")
    assert (trace.header["task"], trace.header["sampler"]) == ("discover", "discover")
    assert trace.header["settings"] == {"mode": "exact"}
    assert trace.header["seeds"] == {"decision": 3, "commit": 4}
    check_account(trace, found.ledger)
    assert pairs(replay(trace).edges) == pairs(found.edges) == pairs(law.edges)
    assert events(trace, "probe")[0]["purpose"] == "first"
    assert not events(trace, "commit")
    assert trace.end["stop"] == "discovered"
    assert trace.end["reason"] == "edges certified: 11; positions left unresolved: 0"
    assert unpack(trace.end["tokens"]).tolist() == [cp.MASK] * 12


def test_strengths_are_told(tmp_path, law):
    trace, found = told(tmp_path, law.oracle(), mode="soft", probes=96)
    assert trace.header["settings"] == {"mode": "soft", "probes": 96}
    check_account(trace, found.ledger)
    assert {event["purpose"] for event in events(trace, "probe")} == {"soft"}
    assert pairs(replay(trace).edges) == pairs(found.edges)
    assert len(found.edges)
    for event in events(trace, "graph"):
        assert set(unpack(event["status"]).tolist()) <= {0, 4}
    (graph,) = events(trace, "graph")  # one batch, so that everything told is the last word
    expected = found.strength[tuple(unpack(graph["pairs"]).T)]
    assert np.abs(unpack(graph["strength"]) - expected).max() < 1e-4


def test_a_second_screen_goes_on_with_the_account_of_the_first(tmp_path, lying):
    trace, found = told(tmp_path, lying)
    check_account(trace, found.ledger)
    kinds = Counter(event["type"] for event in trace.events)
    assert kinds["preprocess"] == found.ledger.preprocessing == 2
    (message,) = events(trace, "message")
    assert "estimates strengths starts anew" in message["text"]
    assert pairs(replay(trace).edges) == pairs(found.edges)
    standing = np.zeros(12, dtype=int)
    for event in events(trace, "graph"):
        if "standing" in event:
            standing[unpack(event["positions"])] = unpack(event["standing"])
    assert not standing.any(), "what the first screen thought of positions is forgotten"


def test_a_screen_in_vain_leaves_a_whole_trace_that_says_why(tmp_path, lying):
    with pytest.raises(cp.Infeasible, match="resolved none of 12 positions") as caught:
        told(tmp_path, lying, mode="exact")
    trace = load_trace(tmp_path / "found.json")
    assert not trace.is_truncated
    assert (trace.end["stop"], trace.end["reason"]) == ("infeasible", str(caught.value))
    assert trace.end["ledger"]["evaluations"] > 1
    check_account(trace, cp.Ledger(**_counts(trace.end["ledger"])))


def _counts(ledger: dict[str, int]) -> dict[str, int]:
    sums = ("noncommit", "evaluations", "evaluations_without_selection")
    return {name: count for name, count in ledger.items() if name not in sums}


@pytest.mark.parametrize("mode", ["exact", "soft"])
def test_listening_changes_nothing(tmp_path, law, mode):
    _, found = told(tmp_path, law.oracle(), mode=mode)
    alone = cp.discover(law.oracle(), STREAMS, mode=mode)
    assert found.edges.tolist() == alone.edges.tolist()
    assert found.ledger == alone.ledger


def test_given_context_is_told_and_a_cache_is_listened_to(tmp_path, law):
    given = np.full(12, cp.MASK)
    given[[2, 7]] = [1, 4]
    options = {"mode": "soft", "given": given, "probes": 16}
    trace, found = told(tmp_path, law.oracle().cached(tmp_path / "replies"), **options)
    assert trace.header["given"] == trace.end["tokens"] == given.tolist()
    check_account(trace, found.ledger)
    again, _ = told(tmp_path, law.oracle().cached(tmp_path / "replies"), **options)
    assert again.events[:-1] == trace.events[:-1], "replies from the cache are told as they were"


@pytest.mark.parametrize("mode", ["exact", "soft"])
def test_too_little_to_screen_is_told_as_nothing(tmp_path, law, mode):
    given = np.zeros(12, dtype=int)
    given[5] = cp.MASK
    trace, found = told(tmp_path, law.oracle(), mode=mode, given=given)
    assert not events(trace, "preprocess") and not events(trace, "probe")
    assert trace.end["ledger"]["evaluations"] == found.ledger.evaluations == 0


# ----- Progress, and Ctrl-C ------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "regression"])
def test_a_search_says_its_stage_what_it_has_resolved_and_the_time_left(method):
    law = cp.families.path(200, 196)
    heard: list[cp.run.Progress] = []
    settings = cp.discovery.CompressedSettings(method=method)
    found = cp.discover(law.oracle(), settings=settings, on_event=heard.append)
    standings = [now.standing for now in heard if now.standing is not None]
    assert {"first", "rehearse"} <= {now.stage for now in standings}
    assert standings[0].resolved == 0 and standings[0].seconds_left is None
    assert standings[-1].resolved == 200 and standings[-1].seconds_left < 1
    assert heard[-1].ledger == found.ledger
    # A sampler that commits afterwards says how much of it is committed.
    heard.clear()
    run = cp.run.Run(law.oracle(), on_event=cp.run.Listener(heard.append, cp.run.Progress))
    cp.samplers.Compressed(method=method)(run, STREAMS)
    assert heard[-1].standing is None and heard[-1].committed == 200
    assert any(now.standing is not None for now in heard)


@pytest.mark.parametrize("probes", [0, 30, 60])
@pytest.mark.parametrize("mode", ["exact", "soft"])
def test_ctrl_c_keeps_what_was_found(mode, probes):
    law = cp.families.matching(100, 196)

    def stop(now: cp.run.Progress) -> None:
        if now.ledger.probes >= max(probes, 1) or (probes == 0 and now.standing is not None):
            raise KeyboardInterrupt

    soft = {"probes": 128, "first": 16} if mode == "soft" else {}
    with pytest.raises(KeyboardInterrupt) as raised:
        cp.discover(law.oracle(), STREAMS, mode=mode, on_event=stop, **soft)
    if mode == "soft" and probes == 0:
        assert not isinstance(raised.value, cp.errors.Interrupted)  # nothing was read to its end
        return
    found = raised.value.found
    true = {tuple(edge) for edge in np.sort(law.edges, axis=1).tolist()}
    right = [tuple(edge) in true for edge in found.edges.tolist()]
    if mode == "soft":
        assert found.strengths.num_probes == {30: 16, 60: 32}[probes] <= found.ledger.probes
        return
    assert len(found.unresolved) == 100 and found.ledger.probes >= probes
    assert f"interrupted after {found.ledger.probes} probes" in found.certificate.reason
    assert sum(right) == {0: 0, 30: 50, 60: 50}[probes]


def test_what_an_interrupted_search_found_goes_from_one_process_to_another():
    kept = pickle.loads(pickle.dumps(cp.errors.Interrupted("ended by Ctrl-C", {"edges": 3})))
    assert str(kept) == "ended by Ctrl-C"
    assert kept.found == {"edges": 3}
