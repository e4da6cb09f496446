"""AntiBERTy: the packaged weights in a plain BERT."""

import sys

import numpy as np
import pytest

from counterprobe import MASK
from counterprobe.extras import MissingExtra
from counterprobe.models import weights
from counterprobe.models.proteins.antiberty import load_antiberty
from counterprobe.oracles import Readouts

# Trastuzumab, heavy chain.
HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLR"
    "AEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
)


@pytest.fixture(scope="module")
def model():
    return load_antiberty(device="cpu")


def test_it_knows_antibodies_and_does_not_know_their_shuffles(model):
    template = model.template(HEAVY)
    oracle = model.oracle(template, row_error=1e-5)
    shuffled = np.random.default_rng(0).permutation(template.given)
    read = np.arange(0, 120, 12)
    right = []
    for tokens in (template.given, shuffled):
        states = np.tile(tokens, (len(read), 1))
        states[np.arange(len(read)), read] = MASK
        rows = oracle.rows(states, Readouts.every_masked(states))
        right.append(int((rows.top()[0] == tokens[read]).sum()))
    assert right[0] >= 7  # 101 of 120 over all positions
    assert right[1] <= 3


def test_a_loop_is_filled_with_residues(model):
    template = model.template("EVQLVESGGG[MASK]VQ")
    oracle = model.oracle(template)
    assert 0 < oracle.row_error < 1e-4
    rows = oracle.rows(template.given[None], Readouts.same(1, [10]))
    assert template.text(np.where(template.given == MASK, rows.top()[0], template.given)) == (
        "EVQLVESGGGLVQ"
    )


def test_the_package_is_never_imported_and_asked_for_when_missing(model, monkeypatch):
    assert "antiberty" not in sys.modules
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'counterprobe\[antiberty\]'"):
        load_antiberty()


def test_sequences_that_do_not_fit_are_refused(model):
    with pytest.raises(ValueError, match=r"at most 510 letters.*got 511"):
        model.template("A" * 511)
