"""Tables at any width: whole names, whole headings, and what was left out is said."""

import pytest
from rich.console import Console

from counterprobe.cli.tables import Column, print_table

COLUMNS = [Column("name"), Column("first"), Column("second thing", 1), Column("third", 2)]
ROWS = [["short", "1", "22", "333"], ["quite-a-long-name", "12345", "2", "3"]]


def printed(width: int, rows: list[list[str]] = ROWS) -> str:
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        print_table(console, "A title", COLUMNS, rows)
    return capture.get()


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, ["name", "first", "second", "thing", "third"]),
        (39, ["name", "first", "second", "thing", "third"]),
        (33, ["name", "first", "second", "thing"]),
        (25, ["name", "first"]),
    ],
)
def test_columns_go_by_rank_until_the_rest_fits(width, shown):
    text = printed(width)
    table = text.split("Left out")[0]
    assert all(word in table for word in shown)
    assert ("third" in table) == ("third" in shown)
    assert max(map(len, text.splitlines())) <= width
    for name, first, *_ in ROWS:
        assert any(line.split()[:2] == [name, first] for line in text.splitlines())
    omitted = [c.heading for c in COLUMNS if c.heading.split()[0] not in shown]
    said = f"Left out for want of width: {', '.join(omitted)}."
    assert (said in " ".join(text.split())) == bool(omitted)


def test_settings_go_to_the_next_line_before_columns_are_left_out():
    rows = [["punt epsilon=1e-09 probe=7", "1", "2", "3"]]
    assert printed(34, rows).splitlines()[3].split()[:2] == ["punt", "1"]
    assert "Left out" not in printed(38, rows)
    assert "punt epsilon=1e-09 probe=7" in printed(80, rows)


def test_a_name_that_never_fits_is_folded_not_cut():
    text = printed(12, [["x" * 20, "1", "2", "3"]])
    assert text.count("x") == 20
    assert "…" not in text


def test_markup_in_a_cell_is_plain_text():
    assert "[bold]" in printed(80, [["[bold]", "1", "2", "3"]])
