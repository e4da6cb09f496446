"""Backbones: the shipped ones, what they say of themselves, and files of arrays."""

from dataclasses import replace

import numpy as np
import pytest

from counterprobe.models.proteins import backbones
from counterprobe.models.proteins.backbones import Backbone


@pytest.fixture(scope="module")
def ubiquitin() -> Backbone:
    return Backbone.shipped("1ubi")


def without(backbone: Backbone, *missing: tuple[int, int]) -> Backbone:
    """Take atoms away, named by residue and place in N, CA, C, O."""
    coordinates = backbone.coordinates.copy()
    for residue, atom in missing:
        coordinates[residue, atom] = np.nan
    return replace(backbone, coordinates=coordinates)


@pytest.mark.parametrize(
    ("name", "length", "start"), [("1ubi", 76, "MQIF"), ("1ake", 214, "MRII")]
)
def test_shipped_backbones_look_like_proteins(name, length, start):
    backbone = Backbone.shipped(name)
    assert len(backbone) == length
    assert backbone.sequence.startswith(start)
    assert np.array_equal(backbone.residue_index, np.arange(length))
    assert backbone.labels == tuple(f"A{k + 1}" for k in range(length))
    assert backbone.is_modelled.all() and len(backbone.breaks) == 0 and backbone.notes == ()
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


def test_a_residue_without_an_atom_stays_and_is_said_to_be_unmodelled(ubiquitin):
    lacking = without(ubiquitin, (3, 3), (7, 1))
    assert len(lacking) == 76
    assert np.flatnonzero(~lacking.is_modelled).tolist() == [3, 7]
    end = "a backbone atom, so unmodelled: not designed unless named alone"
    assert lacking.notes == (f"A4, A8 lack {end}",)
    assert without(ubiquitin, (3, 3)).notes == (f"A4 lacks {end}",)
    # Alpha carbons alone: nothing is missing.
    assert without(ubiquitin, (3, 3)).notes_for(lacking.has(slice(1, 2))) == (f"A8 lacks {end}",)
    assert str(lacking).splitlines()[0] == "1ubi: 76 residues, 2 of them unmodelled"
    # Between its neighbours, so that distances and pictures have a place for it.
    middle = (lacking.coordinates[6, 1] + lacking.coordinates[8, 1]) / 2
    np.testing.assert_allclose(lacking.alpha_carbons[7], middle, rtol=1e-6)
    assert np.isfinite(lacking.distances).all()
    others = np.arange(76) != 7
    kept = np.ix_(others, others)
    np.testing.assert_array_equal(lacking.distances[kept], ubiquitin.distances[kept])


def test_a_missing_end_lies_at_its_neighbour_and_a_missing_chain_in_the_middle(ubiquitin):
    ends = without(ubiquitin, (0, 1), (1, 1), (75, 1))
    np.testing.assert_array_equal(ends.alpha_carbons[:2], ends.alpha_carbons[[2, 2]])
    np.testing.assert_array_equal(ends.alpha_carbons[75], ends.alpha_carbons[74])
    pair = replace(ubiquitin.part([0, 1, 2]), chain=np.array([1, 1, 2]), chain_ids=("A", "B"))
    lost = without(pair, (2, 1))
    np.testing.assert_allclose(lost.alpha_carbons[2], lost.alpha_carbons[:2].mean(axis=0))
    assert not without(pair, (0, 1), (1, 1), (2, 1)).alpha_carbons.any()


