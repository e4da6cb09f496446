"""``counterprobe discover``: what it finds, keeps and draws, and what it refuses."""

import json
from functools import partial

import numpy as np
import pytest

import command_line
import counterprobe as cp
import counterprobe.cli.discover as module
from counterprobe.models import TorchOracle
from counterprobe.run import Stream
from interrupted_program import interrupted

MODEL = ("--model", "sapiens-heavy", "--device", "cpu")
SEQUENCE = "EVQLVXXSGGXX"
BASE = (*MODEL, "--sequence", SEQUENCE, "--probes", 16)
PATH = ("--family", "path", "--n", 16)
SOFT_PATH = (*PATH, "--mode", "soft", "--probes", 64)


invoke, record_of, shown, refused = (
    partial(getattr(command_line, name), "discover")
    for name in ("invoke", "record_of", "said", "refused")
)


@pytest.fixture
def unasked(monkeypatch) -> None:
    """Fail as soon as anything is probed."""

    def asked(*_: object, **__: object) -> None:
        raise AssertionError("something was asked")

    monkeypatch.setattr(TorchOracle, "__init__", asked)
    monkeypatch.setattr(module, "find_structure", asked)


# ----- What is found ----------------------------------------------------------------------------


def test_the_edges_of_a_law_are_certified_and_kept(tmp_path):
    file = tmp_path / "path.npz"
    record = record_of(*PATH, "--seed", 3, "--out", file)
    kept = cp.Structure.load(file)
    law = cp.families.build("path", 16, 196)
    found = cp.discover(law.oracle(), cp.Streams.from_seed(3))
    assert sorted(map(sorted, kept.edges.tolist())) == sorted(map(sorted, law.edges.tolist()))
    assert kept.edges.tolist() == found.edges.tolist()
    assert record["target"] == "path"
    assert record["evaluations"] == found.ledger.evaluations
    assert record["edges"] == 15
    said = shown(*PATH, "--seed", 3)
    assert said.startswith("path, certified positions 16 edges 15 unresolved positions 0")
    assert f"evaluations {found.ledger.evaluations}" in said


def test_an_edge_list_is_a_law_too(tmp_path):
    edges = tmp_path / "edges.txt"
    edges.write_text("0 5\n5 2\n")
    record = record_of("--edges", edges, "--n", 6)
    assert (record["length"], record["edges"]) == (6, 2)


def test_strengths_of_a_law_are_found_softly():
    record = record_of(*SOFT_PATH)
    oracle = cp.families.build("path", 16, 196).oracle()
    found = cp.discover(oracle, cp.Streams.from_seed(1), mode="soft", probes=64)
    assert record["kind"] == "soft"
    assert record["evaluations"] == found.ledger.evaluations
    assert record["total_strength"] == found.summary()["total_strength"]
    said = shown(*SOFT_PATH)
    assert said.startswith("path, soft positions masked 16")
    assert "batches nats SE covered 2 " in said and "held-out" in said


def test_a_model_is_probed_around_what_is_given(tmp_path):
    file = tmp_path / "soft.npz"
    said = shown(*BASE, "--out", file)
    assert said.startswith("sapiens-heavy, soft positions masked 4 ")
    assert said.endswith(f"Wrote {file}.")
    kept = cp.Structure.load(file)
    model = cp.models.load("sapiens-heavy", device="cpu")
    assert kept.given.tolist() == model.template(SEQUENCE).given.tolist()
    assert kept.strengths.num_probes == 16
    assert set(kept.edges.ravel().tolist()) <= {5, 6, 10, 11}


def test_pairs_are_named_by_letter_and_place(monkeypatch):
    usual = module.find_structure

    law = cp.families.path(6, target_seed=1, weight=0.9)

    def coupled(_: object, streams: cp.Streams, **__: object) -> cp.Structure:
        return usual(law.oracle(), streams, mode="soft", probes=256)

    monkeypatch.setattr(module, "find_structure", coupled)
    said = shown(*MODEL, "--sequence", "______")
    for i, j in np.sort(law.edges, axis=1).tolist():
        assert f" X{i + 1} - X{j + 1} " in said, "from 1"


