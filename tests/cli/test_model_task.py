"""How commands read a model and a text with masks."""

import pytest

from counterprobe.cli.model_task import model_options, probed_task, read_sequence


@pytest.mark.parametrize("text", [None, "", "EVQXX", "paris is the [MASK]"])
def test_a_text_given_directly_is_left_alone(text):
    assert read_sequence(text) == text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("EVQXX\n", "EVQXX"),
        (">chain H of something\nEVQ\n XX \n\n", "EVQXX"),
        (">no letters", ""),
        ("", ""),
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


def test_only_what_was_given_is_passed_to_a_loader():
    assert model_options("sapiens-heavy", None, None, None) == {}
    assert model_options("sapiens-heavy", "cpu", None, None) == {"device": "cpu"}
    assert model_options("proteinmpnn", None, "my.pdb", "AB", "commit") == {
        "backbone": "my.pdb",
        "chains": "AB",
    }


@pytest.mark.parametrize("backbone", [None, "1ubi", "1ake"])
def test_shipped_backbones_have_one_chain(backbone):
    with pytest.raises(ValueError, match="--chains must come with a PDB file"):
        model_options("proteinmpnn", None, backbone, "A")


def test_every_option_of_another_model_is_named():
    with pytest.raises(ValueError, match="--backbone, --chains, --order must come with"):
        model_options("antiberty", None, "1ubi", "A", "commit")


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_nothing_is_probed_without_a_temperature(temperature):
    with pytest.raises(ValueError, match="--temperature must be above 0"):
        probed_task("sapiens-heavy", "EVX", None, temperature, device=None)
