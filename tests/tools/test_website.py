"""The documentation site: what it describes, and that it builds strictly and needs no network."""

import inspect
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from website.build import outside_resources
from website.formulas import formula
from website.notebooks import write_notebooks
from website.places import PLACES, described, name_of, object_named, public_names
from website.reference import GROUPS, commands_page

from printed_pages import build_site


@pytest.mark.parametrize("place", PLACES)
def test_public_names_exist_and_are_described(place):
    module = object_named(place) if place != "counterprobe" else sys.modules[place]
    names = public_names(place)
    assert names and module.__doc__
    for name in names:
        value = getattr(module, name)  # a name in __all__ that is not there
        if inspect.isclass(value) or inspect.isroutine(value):
            assert inspect.getdoc(value), f"{place}.{name} has no docstring"


def test_every_name_is_described_once_and_found_by_any_of_its_names():
    full = [f"{place}.{name}" for place, names in described().items() for name in names]
    assert len(full) == len(set(full)) > 300
    assert name_of("cp.run.Run") == name_of("Run") == name_of("counterprobe.run.Run")
    assert name_of("evaluation.batch_kl") == "counterprobe.evaluation.batch_kl"
    assert name_of("Ledger.evaluations").endswith(".Ledger.evaluations")
    assert name_of("sample") is None  # a plain word
    assert name_of("no.such.name") is None


def test_every_place_stands_in_a_group_of_the_reference():
    grouped = [name if name == "counterprobe" else f"counterprobe.{name}"
               for names in GROUPS.values() for name in names]  # fmt: skip
    assert sorted(grouped) == sorted(PLACES)


def test_the_page_of_commands_has_every_command_with_its_options():
    page = commands_page()
    for words in (
        "## `counterprobe sample`",
        "### `counterprobe study run`",
        "`--structure",
        "130 int",
    ):
        assert words in page
    assert "```sh\ncounterprobe sample --family growing-stars" in page


def test_formulas_are_drawn_by_the_browser():
    made = formula(r"\mathcal B_i^{\mathrm{src}}")
    assert made.startswith("<math")
    assert "\N{SCRIPT CAPITAL B}" in made and "<mtext>src</mtext>" in made


def test_what_would_be_fetched_is_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="https://example.org">fine</a><img src="figures/a.png">'
        '<script defer src="https://example.org/x.js"></script>'
    )
    (tmp_path / "b.css").write_text(
        "@import url(//example.org/font.css); a{background:url(b.png)}"
    )
    found = outside_resources(tmp_path)
    assert [line.partition(":")[0] for line in found] == ["a.html", "b.css"]


def test_a_notebook_is_a_page_with_its_code_and_what_that_showed(tmp_path):
    notebook = next((Path(__file__).parents[2] / "docs" / "notebooks").glob("01-*.ipynb"))
    shutil.copy(notebook, tmp_path)
    write_notebooks(tmp_path)
    page = (tmp_path / notebook.name).with_suffix(".md").read_text("utf-8")
    cells = nbformat.read(notebook, as_version=4).cells
    for cell in cells:
        assert cell.source in page
    shown = [one for cell in cells for one in cell.get("outputs", ())]
    printed = [one.text.rstrip() for one in shown if one.output_type == "stream"]
    assert printed and all(text in page for text in printed)
    assert page.count("```{raw} html") == sum("text/html" in one.get("data", {}) for one in shown)
    (picture,) = tmp_path.glob("*.png")
    assert picture.read_bytes().startswith(b"\x89PNG") and f"({picture.name})" in page


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path):
    build_site(tmp_path / "site")
    pages = {str(page.relative_to(tmp_path / "site")) for page in tmp_path.rglob("*.html")}
    assert {"index.html", "choose.html", "start/protein.html", "reference/commands.html"} <= pages
    assert 'href="notebooks/02-a-structure-found-once.html"' in (
        tmp_path / "site" / "reports.html"
    ).read_text(encoding="utf-8")
    front = (tmp_path / "site" / "theory.html").read_text(encoding="utf-8")
    assert 'href="reference/counterprobe.theory.collisions.html#' in front
