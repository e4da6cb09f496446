"""``--trace`` and ``counterprobe trace``: files, pages, summaries, and what they refuse."""

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import Result

import counterprobe as cp
from command_line import invoke, refused
from counterprobe.trace import EXAMPLES, load_trace, page, replay
from counterprobe.trace.arrays import unpack

TEMPLATE = '<title>t</title><script type="application/json" id="trace-data"></script>'


@pytest.fixture(autouse=True)
def small_page(monkeypatch) -> None:
    """Fill a page of one line: what a page looks like is tested in a browser."""
    monkeypatch.setattr(page, "_template", lambda: TEMPLATE)


def done(*arguments: object) -> Result:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


def page_content(file: Path) -> dict:
    inside = re.search(r'id="trace-data">(.*?)</script>', file.read_text(), re.S)
    assert inside is not None
    return json.loads(inside[1])


@pytest.fixture
def traced(tmp_path) -> Path:
    """Return the trace of one small run."""
    file = tmp_path / "run.json"
    done("sample", "--family", "path", "--n", 15, "--sampler", "compressed", "--trace", file)
    return file


# ----- sample and infill --------------------------------------------------------------------


def test_sample_writes_a_trace_with_its_ledger_tokens_and_batch_kl(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["counterprobe", "sample", "--n", "15"])
    files = {name: tmp_path / f"{name}.json" for name in ("run", "trace")}
    arguments = (
        *("sample", "--family", "binary-tree", "--n", 15),
        *("--sampler", "random-balanced", "--set", "batches=3"),
        *("--json", files["run"], "--trace", files["trace"]),
    )
    said = done(*arguments).stdout
    assert f"Wrote {files['trace']}." in said.replace("\n", "")
    record, trace = json.loads(files["run"].read_text()), load_trace(files["trace"])
    assert {
        key: trace.end["ledger"][key] for key in ("probes", "commits", "evaluations", "stages")
    } == {key: record[key] for key in ("probes", "commits", "evaluations", "stages")}
    assert trace.end["batch_kl"] == pytest.approx(record["batch_kl"])
    assert trace.end["batch_kl"] > 0
    assert trace.header["family"] == "binary-tree"
    law = cp.families.binary_tree(length=15, target_seed=196)
    assert sorted(unpack(trace.header["true_edges"]).tolist()) == sorted(law.edges.tolist())
    assert trace.header["command"] == "counterprobe sample --n 15"


def test_sample_draws_the_same_with_and_without_a_trace(tmp_path):
    arguments = ("sample", "--family", "path", "--n", 15, "--sampler", "punt", "--tokens")
    done(*arguments, tmp_path / "a.txt")
    done(*arguments, tmp_path / "b.txt", "--trace", tmp_path / "b.json.gz")
    assert (tmp_path / "a.txt").read_text() == (tmp_path / "b.txt").read_text()
    tokens = [int(word) for word in (tmp_path / "a.txt").read_text().split()]
    assert replay(load_trace(tmp_path / "b.json.gz")).tokens.tolist() == tokens


def test_sample_writes_a_page_and_leaves_nothing_else(tmp_path):
    file = tmp_path / "run.html"
    done("sample", "--family", "path", "--n", 15, "--trace", file)
    (entry,) = page_content(file)["traces"]
    assert entry["trace"]["events"][-1]["ledger"]["evaluations"] == 15
    assert os.listdir(tmp_path) == ["run.html"]


def test_an_infeasible_run_still_leaves_its_trace(tmp_path):
    file = tmp_path / "run.json"
    result = invoke(
        "sample", "--family", "path", "--n", 15, "--sampler", "packed-theory", "--trace", file
    )
    assert result.exit_code == 3
    assert load_trace(file).end["stop"] == "infeasible"


def test_little_room_is_kept_to(tmp_path):
    sizes = []
    for most in (5_000_000, 6_000):
        file = tmp_path / f"{most}.json"
        done("sample", "--family", "path", "--n", 60, "--sampler", "compressed",
             "--trace", file, "--trace-bytes", most)  # fmt: skip
        sizes.append(os.path.getsize(file))
    assert sizes[0] > 10_000 > sizes[1]
    assert load_trace(file).end["thinned"]


@pytest.mark.parametrize(
    ("more", "match"),
    [
        (["--trace", "run.txt"], r"\.json, \.json\.gz or \.html; got run\.txt"),
        (["--trace", "none/run.json"], "does not exist"),
        (["--trace", "run.json", "--trace-bytes", "0"], "at least 1, got 0"),
    ],
)
def test_a_trace_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path, monkeypatch, more, match
):
    monkeypatch.chdir(tmp_path)
    assert re.search(match, refused("sample", "--family", "path", "--n", 15, *more))
    assert os.listdir(tmp_path) == []


