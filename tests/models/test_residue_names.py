"""Names of residues: lists as people write them become positions, mistakes are named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterprobe.models.letters import AMINO_ACIDS, Letters
from counterprobe.models.residue_names import Names

PROTEIN = Letters(AMINO_ACIDS, tuple(range(4, 24)), 24, (0,), (2,))


def names(**chains: str) -> Names:
    """Chains with their residues, each a list of numbers."""
    numbers = {chain: said.split() for chain, said in chains.items()}
    counts = [len(one) for one in numbers.values()]
    return Names(
        tuple(n for one in numbers.values() for n in one),
        tuple(numbers),
        np.repeat(np.arange(len(counts)), counts),
        "/".join("X" * count for count in counts),
    )


TWO = names(A="-2 -1 1 2 2A 2B 3 10", B="1 2 3")


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("A1", [2]),
        ("A2A", [4]),
        ("A2a", [4]),
        ("A2-3", [3, 4, 5, 6]),
        ("A2A-2B", [4, 5]),
        ("A2-A3", [3, 4, 5, 6]),
        ("A-2", [0]),
        ("A-2--1", [0, 1]),
        ("A-1-2", [1, 2, 3]),
        ("A3-10", [6, 7]),
        ("B", [8, 9, 10]),
        ("B,A1", [8, 9, 10, 2]),
        (" B2 ,\nA1-2 ", [9, 2, 3]),
        (["B2", "A1-2,A2"], [9, 2, 3]),
        ("*", list(range(11))),
    ],
)
def test_residues_ranges_and_chains(listed, found):
    assert TWO.find(listed).tolist() == found


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("C", "named like A10-25, got 'C'; there are chains A, B"),
        ("C3", "named like A10-25, got 'C3'; there are chains A, B"),
        ("3", "named like A10-25, got '3'"),  # of which chain?
        ("A4", "chain A has no residue 4; it has -2 to 10, 8 of them"),
        ("A1-4", "chain A has no residue 4"),
        ("A2C", "chain A has no residue 2C"),
        ("A3-1", "a range must run forwards, got 'A3-1'"),
        ("A2B-2A", "a range must run forwards"),
        ("A1-B2", "named like A10-25, got 'A1-B2'"),
        ("A1..3", "named like A10-25"),
        ("", "must name at least one, got none"),
        ([3], "named in text, such as '10-25'"),
    ],
)
def test_mistakes_are_named(listed, message):
    with pytest.raises(ValueError, match=r".") as problem:
        TWO.find(listed)
    assert message in str(problem.value)
    assert "\n" not in str(problem.value)


def test_one_chain_needs_no_name():
    one = names(H="1 2 52 52A 53")
    assert one.find("52-53").tolist() == one.find("H52-53").tolist() == [2, 3, 4]
    with pytest.raises(ValueError, match="the sequence has no residue 54; it has 1 to 53"):
        one.find("54")


def test_chains_of_any_name_are_told_apart_or_refused():
    odd = names(A="1 11", A1="1 2", AA="5")
    assert odd.find("AA5").tolist() == [4]
    assert odd.find("A12").tolist() == [3]  # no residue 12 of A
    for listed, hint in (("A1", "A1:"), ("A11", "A1:")):
        with pytest.raises(ValueError, match=f"{listed!r} may mean several .* as in {hint}"):
            odd.find(listed)
    assert odd.find("A:1,A1:,A1:1").tolist() == [0, 2, 3]
    assert odd.find("A1:1-2").tolist() == odd.find("A1:1-A1:2").tolist() == [2, 3]
    unnamed = names(**{"": "1 2 3"})
    assert unnamed.find("2-3").tolist() == [1, 2]


def test_a_text_is_numbered_from_one():
    text = Names.of_text(PROTEIN.template("EVXL[MASK]ESGG"))
    assert text.find("3,5-6").tolist() == [2, 4, 5]
    assert text.sequence == "EVXLXESGG"
    with pytest.raises(ValueError, match="got 'A3'; there are no chains, but residues 1 to 9"):
        text.find("A3")


def test_regions_of_antibodies_are_found_by_their_names():
    heavy = (
        "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYC"
        "SRWGGDGFYAMDYWGQGTLVTVSS"
    )
    text = Names.of_text(PROTEIN.template(heavy))
    found = "".join(heavy[k] for k in text.find("CDR-H3"))
    assert found == "SRWGGDGFYAMDY"
    assert set(text.find("CDR-H1,CDR-H3")) > set(text.find("CDR-H3"))


@settings(derandomize=True, database=None, deadline=None, max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(["A", "B", "AA", "H1", "7", "x"]),
        st.lists(st.tuples(st.integers(-9, 30), st.sampled_from(" AB")), min_size=1, unique=True),
        min_size=1,
    ),
    st.data(),
)
def test_every_residue_and_range_is_found_by_its_name(chains, data):
    """With a colon behind the chain nothing is ambiguous, whatever a file calls its chains."""
    spelled = {c: [f"{n}{i}".strip() for n, i in found] for c, found in chains.items()}
    every = names(**{chain: " ".join(one) for chain, one in spelled.items()})
    chain = data.draw(st.sampled_from(sorted(spelled)))
    mine = every.of_chain(chain)
    low = data.draw(st.integers(0, len(mine) - 1))
    high = data.draw(st.integers(low, len(mine) - 1))
    first, last = spelled[chain][low], spelled[chain][high]
    assert every.find(f"{chain}:{first}").tolist() == [mine[low]]
    assert every.find(f"{chain}:{first}-{chain}:{last}").tolist() == mine[low : high + 1].tolist()
    assert every.find(f"{chain}:").tolist() == mine.tolist()
    assert every.label(mine[low]) == chain + first
