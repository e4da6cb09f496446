"""Every sampler leaves a trace that replays to its tokens and its ledger."""

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run import Commit, Preprocess, Probe, Stream
from counterprobe.run.events import Charged, Replied
from counterprobe.samplers import SAMPLERS, Packed, PackedTheory, build_sampler
from counterprobe.trace import About, Recorder, Trace, load_trace, replay
from counterprobe.trace.arrays import unpack

STREAMS = cp.Streams(3, 4)
# So many sequences share a screen of ``packed`` that it pays at any size.
SCREENS = {"shared_by": 1000}
# Theory mode resolves the two-type law with these; see tests/samplers/test_packed.py.
RESOLVED = {"epsilon": 0.1, "edge_signal": 0.2, "tail_tolerance": 0.1}


def recorded(
    path: Path, sampler, law, streams: cp.Streams = STREAMS, *, max_bytes=5_000_000, **options
) -> tuple[Trace, cp.SampleResult]:
    """Run a sampler with a recorder; return the trace and the result."""
    about = About(family=law.name, true_edges=getattr(law, "edges", None))
    with Recorder(path / "run.json", about, max_bytes=max_bytes) as recorder:
        run = cp.run.Run(law.oracle(), on_event=recorder, **options)
        result = sampler.informed_by(law)(run, streams)
    return load_trace(path / "run.json"), result


def check_replays(trace: Trace, result: cp.SampleResult) -> None:
    followed = replay(trace)
    assert followed.tokens.tolist() == result.state.tolist()
    assert followed.round_of_position.tolist() == result.round_of_position.tolist()
    ledger = result.ledger
    assert followed.ledger == {name: getattr(ledger, name) for name in followed.ledger}
    assert trace.end is not None
    assert trace.end["ledger"] == ledger.as_dict()
    assert unpack(trace.end["tokens"]).tolist() == result.state.tolist()
    assert trace.end["stop"] == str(result.stop)
    assert not trace.is_truncated


def check_accounts(trace: Trace) -> None:
    """Compare every running account with the counts of its event."""
    before = [0] * 5
    for event in trace.events[:-1]:
        if "ledger" not in event:
            continue
        step = [after - was for after, was in zip(event["ledger"], before, strict=True)]
        before = event["ledger"]
        if event["type"] == "preprocess":
            assert step[:4] == [1, 0, 0, 1]
        elif event["type"] == "probe":
            assert step[:4] == [0, event["count"], 0, 1]
        elif event["type"] == "remask":
            assert step == [0] * 5
        elif event.get("promoted"):
            assert step == [0, -1, 1, 0, 0]
        elif event["type"] == "remask":
            assert step == [0, 0, 0, 0, 0]
        else:
            assert step[:4] == [0, 0, 1, 1]


def events(trace: Trace, kind: str) -> list[dict]:
    return [event for event in trace.events if event["type"] == kind]


@pytest.fixture(scope="module")
def path_law() -> cp.ForestLaw:
    return cp.families.path(length=15, target_seed=196)


@pytest.mark.parametrize("name", sorted(set(SAMPLERS) - {"packed-theory"}))
def test_every_sampler_leaves_a_trace_that_replays(tmp_path, name, path_law):
    trace, result = recorded(tmp_path, build_sampler(name), path_law)
    assert result.stop is cp.StopReason.COMPLETED
    check_replays(trace, result)
    check_accounts(trace)
    assert trace.header["sampler"] == name
    assert trace.end["thinned"] == []


def test_theory_mode_leaves_a_trace_that_replays(tmp_path):
    law = cp.families.two_type_path(10, 1, vocab_size=64)
    trace, result = recorded(tmp_path, PackedTheory(**RESOLVED), law)
    check_replays(trace, result)
    check_accounts(trace)
    assert events(trace, "probe")[0]["screen"]["num_colors"] == 80


def test_every_variant_leaves_a_trace_that_replays(tmp_path, sampler, forest_law):
    trace, result = recorded(tmp_path, sampler, forest_law)
    check_replays(trace, result)
    check_accounts(trace)


@pytest.mark.parametrize("name", ["compressed", "packed", "llada", "punt", "sequential"])
def test_given_context_is_in_the_header_and_never_committed(tmp_path, name, path_law):
    sampler = build_sampler(name, SCREENS if name == "packed" else {})
    given = np.full(15, cp.MASK)
    given[[2, 9]] = [5, 0]
    trace, result = recorded(tmp_path, sampler, path_law, given=given)
    assert trace.header["given"] == given.tolist()
    check_replays(trace, result)
    for event in events(trace, "probe"):
        if "shown" in event:
            assert (unpack(event["shown"])[:, [2, 9]] == -2).all()


