import re

import numpy as np
import pytest

from counterprobe.models.proteins import antibody_numbering
from counterprobe.models.proteins.antibody_numbering import is_region, positions_of

HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDT"
    "AVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
)
LIGHT = (
    "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHY"
    "TTPPTFGQGTKVEIK"
)
# Trastuzumab's loops as IMGT delimits them.
LOOPS = {
    "CDR-H1": "GFNIKDTY",
    "CDR-H2": "IYPTNGYT",
    "CDR-H3": "SRWGGDGFYAMDY",
    "CDR-L1": "QDVNTA",
    "CDR-L2": "SAS",
    "CDR-L3": "QQHYTTPPT",
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("joint", ["/", "", "GGGGSGGGGSGGGGS", "/AAAAAAAAAA/"])
def test_loops_of_trastuzumab(name: str, joint: str) -> None:
    both = HEAVY + joint + LIGHT
    letters = both.replace("/", "")
    assert "".join(letters[k] for k in positions_of(name, both)) == LOOPS[name]
    turned = LIGHT + joint + HEAVY
    letters = turned.replace("/", "")
    assert "".join(letters[k] for k in positions_of(name, turned)) == LOOPS[name]


@pytest.mark.parametrize("mask", ["X", "_", "*"])
def test_a_masked_loop_is_found_where_it_was(mask: str) -> None:
    where = positions_of("CDR-H3", HEAVY)
    masked = "".join(mask if k in where else letter for k, letter in enumerate(HEAVY))
    assert np.array_equal(positions_of("CDR-H3", masked), where)


def test_frameworks_and_loops_share_out_a_domain() -> None:
    names = ["FR-L1", "CDR-L1", "FR-L2", "CDR-L2", "FR-L3", "CDR-L3", "FR-L4"]
    found = np.concatenate([positions_of(name, LIGHT) for name in names])
    assert np.array_equal(found, np.arange(len(LIGHT)))


def test_names_are_read_in_any_case() -> None:
    assert is_region("cdrh3") and is_region("CDR-H3") and is_region("fr-l4")
    for other in ("CDR-H4", "CDR-X1", "FR-H5", "A10-25", "H3", "CDR", ""):
        assert not is_region(other)
    assert np.array_equal(positions_of("cdrh3", HEAVY), positions_of("CDR-H3", HEAVY))


@pytest.mark.parametrize(
    ("name", "sequence", "said"),
    [
        ("CDR-H4", HEAVY, "CDR-H1 to CDR-H3"),
        ("CDR-L1", HEAVY, "needs a light chain, but only a heavy one was"),
        ("CDR-H1", LIGHT, "needs a heavy chain, but only a light one was"),
        ("CDR-H1", "ACDEFGHIKLMNPQRSTVWY" * 5, "but no antibody domain at all was recognised"),
        ("CDR-H1", "EVQL", "but no antibody domain at all was recognised"),
        ("CDR-H3", f"{HEAVY}/{HEAVY}", "the sequence has 2 heavy chains"),
    ],
)
def test_what_is_not_there_is_said(name: str, sequence: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        positions_of(name, sequence)


def test_without_the_package_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "immunum", None)
    with pytest.raises(ImportError, match=r"counterprobe\[antibodies\]"):
        antibody_numbering.positions_of("CDR-H3", HEAVY)
