"""Structure files in all their ways: no residue is lost, and what was decided is said."""

import bz2
import gzip
import importlib
import lzma
import sys

import numpy as np
import pytest

from counterprobe.extras import MissingExtra
from counterprobe.models.proteins import backbones
from counterprobe.models.proteins.backbones import Backbone
from structure_files import atom, residue, written

PACKINGS = {"gz": gzip, "bz2": bz2, "xz": lzma}

# ----- What becomes a position --------------------------------------------------------------


def test_a_pdb_file_is_read(tmp_path):
    file = written(tmp_path, *residue("GLY", "A", 5, 1.0), *residue("TRP", "A", 6, 2.0))
    backbone = Backbone.named(file)
    assert (backbone.sequence, backbone.name) == ("GW", "small")
    np.testing.assert_allclose(backbone.coordinates[1, 2], [2.2, 3.2, 4.2], rtol=1e-6)
    assert repr(backbone) == "Backbone('small': 2 residues, 1 chain, GW)"
    assert backbone.numbers.tolist() == [5, 6] and backbone.notes == ()


@pytest.mark.parametrize("atom_name", ["N", "CA", "C", "O"])
def test_a_residue_without_a_backbone_atom_stays_a_position(tmp_path, atom_name):
    file = written(
        tmp_path,
        *residue("ASP", "A", 14, 3.0),
        *residue("GLU", "A", 15, 4.0, lacks=atom_name),
        *residue("PHE", "A", 16, 5.0),
    )
    backbone = Backbone.from_file(file)
    assert backbone.sequence == "DEF" and backbone.residue_index.tolist() == [0, 1, 2]
    assert backbone.is_modelled.tolist() == [True, False, True]
    missing = np.isnan(backbone.coordinates[1]).all(axis=1)
    assert [name for name, is_missing in zip(backbones.ATOMS, missing, strict=True) if is_missing]
    assert missing.sum() == 1
    assert any("A15 lacks a backbone atom, so unmodelled" in one for one in backbone.notes)


def test_a_residue_of_which_only_the_side_chain_is_there_stays_too(tmp_path):
    file = written(tmp_path, *residue("ALA", "A", 1, 1.0), atom("CB", "LEU", "A", 2, 2.0))
    backbone = Backbone.from_file(file)
    assert backbone.sequence == "AL" and np.isnan(backbone.coordinates[1]).all()


def test_gaps_insertions_and_chains_keep_their_distances(tmp_path):
    lines = [
        *residue("ALA", "B", 1, 0.0),
        *residue("ALA", "A", 10, 1.0),
        *residue("CYS", "A", 10, 2.0, insert="A"),
        *residue("ASP", "A", 14, 30.0),
        *residue("PHE", "A", 16, 50.0),
    ]
    file = written(tmp_path, *lines)
    backbone = Backbone.from_file(file, "A")
    assert backbone.sequence == "ACDF"
    assert backbone.residue_index.tolist() == [0, 1, 5, 7]
    assert backbone.labels == ("A10", "A10A", "A14", "A16")
    assert "a chain is broken between A10A and A14, between A14 and A16" in backbone.notes
    both = Backbone.from_file(file)
    assert both.sequence == "AACDF" and both.chain_ids == ("B", "A")
    assert both.chain.tolist() == [1, 2, 2, 2, 2]
    assert both.residue_index.tolist() == [0, 100, 101, 105, 107]


def test_chains_are_read_in_the_order_asked_for(tmp_path):
    lines = [line for k, chain in enumerate("BAC") for line in residue("ALA", chain, k, 9.0 * k)]
    file = written(tmp_path, *lines)
    assert Backbone.from_file(file).chain_ids == ("B", "A", "C")
    for chains in ("A,B", " A, B", ["A", "B"], ("A", "B")):
        backbone = Backbone.from_file(file, chains)
        assert backbone.chain_ids == ("A", "B") and backbone.labels == ("A1", "B0")
    for chains, problem in (
        ("D", "has no protein chain 'D'; it has B, A, C$"),
        ("AB", "no protein chain 'AB'; it has B, A, C; separate names by commas, A,B$"),
        ("A,B,A", "chains must be named once each, got 'A' twice"),
        ("", "has no protein chain ''"),
        ([], "chains must name at least one chain, got none"),
    ):
        with pytest.raises(ValueError, match=problem):
            Backbone.from_file(file, chains)


# ----- What has to be decided ----------------------------------------------------------------


def test_the_first_model_counts(tmp_path):
    file = written(
        tmp_path,
        "MODEL        1",
        *residue("SER", "A", 1, 1.0),
        "ENDMDL",
        "MODEL        2",
        *residue("SER", "A", 1, 9.0),
        "ENDMDL",
    )
    backbone = Backbone.from_file(file)
    assert backbone.coordinates[0, 0, 0] == 1.0
    assert backbone.notes == ("the first of 2 models was read",)


