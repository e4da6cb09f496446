"""Whatever words the command line is given, it ends with a known code and a reason."""

import os

import pytest
import typer.main
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from counterprobe.cli.main import app

# Times as many words as the quick tests try.
FACTOR = int(os.environ.get("COUNTERPROBE_FUZZ_FACTOR", "1"))
CODES = {0, 1, 2, 3, 130}
# None of these makes work that takes more than a moment.
VALUES = (
    "", "x", "-1", "0", "1", "6", "1.5", "nan", "-inf", "1e9", "999999999999", "9" * 5000, "--",
    "-", "é\n", "\ud800", "\0", "path", "sequential", "punt", "one-batch,x", "a=b", "=",
    "batches=0", "steps=-3", "none.json", ".", "/dev/null", "none/a.html", "smoke", "@none",
    "cpu", "[MASK]", "tv", "1,2", "all", "mixed", "random",
)  # fmt: skip
COMMAND = typer.main.get_command(app)
# Small work first: a later word may only make it smaller, or refused.
STARTS = {
    "sample": ["--n", "6"],
    "compare": ["--n", "6"],
    "compare-models": ["--model", "none"],
    "reference": ["--n", "8", "--draws", "2"],
    "dependence": ["--n", "6"],
    "plan": [],
    "samplers": [],
    "models": [],
    "trace": [],
    "reproduce": [],
    "infill": ["--model", "none"],
    "discover": ["--model", "none"],
    "advise": ["--model", "none"],
    "verify": [],
}
STUDY = ("status", "table", "figure", "export", "presets", "run", "resume")


def options_of(*path: str) -> list[str]:
    """List the options of a command."""
    command = COMMAND
    for name in path:
        command = command.commands[name]
    return [name for one in command.params for name in one.opts if name.startswith("-")]


def check(words: list[str], program: typer.Typer = app) -> None:
    result = CliRunner().invoke(program, words)
    said = f"{words!r}: {result.exit_code}, {result.exception!r}\n{result.stderr}"
    assert result.exit_code in CODES, said
    assert result.exception is None or isinstance(result.exception, SystemExit), said
    assert "Traceback" not in result.stderr, said
    if result.exit_code:
        is_help = "Usage:" in result.stdout  # what a command without words shows
        assert result.stderr.strip() or is_help, said
        if result.stderr.startswith("counterprobe: "):
            reasons = [line for line in result.stderr.splitlines() if "note:" not in line]
            assert all(line.startswith("counterprobe: ") for line in reasons), said


def words_for(path: tuple[str, ...], start: list[str]) -> st.SearchStrategy[list[str]]:
    """Draw words after a command: its options, values, in any order."""
    options = [name for name in options_of(*path) if name not in ("--help", "-h")]
    word = st.sampled_from(VALUES)
    alone = word.map(lambda w: [w])
    pair = st.tuples(st.sampled_from(options), word).map(list) if options else alone
    some = st.lists(st.one_of(pair, alone), max_size=3)
    return some.map(lambda parts: [*path, *start, *(w for part in parts for w in part)])


def fuzz(words: st.SearchStrategy[list[str]], examples: int) -> None:
    @settings(
        derandomize=True, database=None, deadline=None, max_examples=examples,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(words)
    def fuzzed(words: list[str]) -> None:
        check(words)

    fuzzed()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> None:
    """Keep the files that commands write out of the tree."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def nothing_to_enumerate(monkeypatch) -> None:
    """End ``verify`` before the output laws, which take minutes: its words are what counts."""

    def end(*_: object) -> None:
        raise typer.Exit(0)

    monkeypatch.setattr("counterprobe.cli.verify._measure", end)


@pytest.mark.parametrize("name", STARTS)
def test_any_words_after_a_command_end_with_a_known_code_and_a_reason(name):
    fuzz(words_for((name,), STARTS[name]), 4 * FACTOR)


@pytest.mark.parametrize("name", STUDY)
def test_any_words_after_a_study_command_end_with_a_known_code_and_a_reason(name):
    start = ["--config", "none.toml"] if name == "run" else []
    fuzz(words_for(("study", name), start), 2 * FACTOR)


def test_any_words_at_all_end_with_a_known_code_and_a_reason():
    known = [w for w in (*COMMAND.commands, *options_of()) if w not in ("verify", "compare")]
    fuzz(st.lists(st.sampled_from((*VALUES, *known)), max_size=3).filter(is_cheap), 10 * FACTOR)


def is_cheap(words: list[str]) -> bool:
    """Whether words start no work of a default size."""
    return not set(words) & {"sample", "reference", "dependence"}


def test_a_traceback_would_be_seen():
    careless = typer.Typer()

    @careless.command()
    def fails() -> None:
        raise KeyError("lost")

    with pytest.raises(AssertionError, match="KeyError"):
        check([], careless)


@pytest.mark.parametrize("vocab", ["0", "-1", "999999999999"])
def test_a_vocabulary_that_no_law_can_have_is_refused_before_anything_is_made(vocab):
    result = CliRunner().invoke(app, ["verify", "--vocab", vocab])
    assert result.exit_code == 2
    assert result.stderr == f"counterprobe: V must lie in 1..1048576, got {vocab}\n"
