"""The page holds its traces as text, whatever they say."""

import json
import re
from html.parser import HTMLParser

import pytest

from counterprobe import CounterprobeError
from counterprobe.trace import Trace, page, write_page
from counterprobe.trace.page import fill_page

TEMPLATE = (
    '<!doctype html><title>t</title><body><script type="application/json" id="trace-data">'
    "</script><script>show()</script></body>"
)
HOSTILE = (
    "</script><script>alert(1)</script><!--<script> & \u2028\u2029 ]]> \\u003c '\" \U0001f600"
)


def trace_of(title: str) -> Trace:
    header = {"length": 1, "vocab_size": 1, "title": title, "tokens": [title]}
    return Trace(header, [{"type": "message", "text": title}, {"type": "end"}])


class Elements(HTMLParser):
    """Lists the scripts of a page and what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[list[str]] = []
        self.comments = 0

    def handle_starttag(self, tag, attributes) -> None:
        if tag == "script":
            self.scripts.append([dict(attributes).get("id") or "", ""])

    def handle_data(self, data) -> None:
        if self.scripts:
            self.scripts[-1][1] += data

    def handle_comment(self, data) -> None:
        self.comments += 1


def parsed(html: str) -> Elements:
    elements = Elements()
    elements.feed(html)
    elements.close()
    return elements


def test_hostile_text_stays_inside_its_element_and_comes_back():
    html = fill_page(TEMPLATE, [trace_of(HOSTILE)], (HOSTILE,))
    elements = parsed(html)
    assert [name for name, _ in elements.scripts] == ["trace-data", ""]
    assert elements.comments == 0
    content = json.loads(elements.scripts[0][1])
    (entry,) = content["traces"]
    assert entry["name"] == HOSTILE
    assert entry["trace"] == trace_of(HOSTILE).document()
    inside = re.search(r'id="trace-data">(.*?)</script>', html, re.S)[1]
    assert not set("<>&\u2028\u2029") & set(inside)
    assert inside.isascii()


def test_an_unescaped_page_would_have_broken_out():
    # The check above can fail: the same text without escapes ends the element early.
    html = TEMPLATE.replace("</script>", json.dumps(HOSTILE) + "</script>", 1)
    assert len(parsed(html).scripts) > 2


def test_two_traces_stand_side_by_side_under_their_names():
    html = fill_page(TEMPLATE, [trace_of("one"), trace_of("two")], ("a.json", "b.json"))
    content = json.loads(parsed(html).scripts[0][1])
    assert (content["format"], content["version"]) == ("counterprobe page", 1)
    assert [entry["name"] for entry in content["traces"]] == ["a.json", "b.json"]
    assert [entry["trace"]["header"]["title"] for entry in content["traces"]] == ["one", "two"]


def test_titles_are_names_where_none_is_given():
    html = fill_page(TEMPLATE, [trace_of("one")])
    assert json.loads(parsed(html).scripts[0][1])["traces"][0]["name"] == "one"


def test_a_truncated_trace_says_so_on_its_page():
    cut = Trace(trace_of("x").header, [], is_truncated=True)
    content = json.loads(parsed(fill_page(TEMPLATE, [cut])).scripts[0][1])
    assert content["traces"][0]["trace"]["truncated"] is True


def test_a_page_without_a_place_or_with_two_is_refused():
    for template in ("<title>t</title>", TEMPLATE + TEMPLATE):
        with pytest.raises(CounterprobeError, match="one place for traces"):
            fill_page(template, [trace_of("x")])


def test_an_enormous_page_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(page, "MAX_PAGE", 100)
    with pytest.raises(ValueError, match="--thin"):
        fill_page(TEMPLATE, [trace_of("x" * 200)])


def test_a_page_is_named_html(tmp_path):
    with pytest.raises(ValueError, match=r"\.html"):
        write_page(trace_of("x"), tmp_path / "a.json")


def test_the_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "_template", lambda: TEMPLATE)
    file = tmp_path / "a.html"
    write_page(trace_of("x"), file, trace_of("y"))
    first = file.read_text()
    assert len(json.loads(parsed(first).scripts[0][1])["traces"]) == 2
    monkeypatch.setattr(page, "MAX_PAGE", 10)
    with pytest.raises(ValueError, match="thin"):
        write_page(trace_of("z"), file)
    assert file.read_text() == first
    assert list(tmp_path.iterdir()) == [file]
