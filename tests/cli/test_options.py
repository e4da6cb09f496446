"""How options that commands share are read: laws, models and texts, settings, groups."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from command_line import refused
from counterprobe.cli import output
from counterprobe.cli.options import Text, read_sequence


@pytest.mark.parametrize("text", [None, "", "EVQXX", "paris is the [MASK]"])
def test_a_text_given_directly_is_left_alone(text):
    assert read_sequence(text) == text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("EVQXX\n", "EVQXX"),
        (">chain H of something\nEVQ\n XX \n\n", "EVQXX"),
        # Words on two lines stay two words.
        ("paris is the\n[MASK] of it\n", "paris is the\n[MASK] of it"),
        # Only a first line that starts so makes it FASTA.
        ("say [MASK]\n> quoted\n> twice\n", "say [MASK]\n> quoted\n> twice"),
    ],
)
def test_a_file_is_fasta_or_plain_text(tmp_path, content, text):
    file = tmp_path / "text"
    file.write_text(content, encoding="utf-8")
    assert read_sequence(f"@{file}") == text


@pytest.mark.parametrize(
    ("content", "said"), [("", "it is empty"), (">no letters", "'no', must have letters")]
)
def test_a_file_without_a_sequence_is_refused(tmp_path, content, said):
    file = tmp_path / "text"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        read_sequence(f"@{file}")


def test_only_what_was_given_is_passed_to_a_loader():
    assert Text().named("sapiens-heavy")["model_options"] == {}
    named = Text(backbone="my.pdb", chains="AB").named("proteinmpnn", "commit")
    assert named["model_options"] == {"backbone": "my.pdb", "chains": "AB"}
    assert named["oracle_options"] == {"order": "commit"}


def test_options_of_another_model_are_refused():
    with pytest.raises(ValueError, match="--backbone, --chains, --order must come with"):
        Text(backbone="1ubi", chains="A").named("antiberty", "commit")
    for backbone in (None, "1ubi", "1ake"):  # of one chain each
        with pytest.raises(ValueError, match="--chains must come with a structure file"):
            Text(backbone=backbone, chains="A").named("proteinmpnn")


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_nothing_is_probed_without_a_temperature(temperature):
    with pytest.raises(ValueError, match="--temperature must be above 0"):
        Text("EVX", temperature=temperature).task("sapiens-heavy", is_probed=True)


def test_edges_do_not_mix_with_a_family(tmp_path):
    file = tmp_path / "edges.txt"
    file.write_text("0 1\n1 2\n")
    for more in (("--family", "path"), ("--signs", "mixed"), ("--classes", 4)):
        assert "brings its own forest" in refused("sample", "--edges", file, *more)


# ----- Groups ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option(help="How wide.")] = 3
    deep: Annotated[bool, typer.Option("--deep")] = False


def heard(*words: str) -> object:
    """Return what a command hears whose options are partly a group."""
    app, said = typer.Typer(), []

    @app.command()
    @output.command
    def command(*, name: Annotated[str, typer.Option()], size: Size, json: str = "") -> None:
        """Say what it hears."""
        said.append((name, size, output.determining(), output.changed_options()))

    outcome = CliRunner().invoke(app, list(words))
    return said[0] if said else outcome.output


def test_a_group_of_options_is_one_argument_and_many_options():
    name, size, determining, changed = heard("--name", "a", "--width", "4", "--json", "x")
    assert (name, size) == ("a", Size(4))
    assert determining == {
        "command": "command", "options": {"name": "a", "width": 4, "deep": False},
    }  # fmt: skip
    assert changed == ["name", "width", "json"]
    assert "--width" in heard("--help") and "How wide." in heard("--help")
    assert "--name" in heard("--width", "4"), "what has no default is asked for"