@pytest.mark.parametrize(
    ("first", "second", "taken"), [(0.4, 0.6, 7.0), (0.6, 0.4, 1.0), (0.5, 0.5, 1.0)]
)
def test_of_alternative_places_the_likeliest_counts_and_is_taken_whole(
    tmp_path, first, second, taken
):
    file = written(
        tmp_path,
        *residue("SER", "A", 1, 1.0, alt="A", occupancy=first),
        *residue("SER", "A", 1, 7.0, alt="B", occupancy=second),
        *residue("THR", "A", 2, 9.0),
    )
    backbone = Backbone.from_file(file)
    assert backbone.sequence == "ST"
    np.testing.assert_allclose(
        backbone.coordinates[0, :, 0], taken + 0.1 * np.arange(4), rtol=1e-5
    )
    assert "of alternative places that of the highest occupancy: A1" in backbone.notes


def test_an_atom_without_alternatives_belongs_to_each(tmp_path):
    shared = residue("SER", "A", 1, 1.0)[:2]
    others = [
        line
        for alt, x, occupancy in (("A", 1.0, 0.3), ("B", 5.0, 0.7))
        for line in residue("SER", "A", 1, x, alt=alt, occupancy=occupancy)[2:]
    ]
    backbone = Backbone.from_file(written(tmp_path, *shared, *others))
    np.testing.assert_allclose(backbone.coordinates[0, :, 0], [1.0, 1.1, 5.2, 5.3], rtol=1e-5)


def test_of_two_residues_at_one_place_the_likelier_is_one_position(tmp_path):
    file = written(
        tmp_path,
        *residue("ALA", "A", 1, 1.0, alt="A", occupancy=0.3),
        *residue("SER", "A", 1, 2.0, alt="B", occupancy=0.7),
        *residue("GLY", "A", 2, 4.0),
    )
    backbone = Backbone.from_file(file)
    assert backbone.sequence == "SG" and backbone.coordinates[0, 0, 0] == 2.0


def test_modified_and_unknown_residues_stay_and_waters_and_ligands_do_not(tmp_path):
    file = written(
        tmp_path,
        *residue("MSE", "A", 1, 1.0, record="HETATM"),
        *residue("UNK", "A", 2, 2.0),
        *residue("SEP", "A", 3, 3.0, record="HETATM"),
        *residue("QQQ", "A", 4, 4.0),
        *residue("GLY", "A", 5, 5.0),
        "TER",
        *residue("GLY", "A", 90, 3.0, record="HETATM"),
        atom("O", "HOH", "A", 91, 3.0, record="HETATM"),
    )
    backbone = Backbone.from_file(file)
    assert backbone.sequence == "MXSXG"
    assert (
        "read for what they were made from: MSE at A1 as M, UNK at A2 as X, SEP at A3 as S, "
        "QQQ at A4 as X"
    ) in backbone.notes


def test_a_chain_that_the_file_ends_too_early_goes_on(tmp_path):
    """Some programs write TER where a chain is broken, which ends it for others."""
    file = written(
        tmp_path,
        *residue("ALA", "A", 1, 1.0),
        "TER",
        *residue("GLY", "A", 9, 20.0),
        *residue("MSE", "A", 10, 20.4, record="HETATM"),
        *residue("SER", "A", 20, 40.0, record="HETATM"),  # a ligand
    )
    backbone = Backbone.from_file(file)
    assert backbone.sequence == "AGM" and backbone.breaks.tolist() == [0]


def test_a_chain_without_a_protein_is_left_out_and_said(tmp_path):
    dna = [atom(name, "DA", "C", k, 20.0 + k) for k in range(1, 4) for name in ("P", "C1'", "O3'")]
    backbone = Backbone.from_file(written(tmp_path, *residue("ALA", "A", 1, 1.0), "TER", *dna))
    assert backbone.chain_ids == ("A",)
    assert backbone.notes == ("without a protein, and left out: chain C",)


# ----- Residues that the file leaves out -----------------------------------------------------

GAPPED = (
    "SEQRES   1 A   10  MET GLY ALA GLY TRP SER LYS LYS CYS HIS",
    *residue("ALA", "A", 3, 1.0),
    *residue("GLY", "A", 4, 4.0),
    *residue("LYS", "A", 7, 30.0),
    *residue("LYS", "A", 8, 33.0),
)


def test_a_gap_is_left_open_and_said_or_filled_from_the_file_s_sequence(tmp_path):
    file = written(tmp_path, *GAPPED)
    backbone = Backbone.from_file(file)
    assert backbone.sequence == "AGKK" and backbone.residue_index.tolist() == [0, 1, 4, 5]
    filled = Backbone.from_file(file, fill_gaps=True)
    assert filled.sequence == "AGWSKK" and filled.numbers.tolist() == [3, 4, 5, 6, 7, 8]
    assert filled.residue_index.tolist() == [0, 1, 2, 3, 4, 5]
    assert filled.is_modelled.tolist() == [True, True, False, False, True, True]
    for one in (backbone, filled):
        assert "the file names 2 residues before A3 that it has no atom of" in one.notes
        assert "the file names 2 residues after A8 that it has no atom of" in one.notes