def test_infill_traces_the_sequence_that_is_asked_for(tmp_path):
    file, designs = tmp_path / "run.json", tmp_path / "designs.json"
    done("infill", "--model", "sapiens-heavy", "--device", "cpu", "--sequence", "EVQLVXSXXGLVXX",
         "--temperature", 3, "--count", 4, "--trace", file, "--trace-sequence", 3,
         "--json", designs)  # fmt: skip
    trace, texts = load_trace(file), json.loads(designs.read_text())["texts"]
    spelled = "".join(trace.header["tokens"][k] for k in replay(trace).tokens)
    assert spelled == texts[2]
    assert texts.count(spelled) == 1, "no other sequence could be taken for it"
    assert (trace.header["sequence"], trace.header["count"]) == (2, 4)
    assert re.search(r"sequence +3 of 4\b", done("trace", file).stdout)
    record = json.loads(done("trace", file, "--json", "-").stdout)
    assert (record["sequence"], record["count"]) == (2, 4)


def test_a_sequence_to_trace_must_be_drawn(tmp_path):
    base = ("infill", "--model", "sapiens-heavy", "--sequence", "EVQLXS", "--count", 2)
    traced = ("--trace", tmp_path / "run.json", "--trace-sequence")
    assert "must be one of 1 to --count, 2; got 3" in refused(*base, *traced, 3)
    assert "must be one of 1 to --count, 2; got 0" in refused(*base, *traced, 0)
    assert "goes with --trace FILE" in refused(*base, "--trace-sequence", 2)


# ----- discover -----------------------------------------------------------------------------


def test_discover_traces_what_it_found_and_spent(tmp_path):
    files = {name: tmp_path / f"{name}.json" for name in ("found", "trace")}
    said = done("discover", "--family", "path", "--n", 15, "--json", files["found"],
                "--trace", files["trace"]).stdout  # fmt: skip
    assert f"Wrote {files['trace']}." in said.replace("\n", "")
    record, trace = json.loads(files["found"].read_text()), load_trace(files["trace"])
    assert trace.end["ledger"]["evaluations"] == record["evaluations"]
    assert len(replay(trace).edges) == record["edges"] == 14
    assert (trace.header["task"], trace.header["family"]) == ("discover", "path")
    law = cp.families.path(length=15, target_seed=196)
    assert sorted(unpack(trace.header["true_edges"]).tolist()) == sorted(law.edges.tolist())
    shown = done("trace", files["trace"]).stdout
    assert re.search(r"commits +0\b", shown) and re.search(r"stop +discovered", shown)


def test_discover_traces_the_letters_of_a_model_on_a_page(tmp_path):
    file = tmp_path / "found.html"
    done("discover", "--model", "sapiens-heavy", "--device", "cpu", "--sequence",
         "EVQLVESXGGXX", "--probes", 16, "--trace", file)  # fmt: skip
    (entry,) = page_content(file)["traces"]
    header = entry["trace"]["header"]
    assert "".join(header["tokens"][k] for k in header["given"] if k >= 0) == "EVQLVESGG"
    assert header["model"] == "sapiens-heavy"
    assert entry["trace"]["events"][-1]["stop"] == "discovered"


def test_a_discovery_in_vain_says_where_its_trace_is(tmp_path, monkeypatch):
    def in_vain(*_: object, on_event, **__: object) -> None:
        law = cp.families.path(length=3, target_seed=1)
        cp.discover(law.oracle(), mode="exact", on_event=on_event)
        raise cp.Infeasible("nothing was resolved")

    monkeypatch.setattr("counterprobe.cli.discover.find_structure", in_vain)
    file = tmp_path / "found.json"
    result = invoke("discover", "--family", "path", "--n", 15, "--trace", file)
    assert (result.exit_code, result.stderr) == (3, "counterprobe: nothing was resolved\n")
    assert result.stdout.replace("\n", "") == f"Wrote {file}."
    assert load_trace(file).header["length"] == 3


# ----- trace --------------------------------------------------------------------------------


def test_a_trace_alone_is_summarised(traced):
    said = done("trace", traced).stdout
    trace = load_trace(traced)
    assert "run.json: compressed on exact path" in said
    assert f"{trace.end['ledger']['evaluations']:,}" in said
    assert re.search(r"edges known at the end +14\b", said)
    assert re.search(r"stop +completed", said)


def test_the_summary_as_json_is_all_of_standard_output(traced):
    result = done("trace", traced, "--json", "-")
    record = json.loads(result.stdout)
    assert record["evaluations"] == load_trace(traced).end["ledger"]["evaluations"]
    assert (record["n"], record["committed"], record["edges"]) == (15, 15, 14)
    assert (record["stop"], record["truncated"], record["thinned"]) == ("completed", False, [])


def test_a_page_is_made_of_a_trace(traced, tmp_path):
    done("trace", traced, "--html", tmp_path / "a.html")
    (entry,) = page_content(tmp_path / "a.html")["traces"]
    assert entry == {"name": "run.json", "trace": load_trace(traced).document()}