def test_without_the_right_to_select_a_rule_probes_and_commits(tmp_path, path_law):
    sampler = build_sampler("llada", {"steps": 5})
    trace, result = recorded(tmp_path, sampler, path_law, allowed=cp.Need.NONE)
    check_replays(trace, result)
    assert len(events(trace, "probe")) == len(events(trace, "commit")) == 5


# ----- What stages showed -------------------------------------------------------------------


class Keeping:
    """A listener that keeps whole states and rows, as a plain reference."""

    def __init__(self, inner: Recorder) -> None:
        self.inner = inner
        self.stages: list[list[tuple]] = [[]]

    sequence = 0

    def __call__(self, event) -> None:
        self.inner(event)
        if isinstance(event, Replied):
            self.stages[-1].append((event.states.copy(), event.readouts, event.rows))
        elif isinstance(event, Charged):
            self.stages.append([])


def plain_tv(one, other) -> float:
    return float(np.abs(np.asarray(one) - np.asarray(other)).sum() / 2)


def test_a_stage_says_what_was_shown_read_and_how_far_rows_moved(tmp_path, table_law):
    # Exact, against whole states and rows kept beside it: a stage with shared readouts, pairs and
    # all masked positions, after a preprocessing whose rows everything is compared with.
    class Hand(cp.samplers.Sampler):
        name = "hand"

        def unmask(self, view, rng):
            rows = yield Preprocess()
            states = np.repeat(view.state[None], 3, axis=0)
            states[:, 0] = [0, 1, 2]
            requests = [
                Probe(states[:2], cp.Readouts.same(2, [1, 3])),
                Probe(states[2:], cp.Readouts.pairs([0], [2])),
            ]
            yield Stream(requests, lambda request, rows: None)
            yield Probe(states, cp.Readouts.every_masked(states), purpose="everything")
            yield Commit(view.residual)
            return rows

    path = tmp_path / "run.json"
    with Recorder(path) as recorder:
        kept = Keeping(recorder)
        Hand()(cp.run.Run(table_law.oracle(), on_event=kept), STREAMS)
    trace = load_trace(path)
    first = dict(zip(range(4), kept.stages[0][0][2].dense(), strict=True))
    partial, whole = events(trace, "probe")
    assert (partial["purpose"], whole["purpose"]) == ("probe", "everything")
    assert partial["read"] == [[0, 1], [0, 3], [1, 1], [1, 3], [2, 2]]
    assert whole["read"] == "masked"
    assert partial["reference"] == whole["reference"] == "history"
    for event, stage in ((partial, kept.stages[1]), (whole, kept.stages[2])):
        shown = unpack(event["shown"])
        assert (shown == np.concatenate([states for states, _, _ in stage])).all()
        levels = []
        for _, readouts, rows in stage:
            for position, row in zip(readouts.position.tolist(), rows.dense(), strict=True):
                moved = plain_tv(row, first[position])
                noise = 2 * trace.header["row_error"]
                levels.append(0 if moved <= noise else max(1, math.ceil(math.log2(moved)) + 15))
        assert unpack(event["response"]).tolist() == levels
        assert max(levels) > 0


def test_a_stage_with_nothing_read_before_moves_from_its_own_first_reply(tmp_path, table_law):
    class Hand(cp.samplers.Sampler):
        name = "hand"

        def unmask(self, view, rng):
            states = np.repeat(view.state[None], 3, axis=0)
            states[:, 0] = [0, 0, 1]
            yield Probe(states, [1])
            yield Commit(view.residual)

    trace, _ = recorded(tmp_path, Hand(), table_law)
    (probe,) = events(trace, "probe")
    assert probe["reference"] == "stage"
    levels = unpack(probe["response"]).tolist()
    assert levels[:2] == [0, 0] and levels[2] > 0


def test_a_stage_that_begins_with_the_history_itself_is_told_whole(tmp_path, table_law):
    class Hand(cp.samplers.Sampler):
        name = "hand"

        def unmask(self, view, rng):
            yield Probe(view.state, [2, 1])
            states = np.repeat(view.state[None], 2, axis=0)
            states[1, 0] = 1
            requests = [
                Probe(state[None], cp.Readouts.every_masked(state[None])) for state in states
            ]
            yield Stream(requests, lambda request, rows: None)
            yield Commit(view.residual)

    trace, result = recorded(tmp_path, Hand(), table_law)
    alone, both = events(trace, "probe")
    assert alone["read"] == [[0, 2], [0, 1]] and "shown" not in alone
    assert unpack(both["shown"]).tolist() == [[-1] * 4, [1, -1, -1, -1]]
    assert both["read"] == "masked"
    assert unpack(both["response"])[:4].tolist() == [0] * 4
    assert len(unpack(both["response"])) == 7
    check_replays(trace, result)
    check_accounts(trace)