def test_without_a_sequence_that_agrees_a_gap_is_unknown(tmp_path):
    for lines in (GAPPED[1:], [GAPPED[0].replace("TRP", "TRP TRP"), *GAPPED[1:]]):
        assert Backbone.from_file(written(tmp_path, *lines), fill_gaps=True).sequence == "AGXXKK"


def test_numbers_that_skip_within_a_bonded_chain_are_no_gap(tmp_path):
    lines = [*residue("ALA", "A", 1, 1.0), *residue("GLY", "A", 5, 1.4)]
    backbone = Backbone.from_file(written(tmp_path, *lines), fill_gaps=True)
    assert backbone.sequence == "AG" and backbone.residue_index.tolist() == [0, 4]


def test_a_gap_that_is_no_loop_is_not_filled(tmp_path):
    lines = [*residue("ALA", "A", 1, 1.0), *residue("GLY", "A", 2000, 40.0)]
    with pytest.raises(ValueError, match=r"between A1 and A2000 is too long.*1998 numbers"):
        Backbone.from_file(written(tmp_path, *lines), fill_gaps=True)


# ----- Formats -------------------------------------------------------------------------------


def test_mmcif_and_compressed_files_read_like_the_pdb_file_they_came_from(tmp_path):
    gemmi = importlib.import_module("gemmi")
    lines = [
        *GAPPED,
        *residue("ASP", "A", 8, 36.0, insert="B", lacks="O"),
        *residue("MSE", "B", -2, 50.0, record="HETATM"),
        *residue("TYR", "B", -1, 53.0, alt="A", occupancy=0.4),
        *residue("TYR", "B", -1, 54.0, alt="B", occupancy=0.6),
    ]
    file = written(tmp_path, *lines)
    structure = gemmi.read_structure(str(file))
    structure.setup_entities()
    structure.assign_label_seq_id()
    text = structure.make_mmcif_document().as_string()
    (tmp_path / "other.cif").write_text(text)
    (tmp_path / "small.cif.gz").write_bytes(gzip.compress(text.encode()))
    for ending, packing in PACKINGS.items():
        (tmp_path / f"small.pdb.{ending}").write_bytes(packing.compress(file.read_bytes()))
    for fill_gaps in (False, True):
        known = Backbone.from_file(file, "B,A", fill_gaps=fill_gaps)
        assert known.labels[:2] == ("B-2", "B-1") and known.labels[-1] == "A8B"
        for name in ("other.cif", "small.cif.gz", *(f"small.pdb.{one}" for one in PACKINGS)):
            again = Backbone.from_file(tmp_path / name, "B,A", fill_gaps=fill_gaps)
            assert again.name == name.partition(".")[0]
            np.testing.assert_array_equal(again.coordinates, known.coordinates)
            for label in ("sequence", "labels", "chain_ids"):
                assert getattr(again, label) == getattr(known, label)
            np.testing.assert_array_equal(again.residue_index, known.residue_index)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "has no residue of a protein; it must be a PDB or mmCIF file of one"),
        ([atom("O", "HOH", "A", 3, 3.0, record="HETATM")], "has no residue of a protein"),
        ([atom("CA", "GLY", "A", 1, 0.0)[:40]], "cannot be read as a PDB or mmCIF file: .*line 2"),
        (
            [atom("CA", "GLY", "A", 1, 9e7)],
            r"is damaged: residue '1\(GLY\)' has an atom",
        ),
    ],
)
def test_a_file_without_a_protein_is_refused(tmp_path, lines, problem):
    with pytest.raises(ValueError, match=problem):
        Backbone.from_file(written(tmp_path, *lines))


def test_files_that_are_no_text_or_not_there_are_refused(tmp_path, monkeypatch):
    file = tmp_path / "noise.pdb"
    for content in (bytes(range(256)) * 40, b"", b"data_x\nloop_\n_atom_site.id\n"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"has no residue of a protein|cannot be read as"):
            Backbone.from_file(file)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        Backbone.from_file(tmp_path / "absent.pdb")
    for packing in PACKINGS.values():  # cut short, spoiled, then too large
        whole = packing.compress(bytes(3000))
        for damaged in (whole[:-9], whole[:16] + b"spoiled" + whole[16:]):
            file.write_bytes(damaged)
            with pytest.raises(ValueError, match="cannot be read as a PDB or mmCIF file: "):
                Backbone.from_file(file)
    monkeypatch.setattr(backbones, "MOST_BYTES", 2000)
    for packing in PACKINGS.values():
        file.write_bytes(packing.compress(bytes(3000)))
        with pytest.raises(ValueError, match="it unpacks to more than 2,000 bytes"):
            Backbone.from_file(file)


def test_gemmi_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gemmi", None)
    with pytest.raises(MissingExtra, match=r"gemmi: pip install 'counterprobe\[structures\]'"):
        Backbone.from_file(written(tmp_path))
