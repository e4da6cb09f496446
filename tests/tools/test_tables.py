"""Pages say what their files of results say, and files say what made them."""

import json
import shutil

import pytest
import tables

# After ``tables``, which says where benchmarks are.
from _made import FIELDS, UNKNOWN, adopt, made_again, made_now
from pages.denoisers import denoiser_tables
from pages.filling import fill, numbers_without_source, value_at
from pages.scale import large_tables, scale_state, scale_tables
from pages.sources import ROOT, result_files

# Pages all of whose tables of measurements come from files.
COVERED = ("README.md", "docs/peers.md", "docs/samplers.md", "docs/study.md", "docs/compressed.md",
           "docs/quality.md", "docs/planning.md", "docs/soft.md", "docs/learned.md",
           "docs/judged.md", "docs/backbones.md", "docs/trace.md", "docs/hostile.md",
           "docs/language.md", "docs/scale.md")  # fmt: skip
FOUND = {"path": {"total": 1205, "kl": 0.0736, "kl_se": 0.003, "name": "punt", "none": None}}


@pytest.fixture(scope="module")
def written():
    return tables.written()


def test_every_page_is_what_its_files_give(written):
    """``make tables`` would change nothing."""
    assert [page.name for page in tables.differing(written)] == []


def test_every_table_that_is_made_is_shown():
    made, _ = tables.contents()
    text = "".join(page.read_text(encoding="utf-8") for page in tables.PAGES)
    assert [name for name in made if f"<!-- table: {name} -->" not in text] == []


@pytest.mark.parametrize("page", COVERED)
def test_no_table_of_measurements_is_written_by_hand(page):
    assert numbers_without_source((ROOT / page).read_text(encoding="utf-8")) == []


def test_a_page_that_was_changed_by_hand_is_noticed(tmp_path, monkeypatch, capsys):
    page = tmp_path / "README.md"
    shutil.copy(ROOT / "README.md", page)
    monkeypatch.setattr(tables, "PAGES", (page,))
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    text = page.read_text(encoding="utf-8")
    assert tables.main(["--check"]) == 0
    mark = "<!--=denoisers/tree/free/kl:.1f-->"
    assert mark in text
    page.write_text(text.replace(mark, mark + "1"), encoding="utf-8")
    assert tables.main(["--check"]) == 1
    assert "README.md: differs" in capsys.readouterr().out
    page.write_text(text.replace(mark, "<!--=denoisers/absent-->"), encoding="utf-8")
    assert tables.main(["--check"]) == 2
    assert "README.md: nothing at 'absent'" in capsys.readouterr().err


def test_the_first_table_and_the_table_of_sizes_say_the_same():
    """One law, one stream, two programs that count."""
    sources = tables.read_sources()
    names = {"compressed": "compressed", "punt": "punt", "sequential": "sequential",
             "random-balanced, N/4 batches": "random-balanced"}  # fmt: skip
    compared = 0
    for row in sources["scale"]["rows"]:
        if row["n"] != sources["peers-16384"]["n"] or row["sampler"] not in names:
            continue
        other = sources["peers-16384"][row["family"]].get(names[row["sampler"]])
        if other is not None:
            compared += 1
            assert (row["evaluations"], row["stages"]) == (other["evaluations"], other["stages"])
    assert compared >= 1


# ----- Marks --------------------------------------------------------------------------------


