"""Options that may stand without a value, in any command."""

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from counterprobe.cli.bare_options import BARE, with_bare, with_values


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ([], []),
        (["a"], ["a"]),
        (["--page"], ["--page="]),
        (["a", "--page"], ["a", "--page="]),
        (["--page", "a"], ["--page", "a"]),
        (["--page=a", "b"], ["--page=a", "b"]),
        (["--page="], ["--page="]),
        (["--page", ""], ["--page", ""]),
        (["--page", "-"], ["--page", "-"]),
        (["--page", "-v"], ["--page=", "-v"]),
        (["--page", "--page", "a"], ["--page=", "--page", "a"]),
        (["--page", "--", "a"], ["--page=", "--", "a"]),
        (["--", "--page"], ["--", "--page"]),
        (["--pages"], ["--pages"]),
        (["--page", "--plot"], ["--page=", "--plot="]),
    ],
)
def test_an_option_that_stands_bare_gets_the_empty_value(typed, meant):
    assert with_values(typed, ["--page", "--plot"]) == meant


def heard(*words: str) -> dict[str, object]:
    """Return what a command hears that lets one of its options stand bare."""
    app, said = typer.Typer(), {}

    @app.command(cls=with_bare("--page"))
    def command(
        file: Annotated[str, typer.Argument()] = "none",
        page: Annotated[str | None, typer.Option(metavar="[FILE]")] = None,
        size: Annotated[int, typer.Option()] = 0,
    ) -> None:
        said.update(file=file, page=page, size=size)

    outcome = CliRunner().invoke(app, list(words))
    return said or {"printed": outcome.output}


def test_a_command_hears_whether_the_option_was_left_out_bare_or_named():
    assert heard("a")["page"] is None
    assert heard("a", "--page") == {"file": "a", "page": BARE, "size": 0}
    assert heard("--page", "--size", "3", "a") == {"file": "a", "page": BARE, "size": 3}
    assert heard("--page", "b", "a") == {"file": "a", "page": "b", "size": 0}
    assert heard("a", "--page=b") == {"file": "a", "page": "b", "size": 0}
    assert heard("--page", "--", "a") == {"file": "a", "page": BARE, "size": 0}


def test_other_options_still_need_their_value():
    assert "requires an argument" in str(heard("a", "--size")["printed"])


def test_help_shows_that_the_value_may_be_left_out():
    assert "[FILE]" in str(heard("--help")["printed"])