def test_a_chain_is_broken_where_there_is_no_bond(ubiquitin):
    cut = ubiquitin.part([*range(10), *range(14, 30)])
    assert cut.breaks.tolist() == [9]
    assert cut.notes == ("a chain is broken between A10 and A15",)
    # Numbers that skip some are no break where the bond is there, as in antibody numberings.
    renumbered = replace(
        ubiquitin,
        numbers=ubiquitin.numbers + (np.arange(76) > 20),
        residue_index=ubiquitin.residue_index + (np.arange(76) > 20),
    )
    assert len(renumbered.breaks) == 0
    # They are all there is to go by where an atom of the bond is missing.
    assert without(renumbered, (20, 2)).breaks.tolist() == [20]
    assert len(without(ubiquitin, (20, 2)).breaks) == 0
    two_chains = replace(cut, chain=1 + (np.arange(26) > 9), chain_ids=("A", "B"))
    assert len(two_chains.breaks) == 0
    pieces = [one.stretches for one in (ubiquitin, cut, two_chains)]
    assert pieces == [((0, "A"),), ((0, "A"), (10, "A")), ((0, "A"), (10, "B"))]


def test_a_part_keeps_names_and_numbers_the_chains_that_are_left(ubiquitin):
    both = replace(
        ubiquitin, chain=1 + (np.arange(76) > 40), chain_ids=("A", "B"), remarks=("read",)
    )
    part = both.part([50, 42, 60])
    assert part.labels == ("B51", "B43", "B61") and part.chain.tolist() == [1, 1, 1]
    assert part.sequence == "".join(ubiquitin.sequence[k] for k in (50, 42, 60))
    assert part.remarks == () and part.name == "1ubi"
    assert both.part([1, 50], "two").chain_ids == ("A", "B")


def test_arrays_that_do_not_fit_together_are_refused(ubiquitin):
    with pytest.raises(ValueError, match=r"of shape \(3, 4, 3\) for 3 residues; got"):
        replace(ubiquitin, sequence="MQI")
    with pytest.raises(ValueError, match=r"chain must have shape \(76,\), got \(2,\)"):
        replace(ubiquitin, chain=ubiquitin.chain[:2].copy())
    with pytest.raises(ValueError, match="insertions must have one letter for each of 76"):
        replace(ubiquitin, insertions=" ")
    with pytest.raises(ValueError, match="chain must number the 1 chains of chain_ids from 1"):
        replace(ubiquitin, chain=ubiquitin.chain + 1)
    with pytest.raises(ValueError, match="at least one residue"):
        ubiquitin.part([])
    broken = ubiquitin.coordinates.copy()
    broken[3] = np.inf
    with pytest.raises(ValueError, match="coordinates must be numbers"):
        replace(ubiquitin, coordinates=broken)


def test_everything_comes_back_from_a_file_of_arrays(ubiquitin, tmp_path):
    backbone = replace(
        without(ubiquitin, (5, 0)).part([5, 6, 7]),
        insertions="A  ",
        chain_ids=("H",),
        remarks=("one", "two"),
    )
    backbone.save(tmp_path / "small.npz")
    again = Backbone.named(tmp_path / "small.npz")
    for name in ("coordinates", "residue_index", "chain", "numbers"):
        np.testing.assert_array_equal(getattr(again, name), getattr(backbone, name))
    for name in ("sequence", "name", "insertions", "chain_ids", "remarks", "labels"):
        assert getattr(again, name) == getattr(backbone, name)
    assert again.labels == ("H6A", "H7", "H8")
    for name in (tmp_path / "small.npz", "1ubi"):
        with pytest.raises(ValueError, match="structure file is read; leave out chains for"):
            Backbone.named(name, "H")
        with pytest.raises(ValueError, match="leave out fill_gaps for"):
            Backbone.named(name, fill_gaps=True)


def test_what_is_no_backbone_is_refused_in_one_line(tmp_path, monkeypatch):
    file = tmp_path / "x.npz"
    good = {
        "coordinates": np.zeros((1, 4, 3), dtype=np.float32), "residue_index": np.zeros(1, int),
        "chain": np.ones(1, int), "sequence": np.array("A"), "name": np.array("x"),
        "numbers": np.ones(1, int), "insertions": np.array(" "), "chain_ids": np.array("A"),
        "remarks": np.array(""),
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