def test_tables_and_values_go_between_their_marks_and_stay_there():
    page = "a <!--=path/total-->1<!--/--> b\n\n<!-- table: one -->\nold\n<!-- end -->\n"
    filled = fill(page, {"one": "| x |\n"}, FOUND)
    assert filled == page.replace("-->1<", "-->1,205<").replace("old", "| x |")
    assert fill(filled, {"one": "| x |\n"}, FOUND) == filled


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("path/total", "1,205"),
        ("path/kl", "0.0736"),
        ("path/kl:.1e", "7.4e-02"),
        ("path/kl:±.3f", "0.074 ± 0.003"),
        ("path/name", "punt"),
    ],
)
def test_a_value_is_shown_as_it_is_asked_for(path, shown):
    assert value_at(FOUND, path) == shown


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("a <!--=path/absent-->1<!--/-->", "nothing at 'absent' of 'path/absent'"),
        ("a <!--=path-->1<!--/-->", "'path' leads to .* no number and no text"),
        ("a <!--=path/none-->1<!--/-->", "no number and no text"),
        ("  <!--=path/total-->1<!--/-->", "must not begin a line"),
        ("<!-- table: two -->\n<!-- end -->", "no table is called 'two'; there are one"),
    ],
)
def test_a_mark_that_leads_nowhere_is_an_error_of_one_line(page, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        fill(page, {"one": ""}, FOUND)
    assert "\n" not in str(caught.value)


def test_numbers_of_tables_outside_marks_are_found():
    page = "| a | 0.5 |\n\n```\n| b | 0.5 |\n```\n| c | 12 |\n| d | 1,234 |\n"
    inside = "<!-- table: x -->\n| e | 0.5 |\n<!-- end -->\n| f | <!--=p-->0.5<!--/--> |\n"
    assert numbers_without_source(page + inside) == ["| a | 0.5 |", "| d | 1,234 |"]


# ----- Bold ---------------------------------------------------------------------------------

DENOISED = ("path", "tree", "stars", "grid", "topic")


def entry(sampler, kl, error, evaluations=4, count=4096):
    measured = {"sampler": sampler, "kl": kl, "kl_se": error}
    return measured | {"evaluations": evaluations, "count": count}


def denoised():
    """Return the measurements of one law, as few as a row needs."""
    return {
        "sequential order=random": entry("sequential", 0.405, 0.024, 64),
        **{f"planned batches={k}": entry("planned", 0.149, 0.006) for k in (4, 8, 32)},
        "spread batches=8": entry("spread", 3.1, 0.05),
        "dream steps=8": entry("dream", 4.0, 0.2),
        "entropy-bounded gamma=1.0": entry("entropy-bounded", 0.159, 0.037, 64),
    }


def test_errors_decide_what_is_bold():
    names, entries = DENOISED, denoised()
    row = denoiser_tables({name: {"samplers": entries} for name in names}, {})["denoisers"]
    path = row.splitlines()[2]
    assert "| 0.405 ± 0.024 in 64 |" in path
    assert path.count("**0.149** ± 0.006") == 3
    assert "**0.159** ± 0.037 in 64 (`entropy-bounded`)" in path  # a tie
    entries["entropy-bounded gamma=1.0"]["kl_se"] = 0.001
    entries["entropy-bounded gamma=1.0"]["kl"] = 0.169
    row = denoiser_tables({name: {"samplers": entries} for name in names}, {})["denoisers"]
    assert "| 0.169 ± 0.001" in row.splitlines()[2]


@pytest.mark.parametrize(("error", "best"), [(0.04, "entropy-bounded"), (0.005, "klass")])
def test_a_rough_estimate_is_the_best_only_where_it_is_clearly_lower(error, best):
    entries = denoised() | {"klass": entry("klass", 0.12, error, 64, count=256)}
    entries["entropy-bounded gamma=1.0"]["kl_se"] = 0.009
    row = denoiser_tables({name: {"samplers": entries} for name in DENOISED}, {})["denoisers"]
    assert row.splitlines()[2].endswith(f"(`{best}`) |")


def test_mixtures_are_shown_where_they_were_measured():
    laws = {name: {"samplers": denoised()} for name in DENOISED}
    mixed = {
        "sequential order=random": entry("sequential", 0.150, 0.012, 64),
        "planned batches=8": entry("planned", 0.145, 0.006),
        "spread batches=8": entry("spread", 2.1, 0.05),
        "planned batches=16": entry("planned", 0.001, 0.001),  # in no column
    }
    shown = denoiser_tables(laws, {"tree": {"mixture": mixed}})["denoiser-mixtures"]
    path, tree = shown.splitlines()[2:4]
    assert path.count("not measured") == 7
    cells = [cell.strip() for cell in tree.strip("|").split("|")]
    assert cells[1:] == [
        "**0.150** ± 0.012 in 64",
        "not measured",
        "**0.145** ± 0.006 in 4",
        "not measured",
        "2.10 ± 0.05 in 4 (`spread`)",
        "not measured (`dream`)",
        "not measured (`entropy-bounded`)",
    ]


# ----- What made a file ---------------------------------------------------------------------


@pytest.mark.parametrize("file", result_files(), ids=lambda file: file.stem)
def test_a_file_of_results_says_what_made_it(file):
    made = json.loads(file.read_text(encoding="utf-8"))["made"]
    assert made
    for entry in made:
        assert set(entry) == set(FIELDS)
        assert all(entry.values())
        assert entry["date"] != UNKNOWN
        # No folder of the machine that it ran on.
        assert not any(word.startswith("/") for word in entry["command"].split())


def test_a_command_is_kept_without_folders_of_the_machine(monkeypatch):
    called = [f"{ROOT}/benchmarks/x.py", "--json", "/somewhere/else/x.json", "--parts=a/b"]
    monkeypatch.setattr("sys.argv", called)
    assert made_now.__wrapped__()["command"] == "python benchmarks/x.py --json x.json --parts=a/b"


def test_a_file_that_is_continued_keeps_what_made_it_before(tmp_path):
    file = tmp_path / "found.json"
    assert made_again(file) == [made_now()]
    before = dict.fromkeys(FIELDS, "x")
    file.write_text(json.dumps({"made": [before, made_now()]}))
    assert made_again(file) == [before, made_now()]


def test_a_commit_that_the_environment_names_wins_over_git(monkeypatch):
    monkeypatch.setenv("COUNTERPROBE_COMMIT", "0123abc")
    assert made_now.__wrapped__()["commit"] == "0123abc"
    monkeypatch.delenv("COUNTERPROBE_COMMIT")
    assert made_now.__wrapped__()["commit"] != "0123abc"


def test_a_file_without_its_making_is_given_what_is_known_once(tmp_path):
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"rows": [1]}))
    assert adopt(file)
    content = json.loads(file.read_text())
    assert content["rows"] == [1]
    assert content["made"] == [dict.fromkeys(FIELDS, UNKNOWN)]
    assert not adopt(file)


