"""Which residues are designed, tied and allowed: what becomes of a text or a backbone."""

from dataclasses import replace

import numpy as np
import pytest

from counterprobe import MASK, models
from counterprobe.models import Backbone
from counterprobe.models.letters import AMINO_ACIDS, Letters
from counterprobe.models.proteins.on_backbone import BackboneModel
from counterprobe.models.residues import choose_in_text, read_rules
from counterprobe.oracles import Readouts
from structure_files import copies

PROTEIN = Letters(AMINO_ACIDS, tuple(range(20)), 20)
DIMER = copies(Backbone.shipped("1ubi").part(range(8)), "AB")  # MQIFVKTL twice


def on(backbone: Backbone, text: str | None = None, known: np.ndarray | None = None, **choices):
    if known is not None:
        backbone = lacking(backbone, known)
    return BackboneModel("none", None, PROTEIN, backbone, slice(0, 4)).template(text, **choices)


def lacking(backbone: Backbone, known: np.ndarray) -> Backbone:
    """Take the oxygen away from all other residues."""
    coordinates = backbone.coordinates.copy()
    coordinates[~known, 3] = np.nan
    return replace(backbone, coordinates=coordinates)


def shown(template) -> str:
    return template.text(template.given)


def read(text: str, **choices):
    return choose_in_text(PROTEIN.template(text), **choices)


def refused(call, *arguments, **choices) -> str:
    with pytest.raises(ValueError, match=r".") as problem:
        call(*arguments, **choices)
    assert "\n" not in str(problem.value)
    return str(problem.value)


# ----- What is masked -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({}, "XXXXXXXX/XXXXXXXX"),
        ({"design": "B"}, "MQIFVKTL/XXXXXXXX"),
        ({"fixed": "A"}, "MQIFVKTL/XXXXXXXX"),
        ({"design": "A2-3,B8"}, "MXXFVKTL/MQIFVKTX"),
        ({"fixed": "B,A1-6"}, "MQIFVKXX/MQIFVKTL"),
        ({"design": "A2", "fixed": "B"}, "MXIFVKTL/MQIFVKTL"),
        ({"fixed": "*"}, "MQIFVKTL/MQIFVKTL"),
    ],
)
def test_fixed_residues_are_the_file_s(choices, text):
    assert shown(on(DIMER, **choices)) == text


def test_a_text_on_a_backbone_has_breaks_between_chains_or_none():
    for text in ("MXIFVKTL/MQIFVKTX", "MXIFVKTLMQIFVKTX", "MX IFVKTL /\nMQIFVKT[MASK]"):
        assert shown(on(DIMER, text)) == "MXIFVKTL/MQIFVKTX"
    assert shown(on(DIMER, "AAAAAAAX/" + "C" * 8, design="B1")) == "AAAAAAAX/XCCCCCCC"
    message = refused(on, DIMER, "MXIFVKT/LMQIFVKTX")
    assert "have 8, 8 residues, but the text has 7, 9 between '/'" in message
    assert "must have 16 residues, got 15" in refused(on, DIMER, "M" * 15)
    assert "got '/' as letter 2" in refused(read, "M/X")


def test_unmodelled_residues_stay_unless_they_are_named_alone():
    known = ~np.isin(np.arange(16), [2, 10])
    assert shown(on(DIMER, known=known)) == "XXIXXXXX/XXIXXXXX"
    assert shown(on(DIMER, known=known, design="A")) == "XXIXXXXX/MQIFVKTL"
    assert shown(on(DIMER, known=known, design="A2-4,A3")) == "MXXXVKTL/MQIFVKTL"
    assert shown(on(DIMER, known=known, fixed="B")) == "XXIXXXXX/MQIFVKTL"
    assert shown(on(DIMER, "X" * 16, known=known)) == "XXXXXXXX/XXXXXXXX"


def test_a_residue_without_a_letter_cannot_stay():
    unknown = replace(DIMER, sequence="MXIFVKTL" * 2)
    assert shown(on(unknown, fixed="B1")) == "XXXXXXXX/MXXXXXXX"
    for choices in ({"design": "A1-4"}, {"fixed": "B1-4"}):
        message = refused(on, unknown, **choices)
        assert "B2 must be designed, as no letter of it is known" in message
    # In a text it was masked on purpose.
    assert shown(on(DIMER, "MXIFVKTL/MQIFVKTL", design="B1")) == "MXIFVKTL/XQIFVKTL"
    assert "A2 must be designed" in refused(on, DIMER, "MXIFVKTL/MQIFVKTL", fixed="A")


