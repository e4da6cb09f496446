"""RXNMapper: reactions are read as its package reads them, and its network knows chemistry."""

import ast
import re

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe import MASK, testing
from counterprobe.extras import MissingExtra
from counterprobe.models import weights
from counterprobe.models.reactions import load_rxnmapper
from counterprobe.oracles import Readouts
from counterprobe.rows import to_numpy

REACTIONS = (
    "CC(=O)O.OCCc1ccccc1>>CC(=O)OCCc1ccccc1",
    "O=C(Cl)c1ccccc1.NCC1CCCCC1>>O=C(NCC1CCCCC1)c1ccccc1",
    "BrC/C=C/[C@@H](C)[N+](=O)[O-].[Na+].[I-]>>IC/C=C/[C@@H](C)[N+](=O)[O-]",
    "C%10CCCC%10.CC#N>>C1CC[Si](C)(C)C1",
)


@pytest.fixture(scope="module")
def rxnmapper():
    return load_rxnmapper(device="cpu")


def package_pattern() -> re.Pattern[str]:
    """What the package splits a reaction by, from its source: importing it needs RDKit."""
    file = weights.package_folder("rxnmapper", "", "") / "smiles_utils.py"
    for line in ast.parse(file.read_text()).body:
        if isinstance(line, ast.Assign) and line.targets[0].id == "SMI_REGEX_PATTERN":
            return re.compile(ast.literal_eval(line.value))
    raise AssertionError("the package has no pattern any more")


@pytest.mark.parametrize("reaction", REACTIONS)
def test_a_reaction_is_read_as_the_package_reads_it(rxnmapper, reaction):
    template = rxnmapper.template(reaction)
    words = package_pattern().findall(reaction)
    symbols = rxnmapper.letters.symbols
    assert [symbols[token] for token in template.given] == words
    assert template.text(template.given) == reaction
    assert template.length == len(words) and len(template.frame) == len(words) + 2


def test_masks_are_written_out_and_a_star_is_an_atom(rxnmapper):
    template = rxnmapper.template("CC[MASK]_<mask>C*")
    assert template.masked.tolist() == [2, 3, 4] and template.length == 7
    assert template.text(template.given) == "CC[MASK][MASK][MASK]C*"
    halogens = rxnmapper.template("C_", allowed="ClBrFI")
    drawn = cp.infill(rxnmapper, halogens, count=20, progress=False, sampler="one-batch")
    assert {text[1:] for text in drawn.texts} <= {"Cl", "Br", "F", "I"}
    assert rxnmapper.template("C" * 510).length == 510


@pytest.mark.parametrize(
    ("reaction", "problem"),
    [
        ("CC[Xx]C", r"the model's 576 letters, or \[MASK\] or <mask> for a mask; got '\[Xx\]' as"),
        ("CCX", "got 'X' as letter 3$"),
        ("CC(=O", None),  # no parser of molecules: what is missing may be to fill in
        ("C" * 511, "at most 510 letters"),
    ],
)
def test_what_is_no_reaction_is_refused(rxnmapper, reaction, problem):
    if problem is None:
        assert rxnmapper.template(reaction).length == 5
        return
    with pytest.raises(ValueError, match=problem):
        rxnmapper.template(reaction)
    with pytest.raises(ValueError, match=r"letters must be among the model's 576 letters, got"):
        rxnmapper.template("C_", allowed="ClX")


def test_it_names_what_is_masked_and_not_what_is_shuffled(rxnmapper):
    tokens = rxnmapper.template(REACTIONS[0]).given
    oracle = rxnmapper.oracle(REACTIONS[0], row_error=1e-5)
    shares = []
    for shown in (tokens, np.random.default_rng(0).permutation(tokens)):
        states = np.tile(shown, (len(shown), 1))
        np.fill_diagonal(states, MASK)
        rows = oracle.rows(states, Readouts.every_masked(states))
        shares.append((rows.top()[0] == shown).mean())
    assert shares[0] > 0.9 > 0.6 > shares[1]


def test_rows_are_those_of_the_network(rxnmapper):
    template = rxnmapper.template("CC(=O)[MASK]>>[MASK]C")
    oracle = rxnmapper.oracle(template)
    rows = to_numpy(oracle.rows(template.given[None], Readouts.same(1, template.masked)).dense())
    ids = torch.from_numpy(template.fill(template.given))
    with torch.no_grad():
        logits = rxnmapper.network(ids).logits[0].double()
    logits = logits[template.slots[template.masked]][:, template.vocabulary.copy()]
    np.testing.assert_allclose(rows, torch.softmax(logits, dim=1).numpy(), atol=1e-5)


def test_it_passes_the_conformance_suite_of_oracles(rxnmapper):
    testing.check_oracle(rxnmapper.oracle("CC(=O)[MASK]CC[MASK]"))


def test_a_missing_package_is_asked_for(monkeypatch):
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"rxnmapper needs rxnmapper: pip install .*no-deps"):
        load_rxnmapper()