def test_large_runs_stand_beside_what_was_asked():
    row = {
        "family": "matching", "n": 1_048_576, "method": "peeling", "evaluations": 127, "stages": 8,
        "seconds": 184.5, "peak_memory_gib": 10.8, "batch_kl": 0.0,
    }  # fmt: skip
    ended = large_tables({"rows": [row]})["large"]
    assert (
        "| matching | peeling | 1,048,576 | 127 | 8 | < 200 | 3.1 | 30 | 11 | 18 | 0 | yes |"
        in (ended)
    )
    assert "| path | peeling | 1,048,576 | not measured |" in ended
    stopped = {"family": "path", "n": 1_048_576, "method": "peeling", "stop": "ended: no memory"}
    table = large_tables({"rows": [row | {"evaluations": 200}, stopped]})["large"]
    assert "| 200 | 8 | < 200 | 3.1 | 30 | 11 | 18 | 0 | no |" in table
    assert "| ended: no memory |  | < 200 |  | 30 |  | 18 |  | no |" in table


def test_seconds_of_the_clock_are_marked_and_busy_machines_are_told():
    old = {
        "family": "path", "n": 1024, "sampler": "punt", "evaluations": 78, "stages": 78,
        "rows_read": 10_240, "batch_kl": 0.0, "peak_memory_gib": 0.2, "seconds": 12.0,
        "oracle_seconds": 0.5,
    }  # fmt: skip
    new = {**old, "sampler": "compressed", "processor_seconds": 3.0, "commit": "abc", "load": 2.5}
    table = scale_tables({"rows": [old, new]})["scale"]
    assert "| 3.0 (0.5) |" in table and "| 12.0‡ (0.5) |" in table
    told = scale_state({"rows": [old, new, {**new, "commit": "def", "load": 9.0}]})
    assert told == {"rows": 2, "commits": "abc, def", "least_load": 2.5, "most_load": 9.0}
