"""Pages hold together: links lead somewhere, commands exist, pages to begin with run."""

import re
import shlex
import subprocess
import sys

import pytest
from typer.main import get_command

from counterprobe.cli.main import app
from printed_pages import PAGES, ROOT, Page, environment, name_of_page

INDEX = Page.read("docs/index.md")


@pytest.mark.parametrize("page", PAGES, ids=name_of_page)
def test_links_and_pictures_lead_somewhere(page):
    for link in Page(page.read_text(encoding="utf-8")).links:
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), f"{link}: there is no such file"
        if anchor:
            anchors = Page(target.read_text(encoding="utf-8")).anchors
            assert anchor in anchors, f"{link}: the page has {', '.join(sorted(anchors))}"


def test_every_page_stands_in_the_navigation_once():
    listed = re.findall(r"(?m)^(?:.* <)?([\w/-]+)>?$", "\n".join(INDEX.blocks("{toctree}")))
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in PAGES
             if page.is_relative_to(ROOT / "docs")}  # fmt: skip
    made = {"reference/commands", "reference/python", "CONTRIBUTING", "CHANGELOG"}
    assert sorted(listed) == sorted(pages - {"index"} | made)


def _known(command):
    options = {flag for one in command.params for flag in [*one.opts, *one.secondary_opts]}
    return options | {"--help", "-h"}


@pytest.mark.parametrize("page", PAGES, ids=name_of_page)
def test_commands_of_a_page_exist_with_their_options(page):
    program = get_command(app)
    for line in Page(page.read_text(encoding="utf-8")).commands:
        words = shlex.split(line.partition("|")[0].replace("...", ""))[1:]
        command, rest = program.commands.get(words[0]), words[1:]
        assert command is not None, line
        if hasattr(command, "commands"):
            command, rest = command.commands[rest[0]], rest[1:]
        given = [word.partition("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)]
        assert [word for word in given if word not in _known(command)] == [], line


def test_an_option_that_is_gone_is_noticed():
    program = get_command(app)
    assert "--sampler" in _known(program.commands["sample"])
    assert "--no-such" not in _known(program.commands["sample"])


# ----- Code ---------------------------------------------------------------------------------


def run(command, folder):
    """Run a command in a folder, and return what it prints."""
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Pages whose code needs nothing that the page does not make; the others have tests of their own.
ALONE = ("docs/compressed.md", "docs/reports.md", "docs/soft.md", "docs/trace.md")


@pytest.mark.parametrize("page", PAGES, ids=name_of_page)
def test_code_of_a_page_is_run_by_some_test(page):
    """``py`` marks what only shows how something is written."""
    name = name_of_page(page)
    if page.parent.name == "start" or not Page.read(name).python:
        return
    files = (ROOT / "tests").rglob("test_*.py")
    assert any(page.name in file.read_text(encoding="utf-8") for file in files)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_code_of_a_page_runs(name, tmp_path):
    (tmp_path / "page.py").write_text(Page.read(name).python, encoding="utf-8")
    run([sys.executable, "page.py"], tmp_path)


# ----- The pages to begin with ----------------------------------------------------------------

START = [name_of_page(page) for page in PAGES if page.parent.name == "start"]


def test_each_person_of_the_first_page_has_a_page_that_runs():
    named = re.findall(r"\]\((start/[\w-]+\.md)\)", INDEX.text)
    assert [f"docs/{name}" for name in dict.fromkeys(named)] == sorted(START, key=lambda name:
        INDEX.text.index(name.removeprefix("docs/")))  # fmt: skip
    assert len(START) == 4
    for name in START:
        assert Page.read(name).python


@pytest.mark.slow
@pytest.mark.parametrize("name", START)
def test_a_page_to_begin_with_runs_as_printed(name, tmp_path):
    page = Page.read(name)
    (tmp_path / "page.py").write_text(page.python, encoding="utf-8")
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    printed = run([sys.executable, "page.py"], tmp_path)
    shown = page.printed.splitlines()
    assert shown
    assert [line for line in printed.splitlines() if line in shown] == shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name in START for line in Page.read(name).blocks("sh")]
)
def test_a_command_of_a_page_to_begin_with_works(name, line, tmp_path):
    assert run(shlex.split(line), tmp_path).strip()