def test_two_traces_make_one_page(traced, tmp_path):
    other = tmp_path / "<b>&.json"
    done("sample", "--family", "path", "--n", 15, "--trace", other)
    done("trace", "--compare", traced, other, "--html", tmp_path / "a.html")
    entries = page_content(tmp_path / "a.html")["traces"]
    assert [entry["name"] for entry in entries] == ["run.json", "<b>&.json"]
    assert "<b>" not in (tmp_path / "a.html").read_text()


def cut(traced: Path) -> Path:
    """Return the trace of a run that died."""
    lines = traced.read_text().splitlines(keepends=True)
    file = traced.with_name("cut.json")
    file.write_text("".join(lines[:4]) + lines[4][:20])
    return file


def test_a_truncated_trace_is_shown_and_said_to_be_one(traced, tmp_path):
    result = invoke("trace", cut(traced), "--html", tmp_path / "a.html")
    assert result.exit_code == 3
    assert re.search(r"stop +cut: the run died", result.stdout)
    assert f"Wrote {tmp_path / 'a.html'}." in result.stdout.replace("\n", "")
    (line,) = result.stderr.splitlines()
    assert line == "counterprobe: cut.json: cut, so only the beginning of the run was shown"
    assert page_content(tmp_path / "a.html")["traces"][0]["trace"]["truncated"] is True


def test_a_trace_is_thinned_and_says_what_went(traced, tmp_path):
    most = os.path.getsize(traced) - 1000
    said = done("trace", traced, "--thin", most, "--out", tmp_path / "thin.json").stdout
    assert os.path.getsize(tmp_path / "thin.json") <= most
    assert f"Note: thinned to {most:,} bytes: what the states of probes showed" in said
    assert "Nothing had to be left out." in done("trace", traced, "--thin", 10**7).stdout


def test_a_trace_is_written_again_gzipped(traced, tmp_path):
    done("trace", traced, "--out", tmp_path / "small.json.gz")
    assert load_trace(tmp_path / "small.json.gz") == load_trace(traced)
    assert os.path.getsize(tmp_path / "small.json.gz") < os.path.getsize(traced)


def test_a_terminal_is_told_nothing_that_it_would_obey(traced, tmp_path):
    lines = traced.read_text().splitlines(keepends=True)
    for said in ("\\u001b[31mred", "a\\nb", "x" * 5000):
        lines[0] = re.sub(r'"title":"[^"]*"', lambda _, said=said: f'"title":"{said}"', lines[0])
        (tmp_path / "hostile.json").write_text("".join(lines))
        shown = done("trace", tmp_path / "hostile.json").stdout
        assert "\x1b" not in shown
        assert len(shown.splitlines()) < 25
    assert "xxx..." in shown.replace("\n", "")


@pytest.mark.parametrize("name", EXAMPLES)
def test_shipped_traces_open(tmp_path, name):
    done("trace", "--example", name, "--html", tmp_path / "a.html")
    (entry,) = page_content(tmp_path / "a.html")["traces"]
    assert entry["name"] == name


def test_bad_input_is_refused_in_one_line(traced, tmp_path):
    foreign, future = tmp_path / "foreign.json", tmp_path / "future.json"
    foreign.write_text('{"a": 1}')
    future.write_text(traced.read_text().replace('"version":1', '"version":7', 1))
    broken = tmp_path / "broken.json"
    broken.write_text(re.sub(r'("commit","positions":)\[\d+', r"\1[99", traced.read_text()))
    html = tmp_path / "a.html"
    cases = [
        ([], "one file"),
        ([traced, traced], "one file, or --example NAME, or two with --compare; got 2"),
        (["--compare", traced], "two files; got 1"),
        (["--compare", traced, traced, "--out", tmp_path / "x.json"], "--out writes one"),
        ([tmp_path / "none.json"], "No such file"),
        ([tmp_path], "Is a directory"),
        ([foreign, "--html", html], "foreign.json is not a trace"),
        ([future, "--html", html], "version 7, and this library reads version 1"),
        ([broken], "must hold whole numbers in 0..14"),
        (["--example", "x"], "example must be one of paper, antibody, protein"),
        (["--example", "paper", traced], "--example goes alone"),
        (
            [traced, "--html", tmp_path / "a.txt"],
            "--html must name a file that ends in .html, got",
        ),
        ([traced, "--html", "-"], "--html must name a file that ends in .html, got -"),
        ([traced, "--html", tmp_path / "a.json"], "--html must name"),
        ([traced, "--out", html], "pages are for --html"),
        ([traced, "--html", tmp_path / "none" / "a.html"], "does not exist"),
        ([traced, "--thin", 0], "--thin must be at least 1, got 0"),
        ([tmp_path / "page.html"], "page.html is a page, to open in a browser"),
        ([traced, "--thin", 50], "cannot be thinned to 50 bytes"),
    ]
    for arguments, said in cases:
        assert said in refused("trace", *arguments), arguments
    assert not html.exists()
