"""Backbones of which atoms are missing, for every network that reads one; and no backbone."""

import warnings

import gemmi
import numpy as np
import pytest

import counterprobe as cp
from counterprobe import MASK, models
from counterprobe.errors import UnmodelledWarning
from counterprobe.models import Backbone
from structure_files import copies, pdb_of

PIECE = Backbone.shipped("1ubi").part(range(12))  # MQIFVKTLTGKT
DIMER = copies(PIECE, "AB", (20.0, 20.0, 5.0))
NETWORKS = [("proteinmpnn", "v_48_020"), ("frame2seq", "model1")]


def loaded(name, weights, backbone, **options):
    return models.load(name, weights=weights, backbone=backbone, device="cpu", **options)


def without(residues, atoms="N C O"):
    return {(k, atom) for k in residues for atom in atoms.split()}


def in_format(file, ending):
    """Return a PDB file as one of another format."""
    if ending == ".pdb":
        return file
    structure = gemmi.read_structure(str(file))
    structure.setup_entities()
    structure.make_mmcif_document().write_file(str(file.with_suffix(ending)))
    return file.with_suffix(ending)


@pytest.mark.parametrize("name", ["proteinmpnn", "frame2seq"])
def test_a_backbone_must_be_given(name):
    for call in (models.load, lambda name: cp.score(name, ["MQIF"]), lambda name: cp.infill(name)):
        with pytest.raises(
            ValueError, match=r"a backbone must be given: .*\(--backbone my\.pdb\)"
        ):
            call(name)
    with pytest.raises(ValueError, match="examples by its name, 1ubi or 1ake"):
        models.load(name, backbone=None)


@pytest.mark.parametrize(("name", "weights"), NETWORKS)
@pytest.mark.parametrize("ending", [".pdb", ".cif"])
@pytest.mark.parametrize("backbone", [PIECE, DIMER])
def test_a_file_of_alpha_carbons_cannot_be_designed(tmp_path, name, weights, ending, backbone):
    file = in_format(pdb_of(backbone, tmp_path, left_out=without(range(len(backbone)))), ending)
    said = rf"no residue that can be designed: {name}.* of {len(backbone)} .* 0 lack CA"
    with pytest.raises(ValueError, match=said):
        loaded(name, weights, file)
    with pytest.raises(ValueError, match=said):
        cp.score(name, [backbone.sequence], model_options={"backbone": file, "weights": weights})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reading = loaded("proteinmpnn", "ca_v_48_020", file)
    assert reading.notes == () and (reading.template().given == MASK).all()


@pytest.mark.parametrize("missing", ["O", "N", "CA"])
def test_one_atom_that_every_residue_lacks_is_enough(tmp_path, missing):
    file = pdb_of(PIECE, tmp_path, left_out=without(range(12), missing))
    with pytest.raises(ValueError, match=rf"12 lack {missing}\b"):
        loaded("proteinmpnn", "v_48_020", file)
    if missing == "O":
        assert (loaded("frame2seq", "model1", file).template().given == MASK).all()


@pytest.mark.parametrize(("name", "weights"), NETWORKS)
@pytest.mark.parametrize("ending", [".pdb", ".cif"])
def test_residues_without_atoms_are_named_and_keep_their_letters(tmp_path, name, weights, ending):
    file = in_format(pdb_of(DIMER, tmp_path, left_out=without([4, 5, 20])), ending)
    with pytest.warns(UnmodelledWarning, match="A5, A6, B9 lack a backbone atom"):
        model = loaded(name, weights, file)
    assert "A5, A6, B9 lack a backbone atom" in model.notes[0]
    stays = [4, 5, 20]
    assert np.flatnonzero(model.template().given != MASK).tolist() == stays
    # With a text too, and where a range has them.
    template = model.template(DIMER.sequence, design="A1-7,B")
    drawn = [*range(4), 6, *range(12, 20), 21, 22, 23]
    assert np.flatnonzero(template.given == MASK).tolist() == drawn
    assert np.flatnonzero(model.template(DIMER.sequence, fixed="A").given != MASK).tolist() == [
        *range(12),
        20,
    ]
    assert (model.template(design="A5").given == MASK).sum() == 1
    for choices, said in (
        ({"design": "A5-6"}, "A5-6 cannot be designed: each of its residues lacks"),
        ({"design": "A1-3,A5-6"}, "A5-6 cannot be designed"),
        ({"fixed": "A1-4,A7-12,B"}, "nothing is left to design"),
    ):
        for text in (None, DIMER.sequence):
            with pytest.raises(ValueError, match=said):
                model.template(text, **choices)
    # Everything that is known is fixed on purpose.
    assert model.template(fixed="*").is_complete and model.template(DIMER.sequence).is_complete


@pytest.mark.parametrize(("name", "weights"), NETWORKS)
def test_a_chain_of_alpha_carbons_cannot_be_designed(tmp_path, name, weights):
    file = pdb_of(DIMER, tmp_path, left_out=without(range(12, 24)))
    with pytest.warns(UnmodelledWarning, match="B1, B2, B3, .* and 4 more lack"):
        model = loaded(name, weights, file)
    for choices in ({"design": "B"}, {"design": "A,B"}, {"design": "B2-7"}):
        with pytest.raises(ValueError, match=r"B.* cannot be designed"):
            model.template(**choices)
    for choices in ({"fixed": "A"}, {"symmetric": "A,B"}):
        with pytest.raises(ValueError, match="nothing is left to design"):
            model.template(**choices)
    drawn = cp.infill(model, sampler="one-batch", count=2, progress=False)
    assert {text.split("/")[1] for text in drawn.texts} == {PIECE.sequence}
    found = cp.score(model, [DIMER.sequence], orders=1)
    assert found.num_scored.tolist() == [12]
    with pytest.raises(ValueError, match="B cannot be designed"):
        cp.score(model, [DIMER.sequence], template_options={"design": "B"})


def test_modified_residues_of_alpha_carbons_are_as_others(tmp_path):
    file = pdb_of(PIECE, tmp_path, left_out=without([0, 3]))
    text = file.read_text().replace("MET A   1", "MSE A   1").replace("ATOM  ", "HETATM", 1)
    file.write_text(text)
    with pytest.warns(UnmodelledWarning, match="A1, A4 lack"):
        model = loaded("proteinmpnn", "v_48_020", file)
    assert model.backbone.sequence == PIECE.sequence
    assert np.flatnonzero(model.template().given != MASK).tolist() == [0, 3]


def test_residues_whose_letter_and_place_are_unknown_are_not_scored(tmp_path):
    gapped = PIECE.part([*range(5), *range(7, 12)], "gapped")
    model = loaded("frame2seq", "model1", pdb_of(gapped, tmp_path), fill_gaps=True)
    assert model.backbone.sequence == "MQIFVXXLTGKT"
    found = cp.score(model, [PIECE.sequence])
    assert found.num_scored.tolist() == [10] and found.ledger.evaluations == 10
