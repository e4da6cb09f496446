"""What the page says when it cannot show a run: a message, never a blank page, never markup."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterprobe import trace
from watched_pages import Watched

pytestmark = pytest.mark.browser

HOSTILE = '<img src=x onerror="alert(1)"></script><script>alert(2)</script><!--'


@pytest.fixture
def document(recorded: Callable[[str, int], trace.Trace]) -> dict[str, Any]:
    """A small whole document, to be damaged."""
    return copy.deepcopy(recorded("packed", 15).document())


def message(watched: Watched) -> str:
    """Return what the page says in place of a run."""
    return watched.page.get_by_role("alert").inner_text()


def test_page_without_a_trace_says_how_to_make_one(
    page_with: Callable[[str], Path], watch: Callable[..., Watched]
) -> None:
    assert "holds no run yet" in message(watch(page_with("")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"format": "counterprobe page", "vers', "cut short"),
        ('{"hello": 1}', "not a trace of counterprobe"),
        ("[1, 2]", "not a trace of counterprobe"),
        ("null", "not a trace of counterprobe"),
        ('{"format": "counterprobe page", "version": 1, "traces": []}', "one trace, or two"),
        ('{"format": "counterprobe trace", "version": 99}', "version 99"),
        ('{"format": "counterprobe page", "version": 2}', "version 2"),
        ('{"format": "counterprobe trace", "version": 1, "header": {}}', "no header or no events"),
    ],
)
def test_foreign_or_cut_text_is_named(
    text: str, said: str, page_with: Callable[[str], Path], watch: Callable[..., Watched]
) -> None:
    assert said in message(watch(page_with(text)))


def test_enormous_run_is_refused_before_it_is_drawn(
    document: dict[str, Any], page_of: Callable[..., Path], watch: Callable[..., Watched]
) -> None:
    document["header"]["length"] = 10_000_000
    assert "at most" in message(watch(page_of(document)))


def test_enormous_trace_says_how_to_thin_it(
    document: dict[str, Any], page_of: Callable[..., Path], watch: Callable[..., Watched]
) -> None:
    note = {"type": "message", "text": ""}
    document["events"] = [note] * 300_000 + document["events"]
    assert "--thin" in message(watch(page_of(document)))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("positions", [15], "names position 15 of a run with 15"),
        ("positions", {"dtype": "u1", "shape": [9], "data": "AAAA"}, "damaged"),
        ("positions", {"dtype": "u1", "shape": [9], "data": "eJxjAAAAAQAB"}, "another size"),
        ("positions", {"dtype": "c16", "shape": [1], "data": ""}, "unknown type"),
        ("positions", {"dtype": "u1", "shape": [1e12], "data": ""}, "too large"),
        ("positions", "all", "not an array"),
    ],
)
def test_damaged_array_is_named(
    field: str,
    value: object,
    said: str,
    document: dict[str, Any],
    page_of: Callable[..., Path],
    watch: Callable[..., Watched],
) -> None:
    commit = next(event for event in document["events"] if event["type"] == "commit")
    commit[field] = value
    assert said in message(watch(page_of(document)))


def test_run_that_died_is_shown_as_far_as_it_goes(
    recorded: Callable[[str, int], trace.Trace],
    page_with: Callable[[str], Path],
    watch: Callable[..., Watched],
) -> None:
    lines = "".join(recorded("packed", 15).lines()).split("\n")
    cut = "\n".join([*lines[:4], lines[4][:20]])
    watched = watch(page_with(cut.replace("<", "\\u003c")))
    assert watched.last_step == 3
    assert watched.page.get_by_text("This trace was cut short").is_visible()


def test_unknown_events_and_fields_are_skipped(
    document: dict[str, Any], page_of: Callable[..., Path], watch: Callable[..., Watched]
) -> None:
    steps = len(document["events"])
    document["events"].insert(1, {"type": "aurora", "lights": [1, 2]})
    document["header"]["aurora"] = True
    assert watch(page_of(document)).last_step == steps


def test_browser_without_a_canvas_gets_the_totals(
    document: dict[str, Any], page_of: Callable[..., Path], watch: Callable[..., Watched]
) -> None:
    without = "HTMLCanvasElement.prototype.getContext = () => null"
    said = message(watch(page_of(document), script=without))
    assert "cannot draw" in said
    assert str(document["events"][-1]["ledger"]["evaluations"]) in said


def test_file_opened_on_an_empty_page_is_shown(
    recorded: Callable[[str, int], trace.Trace],
    page_with: Callable[[str], Path],
    watch: Callable[..., Watched],
    tmp_path: Path,
) -> None:
    watched = watch(page_with(""))
    file = tmp_path / "run.json.gz"
    trace.write_trace(recorded("packed", 15), file)
    chooser = watched.page.get_by_label("Open a trace")
    foreign = tmp_path / "foreign.json"
    foreign.write_text('{"hello": 1}')
    chooser.set_input_files(foreign)
    watched.page.get_by_text("not a trace of counterprobe").wait_for()
    chooser.set_input_files(file)
    watched.page.locator("article.run").wait_for()
    watched.go(watched.last_step)
    end = recorded("packed", 15).end
    assert end is not None
    assert watched.counters()["total"] == end["ledger"]["evaluations"]


@pytest.mark.parametrize("is_sequence", [False, True])
def test_text_of_a_trace_is_shown_as_text(
    is_sequence: bool,
    document: dict[str, Any],
    page_of: Callable[..., Path],
    watch: Callable[..., Watched],
) -> None:
    header = document["header"]
    if is_sequence:  # drawn as a line
        header["true_edges"] = None
    header["stretches"] = [[0, HOSTILE], [99, "A"], ["A", 3], 7, None]
    header["beside"] = {HOSTILE: 3, "discovery": [HOSTILE], "more": None}
    header.update(title=HOSTILE, sampler=HOSTILE, family=HOSTILE)
    header["tokens"] = [HOSTILE] * header["vocab_size"]
    header["positions"] = [HOSTILE] * header["length"]
    header["thinned"] = [HOSTILE]
    document["events"].insert(1, {"type": "message", "text": HOSTILE})
    document["events"][-1]["notes"] = [HOSTILE]
    watched = watch(page_of(document, names=(HOSTILE + "2",)))
    for step in range(watched.last_step + 1):
        watched.go(step)
    assert HOSTILE in watched.page.locator(".title h2").inner_text()
    assert HOSTILE + "2" in watched.page.locator(".title").inner_text()
    assert HOSTILE in watched.page.locator(".caption").inner_text()
    assert watched.page.locator(".beside").inner_text().endswith(f": 3 for {HOSTILE}.")
    watched.page.locator(".positions").click(position={"x": 80, "y": 10})
    watched.settle()
    assert watched.page.locator(".detail").inner_text().count(HOSTILE) >= 3
    assert watched.page.locator("img").count() == 0
    assert watched.page.locator("script").count() == 2


def test_text_that_is_no_trace_is_shown_as_text(
    page_with: Callable[[str], Path], watch: Callable[..., Watched]
) -> None:
    text = json.dumps({"format": HOSTILE}).replace("<", "\\u003c")
    watched = watch(page_with(text))
    assert HOSTILE[:40] in message(watched)
    assert watched.page.locator("img").count() == 0


def test_policy_of_the_page_forbids_other_scripts_and_every_request(
    document: dict[str, Any], page_of: Callable[..., Path], watch: Callable[..., Watched]
) -> None:
    watched = watch(page_of(document))
    ran = watched.page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          document.body.append(script);
          return window.ran === true;
        }"""
    )
    assert not ran
    assert any("Content Security Policy" in complaint for complaint in watched.complaints)
    watched.complaints.clear()
