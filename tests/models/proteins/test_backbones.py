"""Backbones: the shipped ones, and PDB files in all their ways."""

from pathlib import Path

import numpy as np
import pytest

from counterprobe.models.proteins import backbones
from counterprobe.models.proteins.backbones import Backbone


def atom(
    name: str,
    kind: str,
    chain: str,
    number: int,
    x: float,
    *,
    record: str = "ATOM",
    alt: str = " ",
    insert: str = " ",
) -> str:
    return (
        f"{record:6s}{1:5d}  {name:<3s}{alt}{kind:3s} {chain}{number:4d}{insert}   "
        f"{x:8.3f}{x + 1:8.3f}{x + 2:8.3f}  1.00 10.00"
    )


def residue(kind: str, chain: str, number: int, x: float, **options) -> list[str]:
    return [
        atom(name, kind, chain, number, x + 0.1 * k, **options)
        for k, name in enumerate(("N", "CA", "C", "O", "CB"))
    ]


def written(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "small.pdb"
    file.write_text("\n".join(["HEADER    A PROTEIN", *lines, "END"]) + "\n")
    return file


@pytest.mark.parametrize(
    ("name", "length", "start"), [("1ubi", 76, "MQIF"), ("1ake", 214, "MRII")]
)
def test_shipped_backbones_look_like_proteins(name, length, start):
    backbone = Backbone.shipped(name)
    assert len(backbone) == length
    assert backbone.sequence.startswith(start)
    assert np.array_equal(backbone.residue_index, np.arange(length))
    nitrogen, alpha, carbon, oxygen = np.moveaxis(backbone.coordinates.astype(float), 1, 0)
    for one, other, bond in (
        (nitrogen, alpha, 1.46),
        (alpha, carbon, 1.52),
        (carbon, oxygen, 1.23),
        (carbon[:-1], nitrogen[1:], 1.33),
    ):
        np.testing.assert_allclose(np.linalg.norm(one - other, axis=1), bond, atol=0.1)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="name must be one of 1ubi, 1ake, got '1abc'"):
        Backbone.shipped("1abc")


def test_a_pdb_file_is_read_and_comes_back_from_arrays(tmp_path):
    file = written(tmp_path, *residue("GLY", "A", 5, 1.0), *residue("TRP", "A", 6, 2.0))
    backbone = Backbone.from_pdb(file)
    assert (backbone.sequence, backbone.name) == ("GW", "small")
    np.testing.assert_allclose(backbone.coordinates[1, 2], [2.2, 3.2, 4.2], rtol=1e-6)
    assert repr(backbone) == "Backbone('small': 2 residues, 1 chain, GW)"
    backbone.save(tmp_path / "small.npz")
    again = Backbone.load(tmp_path / "small.npz")
    assert np.array_equal(again.coordinates, backbone.coordinates)
    assert (again.sequence, again.name) == (backbone.sequence, backbone.name)


def test_gaps_insertions_and_chains_keep_their_distances(tmp_path):
    lines = [
        *residue("ALA", "B", 1, 0.0),
        *residue("ALA", "A", 10, 1.0),
        *residue("CYS", "A", 10, 2.0, insert="A"),
        *residue("ASP", "A", 14, 3.0),
        *residue("GLU", "A", 15, 4.0)[:3],  # no oxygen: left out
        *residue("PHE", "A", 16, 5.0),
    ]
    file = written(tmp_path, *lines)
    backbone = Backbone.from_pdb(file, "A")
    assert backbone.sequence == "ACDF"
    assert backbone.residue_index.tolist() == [0, 1, 5, 7]
    both = Backbone.from_pdb(file)
    assert both.sequence == "AACDF"
    assert both.chain.tolist() == [1, 2, 2, 2, 2]
    assert both.residue_index.tolist() == [0, 100, 101, 105, 107]
    assert Backbone.from_pdb(file, "AB").sequence == "ACDFA"


def test_of_models_and_alternative_places_the_first_counts(tmp_path):
    file = written(
        tmp_path,
        "MODEL        1",
        *residue("SER", "A", 1, 1.0, alt="A"),
        *residue("SER", "A", 1, 7.0, alt="B"),
        "ENDMDL",
        *residue("SER", "A", 2, 9.0),
    )
    backbone = Backbone.from_pdb(file)
    assert len(backbone) == 1
    assert backbone.coordinates[0, 0, 0] == 1.0


def test_modified_and_unknown_residues_stay_and_waters_do_not(tmp_path):
    file = written(
        tmp_path,
        *residue("MSE", "A", 1, 1.0, record="HETATM"),
        *residue("UNK", "A", 2, 2.0),
        atom("O", "HOH", "A", 3, 3.0, record="HETATM"),
    )
    assert Backbone.from_pdb(file).sequence == "MX"


@pytest.mark.parametrize(
    ("lines", "chains", "problem"),
    [
        ([], None, "has no residue with the four backbone atoms N, CA, C and O; it must be a PDB"),
        ([atom("CA", "GLY", "A", 1, 0.0)], None, "has no residue with the four backbone atoms"),
        (residue("GLY", "A", 1, 0.0), "B", "has no chain 'B' of residues; it has A"),
        ([atom("CA", "GLY", "A", 1, 0.0)[:40]], None, "is damaged in line 2: an atom needs"),
    ],
)
def test_a_file_without_a_backbone_is_refused(tmp_path, lines, chains, problem):
    with pytest.raises(ValueError, match=problem):
        Backbone.from_pdb(written(tmp_path, *lines), chains)


def test_files_that_are_no_text_or_not_there_are_refused(tmp_path):
    file = tmp_path / "noise.pdb"
    file.write_bytes(bytes(range(256)) * 40)
    with pytest.raises(ValueError, match="has no residue with the four backbone atoms"):
        Backbone.from_pdb(file)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        Backbone.from_pdb(tmp_path / "absent.pdb")


def test_arrays_that_do_not_fit_together_are_refused():
    good = Backbone.shipped("1ubi")
    with pytest.raises(ValueError, match=r"of shape \(3, 4, 3\) for 3 residues; got"):
        Backbone(good.coordinates.copy(), good.residue_index, good.chain, "MQI", "x")
    with pytest.raises(ValueError, match=r"chain must have shape \(76,\), got \(2,\)"):
        Backbone(good.coordinates, good.residue_index, good.chain[:2].copy(), good.sequence, "x")
    broken = good.coordinates.copy()
    broken[3] = np.nan
    with pytest.raises(ValueError, match="coordinates must be finite"):
        Backbone(broken, good.residue_index, good.chain, good.sequence, "x")


def test_what_is_no_backbone_is_refused_in_one_line(tmp_path, monkeypatch):
    file = tmp_path / "x.npz"
    good = {
        "coordinates": np.zeros((1, 4, 3), dtype=np.float32), "residue_index": np.zeros(1, int),
        "chain": np.ones(1, int), "sequence": np.array("A"), "name": np.array("x"),
    }  # fmt: skip
    for changes in ({"sequence": np.zeros(1)}, {"chain": np.ones(1)}, {"name": np.array(["x"])}):
        np.savez(file, **{**good, **changes})
        with pytest.raises(ValueError, match=r"x.npz is not a backbone, or is damaged"):
            Backbone.load(file)
    np.savez(file, **good)
    assert len(Backbone.load(file)) == 1
    monkeypatch.setattr(backbones, "MOST_BYTES", 1000)
    np.savez_compressed(file, **{**good, "coordinates": np.zeros((1000, 4, 3), dtype=np.float32)})
    with pytest.raises(ValueError, match=r"or is damaged .*at most 1,000 "):
        Backbone.load(file)