def test_settings_of_the_screen_are_read_as_numbers():
    record = record_of(*MODEL, "--sequence", SEQUENCE, "--set", "false-discovery-rate=0.2")
    assert record["settings"]["false_discovery_rate"] == 0.2


@pytest.mark.parametrize("text", ["EVQ", "EVX"])
def test_fewer_than_two_masks_need_no_probes(text):
    assert record_of(*MODEL, "--sequence", text)["evaluations"] == 0
    said = shown(*MODEL, "--sequence", text)
    assert "edges 0" in said
    assert "nan" not in said


def test_a_screen_that_resolves_nothing_is_infeasible(monkeypatch):
    def resolves_nothing(*_: object, **__: object) -> None:
        raise cp.Infeasible("the screen resolved none of 2 positions")

    monkeypatch.setattr(module, "find_structure", resolves_nothing)
    result = invoke(*MODEL, "--sequence", "EVXQX", "--mode", "exact")
    assert result.exit_code == 3
    assert result.stderr == "counterprobe: the screen resolved none of 2 positions\n"


# ----- From discovery to sequences --------------------------------------------------------------


def test_what_is_discovered_is_drawn_by_and_advised_on(tmp_path):
    file = tmp_path / "soft.npz"
    text = ("--sequence", "EVQLVXXSGG____")
    assert invoke(*MODEL, *text, "--probes", 32, "--out", file).exit_code == 0
    drawn = command_line.invoke(
        "infill", *MODEL, *text, "--structure", file, "--batches", 4, "--count", 3, "--json", "-",
    )  # fmt: skip
    assert drawn.exit_code == 0, drawn.stderr
    assert [text.count("X") for text in json.loads(drawn.stdout)["texts"]] == [0, 0, 0]
    advised = command_line.invoke(
        "advise", *MODEL, *text, "--structure", file, "--batches", "2,4", "--samples", 4,
        "--max-evaluations", 200, "--json", "-",
    )  # fmt: skip
    assert advised.exit_code == 0, advised.stderr
    assert "For 1,000 sequences" in json.loads(advised.stdout)["says"]


@pytest.mark.parametrize("change", [("--temperature", 0.5), ("--allowed", "ADSGY")])
def test_a_declared_change_of_the_law_has_its_own_structure(tmp_path, change):
    file = tmp_path / "soft.npz"
    assert invoke(*BASE, *change, "--out", file).exit_code == 0
    text = (*BASE[:-2], "--structure", file, "--batches", 2)
    assert command_line.invoke("infill", *text, *change).exit_code == 0
    plain = command_line.invoke("infill", *text)
    assert plain.exit_code == 2
    assert "does not give the stored replies" in plain.stderr


def test_structure_for_a_protein_is_drawn_by_in_commit_order(tmp_path):
    file = tmp_path / "1ubi.npz"
    protein = ("--model", "proteinmpnn", "--backbone", "1ubi", "--device", "cpu")
    assert invoke(*protein, "--probes", 16, "--out", file).exit_code == 0
    drawn = command_line.invoke(
        "infill", *protein, "--structure", file, "--batches", 3, "--order", "commit",
        "--json", "-",
    )  # fmt: skip
    assert drawn.exit_code == 0, drawn.stderr
    assert json.loads(drawn.stdout)["sampler"] == "planned"