def test_texts_are_chosen_from_by_number():
    assert shown(read("EVQLVES", design="2-3,7")) == "EXXLVEX"
    assert shown(read("EVQLVES", fixed="2-3,7")) == "XVQXXXS"
    assert shown(read("EXQLVES", design="3")) == "EXXLVES"
    assert read("EVX").names == () and read("EVX", design="1").name_of(1) == "2"
    template = on(DIMER)
    assert template.names[:2] == ("A1", "A2") and template.name_of(15) == "B8"


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"design": "A2-4", "fixed": "A4"}, "designed or fixed, but A4 is named as both"),
        ({"design": "C"}, "got 'C'; there are chains A, B"),
        ({"fixed": "A9"}, "chain A has no residue 9; it has 1 to 8, 8 of them"),
        ({"design": "A5-2"}, "a range must run forwards, got 'A5-2'"),
        ({"tied": "A1"}, "must be joined by '=', as in A10=B10; got 'A1'"),
        ({"tied": "A1-3=B1-2"}, "but its parts have 3 and 2 residues"),
        ({"tied": "A1-2=A2-3"}, "in one group of tied ones, but A2 is in two"),
        ({"tied": "A1=A1"}, "A1 must be tied to another residue than itself"),
        ({"tied": "A1=B1*heavy"}, "a weight in 'A1=B1*heavy' must be a number, got 'heavy'"),
        ({"symmetric": "A,B", "tied": "A1=A2"}, "but A1 is in two"),
        ({"symmetric": "A"}, "a homomer must have two chains or more, got A"),
        ({"symmetric": "A,C"}, "there is no chain 'C' here; there are chains A, B"),
        ({"symmetric": "A,B", "design": "A1", "fixed": "B1"}, "A1 and B1 are tied: both"),
        ({"omit": "B"}, "omitted letters: letters must be among"),
        ({"omit": AMINO_ACIDS}, "must leave a token at every position, got none"),
        ({"rules": {"A3": ""}}, "rule 'A3': a rule must say something"),
        ({"rules": {"A9": "W"}}, "rule 'A9': chain A has no residue 9"),
        ({"rules": {"A3": "W:x"}}, "the bias in 'W:x' must be a number, got 'x'"),
        ({"rules": {"A3": "W:inf"}}, "the bias in 'W:inf' must be a number"),
    ],
)
def test_mistakes_are_named(choices, message):
    assert message in refused(on, DIMER, **choices)


# ----- What is tied -------------------------------------------------------------------------


def test_chains_of_a_homomer_are_tied_number_by_number():
    template = on(DIMER, symmetric="B,A")
    assert template.length == 8
    assert template.tied.tolist() == [*range(8), *range(8)]
    assert template.names == tuple(f"A{k}" for k in range(1, 9))
    tokens = np.arange(8)
    assert template.text(tokens) == "ACDEFGHI/ACDEFGHI"
    assert shown(template.untied()) == "XXXXXXXX/XXXXXXXX"
    assert template.untied().length == 16


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({"design": "A2-3"}, "MXXFVKTL/MXXFVKTL"),  # what is tied to it is designed with it
        ({"fixed": "A2-3"}, "XQIXXXXX/XQIXXXXX"),  # and stays with it
        ({"design": "A2,B3"}, "MXXFVKTL/MXXFVKTL"),
        ({"fixed": "A2", "design": "B3"}, "MQXFVKTL/MQXFVKTL"),
    ],
)
def test_tied_residues_are_designed_and_fixed_together(choices, text):
    assert shown(on(DIMER, symmetric="A,B", **choices)) == text


def test_tied_residues_that_stay_have_one_letter():
    other = replace(DIMER, sequence="MQIFVKTL" + "MQLFVKTL")
    message = refused(on, other, symmetric="A,B", design="A1")
    assert "where they stay, but A3 is I, B3 is L; name one to be designed" in message
    assert shown(on(other, symmetric="A,B", design="A3")) == "MQXFVKTL/MQXFVKTL"
    assert shown(on(other, symmetric="A,B")) == "XXXXXXXX/XXXXXXXX"
    assert "A3 is I, B3 is L" in refused(on, other, symmetric="A,B", fixed="A,B")
    # As in ProteinMPNN, one that is unmodelled decides for all of them.
    known = np.arange(16) != 10
    assert shown(on(other, known=known, symmetric="A,B")) == "XXLXXXXX/XXLXXXXX"
    assert shown(read("EVXXQ", tied="2=3")) == "EVVXQ"