def test_compressed_probes_show_columns_and_find_the_forest(tmp_path, path_law):
    trace, result = recorded(tmp_path, build_sampler("compressed"), path_law)
    probes = events(trace, "probe")
    assert [probe["purpose"] for probe in probes[:1]] == ["first"]
    assert {"validate", "rehearse"} <= {probe["purpose"] for probe in probes}
    for probe in probes:
        shown = unpack(probe["shown"])
        assert probe["unit"] == "column" and shown.shape == (probe["count"], 15)
        assert shown.min() == -1 and shown.max() < result.diagnostics.findings.num_choices
        assert len(unpack(probe["response"])) == (shown == -1).sum()
    true = {tuple(sorted(edge)) for edge in path_law.edges.tolist()}
    assert {tuple(edge) for edge in replay(trace).edges.tolist()} == true
    last = [event for event in events(trace, "graph") if "status" in event][-1]
    assert set(unpack(last["status"]).tolist()) <= {0, 2}


def test_votes_follow_from_colors_and_what_moved(tmp_path):
    law = cp.families.binary_tree(length=12, target_seed=196)
    trace, _ = recorded(tmp_path, Packed(num_colors=4, num_colorings=11), law)
    screen = events(trace, "probe")[0]["screen"]
    votes = events(trace, "votes")[0]
    colors, moved = unpack(screen["colors"]), unpack(screen["moved"])
    residual = unpack(screen["residual"]).tolist()
    assert residual == list(range(12))
    counted = {}
    for source in range(12):
        for readout in range(12):
            won = [
                t
                for t in range(screen["num_colorings"])
                if colors[t, source] != colors[t, readout] and moved[t, colors[t, source], readout]
            ]
            if len(won) > votes["needed"]:
                counted[source, readout] = len(won)
    pairs = [tuple(pair) for pair in unpack(votes["pairs"]).tolist()]
    assert dict(zip(pairs, unpack(votes["votes"]).tolist(), strict=True)) == counted
    kept = np.flatnonzero(unpack(votes["kept"]))
    named = {tuple(sorted(pairs[k])) for k in kept}
    first = events(trace, "graph")[0]
    assert named == {tuple(edge) for edge in unpack(first["pairs"]).tolist()}


def test_hubs_are_told_before_they_are_peeled(tmp_path):
    law = cp.families.growing_stars(length=40, target_seed=196)
    sampler = Packed(num_colors=60, num_colorings=9, degree_cutoff=2, majority_fraction=0.5)
    trace, _ = recorded(tmp_path, sampler, law)
    hubs = events(trace, "hubs")[0]
    assert all(2 * claims > hubs["cutoff"] for claims in unpack(hubs["claims"]))
    after = trace.events[trace.events.index(hubs) + 1 :]
    peeled = [e["positions"] for e in after[: len(unpack(hubs["positions"]))]]
    assert [position for batch in peeled for position in batch] == unpack(
        hubs["positions"]
    ).tolist()
    assert after[0]["reason"] == "peel"


def test_the_guard_is_told_and_named_as_the_reason(tmp_path):
    law = cp.families.path(length=12, target_seed=196)
    trace, result = recorded(tmp_path, Packed(round_cap=2), law)
    assert result.diagnostics.guard != "none"
    assert "guard" in events(trace, "message")[0]["text"]
    assert events(trace, "commit")[-1]["reason"] == "guard"


def test_plans_are_told_with_their_prices(tmp_path, path_law):
    trace, result = recorded(tmp_path, build_sampler("planned", {"batches": 3}), path_law)
    (plan,) = events(trace, "plan")
    start = unpack(plan["start"]).tolist()
    flat = unpack(plan["positions"]).tolist()
    batches = [flat[low:high] for low, high in itertools.pairwise(start)]
    assert batches == [batch.tolist() for batch in result.batches]
    prices = [event["price"] for event in events(trace, "commit")]
    assert sum(prices) == pytest.approx(plan["price"])
    (graph,) = events(trace, "graph")
    assert set(graph["status"]) == {4}
    assert len(unpack(graph["strength"])) == len(path_law.edges)


