"""Templates: frames, slots, what is allowed, and the way there and back."""

import numpy as np
import pytest

from counterprobe import MASK
from counterprobe.models.letters import AMINO_ACIDS, Letters
from counterprobe.models.template import Template

PROTEIN = Letters(AMINO_ACIDS, tuple(range(4, 24)), 24, (0,), (2,))


def test_special_tokens_stay_in_the_frame_and_everything_else_is_a_position():
    template = Template.from_ids([101, 5, 103, 102, 7, 103, 102], 103, range(100))
    assert template.slots.tolist() == [1, 2, 4, 5]
    assert template.given.tolist() == [5, MASK, 7, MASK]
    assert template.masked.tolist() == [1, 3]
    assert (template.length, template.vocab_size, template.is_complete) == (4, 100, False)
    filled = template.fill([[5, 8, 7, MASK], [1, 2, 3, 4]])
    assert filled.tolist() == [[101, 5, 8, 102, 7, 103, 102], [101, 1, 2, 102, 3, 4, 102]]


def test_the_mask_is_never_a_token_and_tokens_count_without_it():
    template = Template.blank(3, range(6), 2)
    assert template.vocabulary.tolist() == [0, 1, 3, 4, 5]
    assert template.fill([[2, MASK, 0]]).tolist() == [[3, 2, 0]]


@pytest.mark.parametrize(
    "sequence", ["EVXXL", "EV[MASK][MASK]L", "EV<mask>XL", " EV__\nL ", "EV**L"]
)
def test_every_spelling_of_the_mask_is_read(sequence):
    template = PROTEIN.template(sequence)
    assert template.text(template.given) == "EVXXL"
    assert template.masked.tolist() == [2, 3]
    assert template.fill(template.given).tolist() == [[0, 7, 21, 24, 24, 13, 2]]


def test_texts_come_back_from_tokens():
    template = PROTEIN.template("XXX")
    assert template.texts([[0, 1, 2], [19, MASK, 17]]) == ["ACD", "YXV"]


@pytest.mark.parametrize(
    ("allowed", "sets"),
    [
        ("AG", ["AG", "AG", "AG"]),
        (["A", "GV"], ["AGV", "AGV", "AGV"]),
        ({1: "AG"}, [AMINO_ACIDS, "AG", AMINO_ACIDS]),
        ({0: ["A", 5], 2: 6}, ["AC", AMINO_ACIDS, "D"]),
        ([["A"], ["C", "D"], "EF"], ["A", "CD", "EF"]),
        ([4, 5], ["AC", "AC", "AC"]),
    ],
)
def test_allowed_tokens_in_every_form(allowed, sets):
    template = PROTEIN.template("XXX", allowed=allowed)
    named = ["".join(np.array(list(AMINO_ACIDS))[template.permitted[k]]) for k in template.kind]
    assert named == sets


def test_a_table_of_allowed_tokens_is_taken_as_it_is():
    table = np.random.default_rng(1).random((3, 20)) < 0.5
    template = PROTEIN.template("XXX", allowed=table)
    assert np.array_equal(template.permitted[template.kind], table)
    assert template.has_restrictions
    assert not PROTEIN.template("XXX").has_restrictions
    assert not PROTEIN.template("XXX").allow(np.ones((3, 20), dtype=bool)).has_restrictions


def test_restrictions_add_up():
    template = PROTEIN.template("XXX", allowed="ACDE").allow({0: "DEFG", 2: "A"})
    sets = template.permitted[template.kind]
    assert [AMINO_ACIDS[k] for k in np.flatnonzero(sets[0])] == ["D", "E"]
    assert sets.sum(axis=1).tolist() == [2, 4, 1]


@pytest.mark.parametrize(
    ("allowed", "problem"),
    [
        ("", "leave a token at every position, got none at number 1, from 1"),
        ([], "leave a token at every position, got none at number 1, from 1"),
        ({2: []}, "leave a token at every position, got none at number 3, from 1"),
        ({3: "A"}, r"positions of allowed must lie in 0..2, got 3"),
        ("AB", "letters must be among ACDEFGHIKLMNPQRSTVWY, got 'B'"),
        ([99], "must be in the vocabulary, got id 99"),
        ([["A"], ["C"]], "one collection for each of 3 positions, got 2"),
        (np.ones((2, 20), dtype=bool), r"must have shape \(3, 20\), got \(2, 20\)"),
    ],
)
def test_bad_restrictions_are_refused(allowed, problem):
    with pytest.raises(ValueError, match=problem):
        PROTEIN.template("XXX", allowed=allowed)


@pytest.mark.parametrize(
    ("sequence", "problem"),
    [
        (
            "EVBL",
            "must consist of ACDEFGHIKLMNPQRSTVWY, or X or .MASK. for a mask; got 'B' as letter 3",
        ),
        ("EvQL", "got 'v' as letter 2; use capital letters"),
        ("[MASK]J", "got 'J' as letter 2$"),
        ("", "at least one letter or mask, got none"),
        (None, "must be text, got NoneType"),
    ],
)
def test_letters_that_do_not_exist_are_refused(sequence, problem):
    with pytest.raises(ValueError, match=problem):
        PROTEIN.template(sequence)


def test_a_sequence_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match=r"at most 3 letters.*got 4"):
        PROTEIN.template("AAAX", max_length=3)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (([[1, 2]], 9, range(5)), "flat list of integers"),
        (([1.0], 9, range(5)), "flat list of integers"),
        (([1], 9, []), "vocabulary must hold different ids"),
        (([1], 9, [1, 1]), "2 ids, 1 different"),
        (([1], 9, [9]), "got 0 ids"),
        (([7, 8], 9, range(5)), "a mask or a token of the vocabulary, got neither"),
    ],
)
def test_bad_frames_are_refused(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        Template.from_ids(*arguments)
    with pytest.raises(ValueError, match="length must be at least 1"):
        Template.blank(0, range(3), 3)


@pytest.mark.parametrize(
    "options",
    [{"mask_id": 1}, {"mask_id": 7, "others": {"U": 7}}, {"mask_id": 8, "marks": {"|": 8}}],
)
def test_letters_refuse_a_mask_that_is_one_of_them(options):
    with pytest.raises(ValueError, match="mask_id must be the id of a mask, got"):
        Letters("ABC", (0, 1, 2), **options)


@pytest.mark.parametrize("mask_id", [-1, 3.5, None, "4"])
def test_a_mask_is_a_whole_number(mask_id):
    with pytest.raises(ValueError, match="mask_id must be"):
        Template.from_ids([0, 4, 1], mask_id, range(3))