# ----- What is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "sapien-heavy"], "did you mean 'sapiens-heavy'?"),
        ([*BASE, "--family", "path"], "--model brings a law of its own: leave out --family"),
        ([*BASE, "--n", 9, "--weight", 0.1], "leave out --n, --weight"),
        ([*BASE, "--temperature", 0], "--temperature must be above 0"),
        ([*BASE, "--backbone", "1ubi"], "--backbone must come with a model that takes it"),
        ([*PATH, "--sequence", "EVX"], "a model must be named with --model for --sequence"),
        ([*PATH, "--temperature", 0.5], "with --model for --temperature"),
        (["--family", "ring"], "ring"),
        ([*PATH, "--out", "structure.txt"], "--out must end in .npz, got structure.txt"),
    ],
)
def test_bad_input_is_refused_before_anything_is_evaluated(unasked, arguments, message):
    assert message in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode", "bogus"], "mode must be one of auto, exact, soft; got 'bogus'"),
        (["--mode", "exact", "--probes", 16], "soft settings go with mode='soft'"),
        (["--mode", "soft", "--probes", 0], "probes must be at least 1, got 0"),
        (["--mode", "soft", "--set", "foo=3"], "the soft screen has no setting 'foo'"),
        (["--set", "foo"], "--set takes key=value, got 'foo'"),
        (["--seed", -1], "seed must be a non-negative integer, got -1"),
    ],
)
def test_settings_that_a_screen_does_not_have_are_refused(arguments, message):
    assert message in refused(*PATH, *arguments)


# ----- Ctrl-C -------------------------------------------------------------------------------

# The command line, standing still at the end of the stage of probes that its first word counts.
STANDING_STILL = """
import sys, time
from counterprobe.cli.main import main
from counterprobe.run import Stream
from counterprobe.run.run import Run

plain, left = Run.perform, [int(sys.argv.pop(1))]

def perform(run, request):
    reply = yield from plain(run, request)
    left[0] -= isinstance(request, Stream)
    if isinstance(request, Stream) and left[0] == 0:
        print("standing still", file=sys.stderr, flush=True)
        time.sleep(300)
    return reply

Run.perform = perform
sys.exit(main())
"""


@pytest.mark.parametrize("method", ["exact", "soft"])
def test_what_was_found_before_ctrl_c_is_kept(tmp_path, method):
    file, path = tmp_path / "found.npz", tmp_path / "replies"
    words = ["--family", "path", "--n", 300, "--target-seed", 196, "--mode", method]
    words += ["--probes", 256, "--n", 40] if method == "soft" else []
    words += ["--out", file, "--cache", path]
    stage = 4 if method == "exact" else 2
    said = interrupted(
        STANDING_STILL, stage, "discover", *words, when=lambda line: "standing" in line
    )
    assert said.startswith("counterprobe: interrupted")
    assert f"what was found is in {file}" in said and "repeat the command" in said
    found = cp.Structure.load(file)
    law = cp.families.path(300, 196)
    true = {tuple(edge) for edge in np.sort(law.edges, axis=1).tolist()}
    assert found.ledger.probes > 0 and found.ledger.commits == 0
    if method == "exact":
        # Edges are there, and nothing is certified by them: all is committed singly.
        assert "nothing is certified" in found.certificate.reason
        assert len(found.unresolved) == 300 and len(found.order.batches) == 300
        assert len(true & {tuple(edge) for edge in found.edges.tolist()}) > 100
        assert "uncertified" in found.lines()[0]
        drawn = cp.sample(law.oracle(), found, 1, seed=1, progress=False)
        assert cp.evaluation.batch_kl(law, drawn.results[0]).value == 0
    else:
        assert 0 < found.strengths.num_probes < found.ledger.probes
    # The same command goes on with the replies that were kept, and pays for none of them again.
    whole = record_of(*words)
    assert whole["faults"]["cache_hits"] >= found.ledger.evaluations
    assert whole["faults"]["cache_misses"] > 0
    assert whole["evaluations"] == whole["faults"]["cache_hits"] + whole["faults"]["cache_misses"]
    assert method == "soft" or (whole["unresolved"], whole["edges"]) == (0, 299)


def test_where_nothing_is_to_be_kept_ctrl_c_says_how_it_would_be(monkeypatch):
    plain = cp.run.Run.perform

    def perform(run, request):
        if isinstance(request, Stream):
            raise KeyboardInterrupt
        return plain(run, request)

    monkeypatch.setattr(cp.run.Run, "perform", perform)
    result = invoke(*PATH, "--mode", "exact")
    assert result.exit_code == 130
    assert result.stderr.strip().endswith("--out would have kept what was found")
