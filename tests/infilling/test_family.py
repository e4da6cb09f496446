"""One structure for a family of antibodies: aligned by IMGT's numbers, carried to other chains."""

import re
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.infilling import discover_over
from counterprobe.infilling.family import numbers_of, places_by_number
from counterprobe.infilling.task import make_task
from counterprobe.models.proteins.antibody_numbering import imgt_numbers

CPU = {"device": "cpu"}
TRASTUZUMAB = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAV"
    "YYCSRWGGDGFYAMDYWGQGTLVTVSS"
)
# Its third loop is shorter by seven residues.
NIVOLUMAB = (
    "QVQLVESGGGVVQPGRSLRLDCKASGITFSNSGMHWVRQAPGKGLEWVAVIWYDGSKRYYADSVKGRFTISRDNSKNTLFLQMNSLRAEDTAV"
    "YYCATNDDYWGQGTLVTVSS"
)
LOOP = {"design": "CDR-H3"}


@pytest.fixture(scope="module")
def heavy() -> cp.models.MaskedModel:
    return cp.models.load("sapiens-heavy", device="cpu")


@pytest.fixture(scope="module")
def family(heavy) -> cp.Structure:
    return discover_over(heavy, [TRASTUZUMAB, NIVOLUMAB], probes=24, template_options=LOOP)


def test_positions_of_two_chains_meet_by_their_numbers(heavy):
    one, other = (
        numbers_of(make_task(heavy, chain, template_options=LOOP))
        for chain in (TRASTUZUMAB, NIVOLUMAB)
    )
    places = places_by_number(other, one)
    assert len(one) == 120 and len(other) == 113
    assert (places >= 0).all() and (np.diff(places) > 0).all()
    for motif in ("YYC", "WGQG"):
        assert places[NIVOLUMAB.index(motif)] == TRASTUZUMAB.index(motif)
    assert (places_by_number(one, other) < 0).sum() == 7


def test_the_structure_of_two_chains_has_the_positions_of_the_first(heavy, family):
    loop = np.array(make_task(heavy, TRASTUZUMAB, template_options=LOOP).template.masked)
    assert family.length == 120 and family.residual.tolist() == loop.tolist()
    assert family.about["contexts"] == 2 and family.strengths.num_probes == 48
    alone = [
        discover_over(heavy, [chain], probes=24, template_options=LOOP)
        for chain in (TRASTUZUMAB, NIVOLUMAB)
    ]
    assert alone[0].ledger.evaluations + alone[1].ledger.evaluations == family.ledger.evaluations
    shared = [k for k in loop if family.about["numbers"][k] in alone[1].about["numbers"]]
    assert 0 < len(shared) < len(loop)


@pytest.mark.parametrize("chain", [TRASTUZUMAB, NIVOLUMAB])
def test_it_is_carried_to_chains_of_any_length(heavy, family, chain, tmp_path):
    family.save(tmp_path / "family.npz")
    drawn = cp.infill(
        heavy, chain, template_options=LOOP, structure=cp.Structure.load(tmp_path / "family.npz"),
        batches=2, count=3, progress=False,
    )  # fmt: skip
    assert drawn.num_completed == 3 and all(len(text) == len(chain) for text in drawn.texts)
    assert set(drawn.choice.prices) == {"planned", "spread"}
    assert "averaged over 2 contexts" in drawn.choice.why
    drawing = sum(one.evaluations for one in drawn.ledgers)
    recognising = len(family.sample_states)
    assert drawn.ledger.evaluations == drawing + recognising + drawn.choice.ledger.evaluations


def test_fillings_of_one_text_need_no_numbers(heavy):
    found = discover_over(heavy, ["EVQLXXSG", "QVQLXXAG"], probes=8)
    assert found.residual.tolist() == [4, 5]
    drawn = cp.infill(heavy, "EVKLXXSX", structure=found, batches=2, progress=False)
    assert "it says nothing of them: 1" in drawn.choice.why


def test_what_does_not_belong_to_the_family_is_refused(heavy, family):
    options = {"structure": family, "batches": 2, "progress": False}
    with pytest.raises(cp.StructureError, match="cannot be put onto a text of 8"):
        cp.infill(heavy, "EVQLXXSG", **options)
    with pytest.raises(cp.StructureError, match="does not give the stored replies"):
        cp.infill(heavy, NIVOLUMAB, template_options=LOOP, temperature=0.5, **options)
    oracle = heavy.oracle(heavy.template(NIVOLUMAB, design="CDR-H3"))
    with pytest.raises(cp.StructureError, match="pass a model, no oracle"):
        cp.infill(oracle, **options)
    with pytest.raises(ValueError, match="at least one, got none"):
        discover_over(heavy, [])
    with pytest.raises(ValueError, match="no oracle"):
        discover_over(oracle, [NIVOLUMAB])


@pytest.mark.parametrize("chain", [TRASTUZUMAB, NIVOLUMAB])
def test_another_set_of_letters_is_refused_whatever_the_length(heavy, family, chain):
    options = {"template_options": LOOP, "batches": 2, "count": 2, "progress": False}
    with pytest.raises(cp.StructureError, match="does not give the stored replies"):
        cp.infill(heavy, chain, structure=family, allowed="AVLG", **options)


def test_the_same_set_of_letters_is_recognised_at_another_length(heavy):
    some = {**LOOP, "omit": "C"}
    found = discover_over(heavy, [TRASTUZUMAB], probes=8, template_options=some)
    options = {"structure": found, "batches": 2, "count": 2, "progress": False}
    assert cp.infill(heavy, NIVOLUMAB, template_options=some, **options).num_completed == 2
    with pytest.raises(cp.StructureError, match="does not give the stored replies"):
        cp.infill(heavy, NIVOLUMAB, template_options=LOOP, **options)


def test_domains_of_one_kind_are_told_apart():
    """Two heavy domains and a linker: the second has places of its own."""
    first, linker = NIVOLUMAB, "GGGGSGGGGSGGGGS"
    two = imgt_numbers(f"{first}{linker}{TRASTUZUMAB}")
    named = np.flatnonzero([bool(name) for name in two])
    places = places_by_number(two, two)
    assert places[named].tolist() == named.tolist() and (np.delete(places, named) < 0).all()
    onto = places_by_number(imgt_numbers(TRASTUZUMAB), two)
    assert onto.max() < len(first) and (onto < 0).sum() == 7, "the longer loop has no place there"
    back = imgt_numbers(f"{TRASTUZUMAB}{linker}{first}")
    onto = places_by_number(two, back)
    assert onto[two.index("H1")] == 0 and (np.diff(onto[onto >= 0]) > 0).all()


def test_the_code_of_the_page_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "learned.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "docs/learned.md", "exec"), {})
    assert "averaged over 2 contexts" in capsys.readouterr().out
