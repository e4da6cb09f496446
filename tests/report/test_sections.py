"""Sections become HTML: everything escaped, columns sorted by what their cells mean."""

from html.parser import HTMLParser

import pytest

from counterprobe.report import Code, Facts, Note, Picture, Report, Table, render
from counterprobe.report.sections import MOST_ROWS, TALL

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</td></table><script>alert(1)</script>",
    "' onmouseover='alert(1)",
    "&lt;script&gt;",
    "</style><script>alert(1)</script>",
    "]]><svg onload=alert(1)>",
    "\u202ereversed",
]


class Elements(HTMLParser):
    """What a browser would make of a page: tags with attributes, and texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup(text):
    def page(word: str) -> Elements:
        sections = [
            Note(word, word),
            Note(word, word, True),
            Facts(word, {word: word, "count": 3}),
            Table(word, [word, "b"], [[word, word], ["1", "2"]], [word]),
            Table(word, ["a"], [[word]], is_folded=True),
            Picture(word, "<svg></svg>"),
            Code(word, word),
        ]
        return Elements(render(Report(word, word, word, sections)))

    plain, hostile = page("word"), page(text)
    assert hostile.tags == plain.tags
    assert {name for name, _ in hostile.attributes} == {name for name, _ in plain.attributes}
    assert "".join(hostile.texts).count(text) == "".join(plain.texts).count("word")


def test_a_page_fetches_nothing_and_runs_its_own_script_alone():
    page = render(Report("A run", sections=[Note("text")]))
    parsed = Elements(page)
    assert "http" not in page.replace("http-equiv", "")
    assert not {"link", "img", "iframe", "base", "object", "embed"} & set(parsed.tags)
    assert not [name for name, _ in parsed.attributes if name.startswith("on") or name == "src"]
    (policy,) = [
        value for name, value in parsed.attributes if name == "content" and "src" in value
    ]
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy
    assert parsed.tags.count("script") == 1


def test_what_was_stopped_is_said_first_and_what_was_not_says_nothing():
    stopped = render(Report("A run", problem="interrupted after 3", sections=[Note("the rest")]))
    assert "Stopped early" in stopped
    assert stopped.index("interrupted after 3") < stopped.index("the rest")
    assert "Stopped early" not in render(Report("A run"))


def test_only_columns_of_numbers_have_values_and_what_is_missing_has_none():
    rows = [["a", "1,024", "x"], ["b", "-", "2"], ["c", "0.5 ± 0.1 < 2", "3"], ["d", "1e-9", ""]]
    html = Table("", ["name", "number", "mixed"], rows).html
    for value in ("1024.0", "0.5", "1e-09"):
        assert f'data-value="{value}"' in html
    assert html.count("data-value") == 3
    assert html.count('<td class="number"') == 4


def test_long_tables_scroll_and_very_long_ones_say_what_is_left_out():
    rows = [[str(k)] for k in range(MOST_ROWS + 7)]
    assert "tall" not in Table("", ["k"], rows[:TALL]).html
    html = Table("", ["k"], rows).html
    assert "tall" in html and html.count("<tr>") == MOST_ROWS + 1
    assert "7 of 5,007 lines are left out." in html


def test_long_words_may_break_and_others_keep_their_column():
    html = Table("", ["name", "sequence"], [["a b c d e f g h i j k l m n o p", "M" * 40]]).html
    assert html.count('class="long"') == 2


def test_facts_are_said_in_words():
    html = Facts("", {"many": 12345, "none": None, "yes": True, "share": 0.25, "text": "x"}).html
    for said in ("12,345", "<dd>-</dd>", "<dd>yes</dd>", "0.25", "<dd>x</dd>"):
        assert said in html