def test_candidates_and_tests_of_a_peer_are_told(tmp_path, path_law):
    trace, _ = recorded(tmp_path, build_sampler("punt"), path_law)
    kinds = [event["type"] for event in trace.events]
    assert kinds[:2] == ["probe", "candidates"]
    decided = events(trace, "tests")[0]
    together = sorted([*decided["kept"], *decided["dropped"]])
    assert together == list(range(15))
    committed = events(trace, "commit")[0]
    assert committed["positions"] == decided["kept"]
    assert committed["promoted"] and committed["selected"]
    drawn = events(trace, "candidates")[0]
    assert committed["tokens"] == [drawn["tokens"][k] for k in committed["positions"]]


@pytest.mark.parametrize("name", ["universal-coupling", "assd", "freedave"])
def test_drafts_that_were_verified_are_told(tmp_path, path_law, name):
    trace, result = recorded(tmp_path, build_sampler(name), path_law)
    told = [event for event in trace.events if event["type"] in ("verify", "commit")]
    assert [event["type"] for event in told] == ["verify", "commit"] * (len(told) // 2)
    for verify, commit in zip(told[::2], told[1::2], strict=True):
        accepted = [p for p, ok in zip(verify["positions"], verify["accepted"], strict=True) if ok]
        assert commit["positions"][: len(accepted)] == accepted
        assert len(commit["positions"]) - len(accepted) in (0, 1)  # one may be corrected
        assert commit["reason"] == "verified"
        assert len(commit["prob"]) == len(commit["positions"])
    # Each value's probability is that of its row given all before it: the chain rule.
    order = [p for commit in told[1::2] for p in commit["positions"]]
    probability = [p for commit in told[1::2] for p in commit["prob"]]
    run = cp.run.Run(path_law.oracle())
    state = run.state
    for position, said in zip(order, probability, strict=True):
        row = run.do(Probe(state, [position])).rows
        assert said == pytest.approx(float(row.prob(result.state[[position]])[0]), abs=1e-4)
        state[position] = result.state[position]


def test_values_that_were_taken_back_are_told(tmp_path):
    law = cp.families.path(length=15, target_seed=196)
    trace, _ = recorded(tmp_path, build_sampler("remdm"), law)
    known: set[int] = set()
    for event in trace.events:
        if event["type"] == "commit":
            assert not known & set(event["positions"])
            known |= set(event["positions"])
        elif event["type"] == "remask":
            assert set(event["positions"]) <= known
            known -= set(event["positions"])
    assert known == set(range(15))
    assert events(trace, "remask")


def test_commits_say_how_probable_their_tokens_were(tmp_path, forest_law):
    trace, result = recorded(tmp_path, build_sampler("one-batch"), forest_law)
    (commit,) = events(trace, "commit")
    marginals = cp.run.Run(forest_law.oracle()).do(cp.run.Preprocess())
    expected = marginals.prob(result.tokens)
    assert np.abs(np.array(commit["prob"]) - expected).max() < 1e-4
    assert np.abs(np.array(commit["entropy"]) - marginals.entropy()).max() < 1e-4
    assert (np.array(unpack(commit["top"]))[:, 0] == marginals.top()[0]).all()


# ----- Runs that do not end well ------------------------------------------------------------


def test_a_run_that_dies_leaves_a_readable_prefix(tmp_path, path_law):
    class Dying(cp.samplers.Sampler):
        name = "dying"

        def unmask(self, view, rng):
            yield Commit([0, 1])
            yield Commit([2])
            raise RuntimeError("died")

    with pytest.raises(RuntimeError) as death:
        recorded(tmp_path, Dying(), path_law)
    left = tmp_path / "run.json.partial"
    assert str(left) in death.value.__notes__[0]
    assert not (tmp_path / "run.json").exists()
    trace = load_trace(left)
    assert trace.is_truncated and trace.end is None
    assert (replay(trace).round_of_position[:4] == [0, 0, 1, -2]).all()


def test_a_killed_run_leaves_what_it_had_done(tmp_path):
    program = textwrap.dedent(
        """
        import os, signal, sys
        import counterprobe as cp
        from counterprobe.run import Commit

        class Killed(cp.samplers.Sampler):
            name = "killed"

            def unmask(self, view, rng):
                yield Commit([0, 1])
                os.kill(os.getpid(), signal.SIGKILL)

        law = cp.families.path(length=6, target_seed=196)
        with cp.trace.Recorder(sys.argv[1]) as recorder:
            Killed()(cp.run.Run(law.oracle(), on_event=recorder), cp.Streams(1, 2))
        """
    )
    file = tmp_path / "run.json"
    ended = subprocess.run([sys.executable, "-c", program, str(file)], env=os.environ)
    assert ended.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == ["run.json.partial"]
    trace = load_trace(tmp_path / "run.json.partial")
    assert trace.is_truncated
    assert replay(trace).ledger["commits"] == 1


def test_an_infeasible_run_and_a_spent_budget_have_an_end(tmp_path, path_law):
    trace, result = recorded(tmp_path, build_sampler("packed-theory"), path_law)
    assert trace.end["stop"] == "infeasible" == str(result.stop)
    check_replays(trace, result)
    trace, result = recorded(tmp_path, build_sampler("sequential"), path_law, max_evaluations=4)
    assert trace.end["stop"] == "budget-spent"
    check_replays(trace, result)


def test_a_recorder_follows_one_run(tmp_path, path_law):
    recorder = Recorder(tmp_path / "run.json")
    with pytest.raises(ValueError, match="one run"), recorder:
        for _ in range(2):
            build_sampler("one-batch")(cp.run.Run(path_law.oracle(), on_event=recorder), STREAMS)


def test_a_recorder_that_nobody_told_anything_says_so(tmp_path):
    with pytest.raises(ValueError, match="nothing was recorded"), Recorder(tmp_path / "run.json"):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["run.txt", "run", "run.json.zip"])