def test_homomers_with_other_numbers_are_refused_with_a_way_out():
    shifted = replace(DIMER, numbers=np.array([*range(1, 9), *range(2, 10)]))
    message = refused(on, shifted, symmetric="A,B")
    assert "A1 has no counterpart in chain B; tie what agrees" in message
    assert on(shifted, tied="A2-8=B2-8").length == 9
    assert on(shifted, tied="A=B").length == 8  # by place
    assert "B9 has no counterpart in chain A" in refused(
        on, shifted.part([*range(1, 8), *range(8, 16)]), symmetric="A,B"
    )


# ----- What may stand where -----------------------------------------------------------------


def letters_at(template, position: int) -> str:
    row = template.permitted[template.kind[position]]
    return "".join(np.array(list(AMINO_ACIDS))[row])


def test_rules_allow_leave_out_and_favour(tmp_path):
    file = tmp_path / "rules.txt"
    file.write_text(
        "# residues, then letters\nA1-2\tAVL\nA2 -L W:1.5  DE:-2 # twice\n\n* -C\n*  K:0.5\n"
    )
    template = on(DIMER, rules=file, omit="P")
    assert letters_at(template, 0) == "ALV"
    assert letters_at(template, 1) == "AV"
    assert letters_at(template, 5) == AMINO_ACIDS.replace("C", "").replace("P", "")
    bias = {AMINO_ACIDS[k]: template.bias[1, k] for k in np.flatnonzero(template.bias[1])}
    assert bias == {"W": 1.5, "D": -2.0, "E": -2.0, "K": 0.5}
    assert set(np.flatnonzero(template.bias[0])) == {AMINO_ACIDS.index("K")}
    same = on(DIMER, rules=dict(said[1:] for said in read_rules(file)[:2]))
    assert letters_at(same, 1) == "AV"
    broken = tmp_path / "broken.txt"
    broken.write_text("A1 AVL\n\nA99 W\n")
    assert f"{broken}, line 3: chain A has no residue 99" in refused(on, DIMER, rules=broken)


def test_of_tied_residues_bias_is_the_mean_and_restrictions_add_up():
    rules = {"A1": "AVL W:1", "B1": "-V W:2", "A3": "D:3"}
    template = on(DIMER, symmetric="A,B", rules=rules)
    assert letters_at(template, 0) == "AL"
    assert template.bias[0, AMINO_ACIDS.index("W")] == 1.5
    assert template.bias[2, AMINO_ACIDS.index("D")] == 1.5
    assert "got none at A1" in refused(on, DIMER, symmetric="A,B", rules={"A1": "A", "B1": "V"})


def test_bias_moves_odds_by_as_many_nats_at_temperature_one():
    model = models.load("sapiens-heavy", device="cpu")
    text, where = "EVQLVESXGG", np.array([7])
    for temperature in (1.0, 0.5):
        plain, moved = (
            np.log(
                np.asarray(one.rows(one.template.given[None], Readouts.same(1, where)).dense())[0]
            )
            for one in (
                model.oracle(model.template(text, **choices), temperature=temperature)
                for choices in ({}, {"rules": {"8": "W:2 C:-1"}})
            )
        )
        change = (moved - plain) - (moved - plain)[0]
        assert change[AMINO_ACIDS.index("W")] == pytest.approx(2 / temperature, abs=1e-4)
        assert change[AMINO_ACIDS.index("C")] == pytest.approx(-1 / temperature, abs=1e-4)
        assert np.abs(np.delete(change, [AMINO_ACIDS.index(k) for k in "WC"])).max() < 1e-4


def test_a_template_of_another_backbone_is_refused():
    model = models.load("proteinmpnn", backbone="1ubi", device="cpu")
    message = refused(model.oracle, on(DIMER))
    assert "must be of backbone '1ubi', which has 76 residues; got one of 16" in message


# ----- Templates ----------------------------------------------------------------------------


def test_templates_refuse_ties_and_bias_that_make_no_sense():
    template = PROTEIN.template("AXXC")
    assert "given alike, or all masked; 2 and 1 are not" in refused(template.tie, [[0, 1]])
    assert "tied once: name all groups" in refused(template.tie([[1, 2]]).tie, [[1, 2]])
    assert "but 2 is in two" in refused(template.tie, [[1, 2], [2, 1]])
    assert "bias must be a number of nats, at most 1,000,000 either way, got inf" in refused(
        template.favour, [1], "A", np.inf
    )
    tied = template.tie([[1, 2]])
    assert tied.fill([[0, 3, 1]]).tolist() == [[0, 3, 3, 1]]
    assert tied.masked.tolist() == [1]
    assert np.array_equal(tied.given, [0, MASK, 1])
