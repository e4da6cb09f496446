"""Reports in a browser: sorting, both themes, a phone, and names that try to be markup."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import invoke
from counterprobe.report import Code, Facts, Note, Report, Table, write_report
from watched_pages import Watched

pytestmark = pytest.mark.browser

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>"
ROWS = [
    ["spread", "1,024", "0.5", "M" * 300],
    ["punt 10", "9", "-", "A"],
    ["punt 9", "80.5", "1e-9", HOSTILE],
    ["auto", "", "0.25", "C"],
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A page with every kind of section."""
    file = tmp_path / "report.html"
    table = Table(HOSTILE, ["name", "total", "KL", "sequence"], ROWS, ["a note " * 60])
    facts = Facts("facts", {HOSTILE: "x" * 200, "count": 3})
    code = Code("again", "counterprobe " + "long-word-" * 60)
    note = Note("Use this. " + "w" * 400, is_decision=True)
    write_report(Report("A " + "title" * 50, HOSTILE, "stopped", [note, facts, table, code]), file)
    return file


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a comparison, with its plot."""
    file = tmp_path_factory.mktemp("reports") / "compare.html"
    result = invoke("compare", "--n", 32, "--runs", 1, "--report", file)
    assert result.exit_code == 0, result.stderr
    return file


def column(watched: Watched, k: int) -> list[str]:
    cells = watched.page.locator(f"tbody tr td:nth-child({k + 1})")
    return [cells.nth(r).inner_text() for r in range(cells.count())]


def test_tables_sort_by_value_then_the_other_way_and_what_is_missing_stays_below(
    watch: Callable[..., Watched], file: Path
) -> None:
    watched = watch(file)
    head = watched.page.locator("th")
    head.nth(1).get_by_role("button").click()
    assert column(watched, 1) == ["9", "80.5", "1,024", ""]
    assert head.nth(1).get_attribute("aria-sort") == "ascending"
    head.nth(1).get_by_role("button").click()
    assert column(watched, 1) == ["1,024", "80.5", "9", ""]
    assert head.nth(1).get_attribute("aria-sort") == "descending"
    head.nth(2).get_by_role("button").click()
    assert column(watched, 2) == ["1e-9", "0.25", "0.5", "-"]
    assert head.nth(1).get_attribute("aria-sort") is None
    head.nth(0).get_by_role("button").focus()
    watched.press("Enter")
    assert column(watched, 0) == ["auto", "punt 9", "punt 10", "spread"]


def test_names_stay_texts(watch: Callable[..., Watched], file: Path) -> None:
    page = watch(file).page
    assert page.locator("img").count() == 0 and page.locator("script").count() == 1
    assert HOSTILE in page.locator("tbody").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_reader_and_the_button(
    watch: Callable[..., Watched], real: Path, scheme: str
) -> None:
    watched = watch(real, color_scheme=scheme)
    page = watched.page

    def shades() -> list[str]:
        """Colors of the ground, of a text and of a plot's text."""
        return [
            str(page.locator(what).first.evaluate(f"one => getComputedStyle(one)['{style}']"))
            for what, style in (("body", "backgroundColor"), ("h1", "color"), ("svg text", "fill"))
        ]

    ground, ink, plotted = shades()
    assert (ground == "rgb(16, 19, 23)") == (scheme == "dark")
    assert ink == plotted
    page.locator("#theme").click()
    assert all(a != b for a, b in zip(shades(), (ground, ink, plotted), strict=True))
    watched.press("t")
    assert shades() == [ground, ink, plotted]


@pytest.mark.parametrize("which", ["file", "real"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_never_scrolls_sideways(
    watch: Callable[..., Watched], request: pytest.FixtureRequest, which: str, width: int
) -> None:
    page = watch(request.getfixturevalue(which), viewport={"width": width, "height": 844}).page
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for panel in page.locator(".panel").all():
        box = panel.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width