def test_a_name_must_say_what_is_written(tmp_path, name):
    with pytest.raises(ValueError, match=r"\.json, \.json\.gz or \.html"):
        Recorder(tmp_path / name)


# ----- Room ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["compressed", "packed", "info-gain", "sequential", "punt"])
def test_little_room_keeps_commits_edges_and_ledger_and_says_what_it_left_out(tmp_path, name):
    law = cp.families.path(length=60, target_seed=196)
    sampler = build_sampler(name, SCREENS if name == "packed" else {})
    whole, result = recorded(tmp_path, sampler, law)
    size = os.path.getsize(tmp_path / "run.json")
    trace, _ = recorded(tmp_path, sampler, law, max_bytes=size // 3)
    assert os.path.getsize(tmp_path / "run.json") < size
    check_replays(trace, result)
    assert trace.end["thinned"]
    assert all(f"within {size // 3:,} bytes" in said for said in trace.end["thinned"])
    assert replay(trace).edges.tolist() == replay(whole).edges.tolist()


def test_gzipped_traces_hold_the_same(tmp_path, path_law):
    documents = []
    for name in ("run.json", "run.json.gz"):
        with Recorder(tmp_path / name) as recorder:
            run = cp.run.Run(path_law.oracle(), on_event=recorder)
            build_sampler("packed", SCREENS)(run, STREAMS)
        document = load_trace(tmp_path / name).document()
        document["events"][-1]["seconds"] = 0
        documents.append(json.dumps(document))
    assert documents[0] == documents[1]
    assert sorted(os.listdir(tmp_path)) == ["run.json", "run.json.gz"]


def test_sequences_that_share_a_screen_let_the_first_be_traced_whole(tmp_path, path_law):
    with Recorder(tmp_path / "run.json") as recorder:
        batch = cp.sample(
            path_law.oracle(), "compressed", 3, seed=2, progress=False, on_event=recorder
        )
    trace = load_trace(tmp_path / "run.json")
    check_replays(trace, batch.results[0])
    assert all("shown" in event for event in events(trace, "probe"))


@pytest.mark.parametrize("name", ["compressed", "punt"])
def test_any_one_of_many_sequences_is_traced_whole(tmp_path, name, path_law):
    options = {"count": 3, "seed": 2, "progress": False}
    with Recorder(tmp_path / "run.json", About(count=3), sequence=2) as recorder:
        batch = cp.sample(path_law.oracle(), name, on_event=recorder, **options)
    trace = load_trace(tmp_path / "run.json")
    check_replays(trace, batch.results[2])
    check_accounts(trace)
    assert all("shown" in event or "read" in event for event in events(trace, "probe"))
    assert (trace.header["sequence"], trace.header["count"]) == (2, 3)
    alone = cp.sample(path_law.oracle(), name, **options)
    assert batch.sequences.tolist() == alone.sequences.tolist()
    assert batch.ledger == alone.ledger
    assert len({tuple(one) for one in batch.sequences.tolist()}) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [("packed", {}), ("compressed", {}), ("random-balanced", {"batches": "256"})],
)
def test_a_run_of_16384_positions_stays_below_five_megabytes(tmp_path, name, settings):
    law = cp.families.binary_tree(length=16384, target_seed=196)
    trace, result = recorded(tmp_path, build_sampler(name, settings), law)
    assert os.path.getsize(tmp_path / "run.json") < 5_000_000
    assert trace.end["thinned"] == []
    followed = replay(trace)
    assert (followed.tokens == result.state).all()
    assert followed.ledger["probes"] == result.ledger.probes
