"""Sapiens: the packaged weights, read without fairseq."""

import sys

import numpy as np
import pytest
import torch
import transformers

import counterprobe as cp
from counterprobe import MASK, testing
from counterprobe.extras import MissingExtra
from counterprobe.models import weights
from counterprobe.models.proteins import sapiens
from counterprobe.models.proteins.sapiens import load_sapiens
from counterprobe.oracles import Readouts

# Trastuzumab.
HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLR"
    "AEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
)
LIGHT = (
    "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYY"
    "CQQHYTTPPTFGQGTKVEIK"
)


@pytest.fixture(scope="module")
def heavy():
    return load_sapiens("heavy", device="cpu")


def single_masks(tokens: np.ndarray) -> np.ndarray:
    states = np.tile(tokens, (len(tokens), 1))
    np.fill_diagonal(states, MASK)
    return states


@pytest.mark.parametrize(("chain", "sequence"), [("heavy", HEAVY), ("light", LIGHT)])
def test_it_knows_antibodies_and_does_not_know_their_shuffles(chain, sequence):
    model = load_sapiens(chain, device="cpu")
    template = model.template(sequence)
    oracle = model.oracle(template)
    shuffled = np.random.default_rng(0).permutation(template.given)
    accuracy = [
        np.mean(oracle.rows(states, Readouts.every_masked(states)).top()[0] == tokens)
        for tokens in (template.given, shuffled)
        for states in [single_masks(tokens)]
    ]
    assert accuracy[0] > 0.7
    assert accuracy[1] < 0.2


def test_logits_are_those_of_a_roberta_of_another_library(heavy):
    config = transformers.RobertaConfig(
        vocab_size=25,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=8,
        intermediate_size=256,
        max_position_embeddings=146,
        type_vocab_size=1,
        pad_token_id=1,
        layer_norm_eps=1e-5,
    )
    other = transformers.RobertaForMaskedLM(config).eval()
    names = {
        "embed": "roberta.embeddings.word_embeddings",
        "places": "roberta.embeddings.position_embeddings",
        "norm": "roberta.embeddings.LayerNorm",
        "head_dense": "lm_head.dense",
        "head_norm": "lm_head.layer_norm",
        "head": "lm_head.decoder",
    }
    inner = {
        "q_proj": "attention.self.query",
        "k_proj": "attention.self.key",
        "v_proj": "attention.self.value",
        "out_proj": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "fc1": "intermediate.dense",
        "fc2": "output.dense",
        "final_layer_norm": "output.LayerNorm",
    }
    for k in range(4):
        for mine, theirs in inner.items():
            names[f"layers.{k}.{mine}"] = f"roberta.encoder.layer.{k}.{theirs}"
    with torch.no_grad():
        other.roberta.embeddings.token_type_embeddings.weight.zero_()
        for name, value in heavy.network.named_parameters():
            part, kind = name.rsplit(".", 1)
            other.get_submodule(names[part]).get_parameter(kind).copy_(value)
        template = heavy.template(HEAVY[:30] + "X" * 10 + HEAVY[40:])
        ids = torch.from_numpy(template.fill(template.given))
        torch.testing.assert_close(heavy.network(ids), other(ids).logits, atol=2e-5, rtol=1e-5)


def test_it_passes_the_conformance_suite_of_oracles(heavy):
    testing.check_oracle(heavy.oracle("EVQLVXXXGGLVQPXG"))


def test_infilling_keeps_the_context_and_spells_residues(heavy):
    template = heavy.template(HEAVY[:99] + "X" * 8 + HEAVY[107:], allowed={99: "AG", 100: "W"})
    oracle = heavy.oracle(template)
    run = cp.run.Run(oracle, given=template.given)
    result = cp.samplers.EntropyBounded(1.0)(run, cp.Streams.from_seed(3))
    text = template.text(result.tokens)
    assert text[:99] == HEAVY[:99] and text[107:] == HEAVY[107:]
    assert text[99] in "AG" and text[100] == "W"
    assert set(text) <= set(sapiens.AMINO_ACIDS)
    again = cp.samplers.EntropyBounded(1.0)(
        cp.run.Run(oracle, given=template.given), cp.Streams.from_seed(3)
    )
    assert template.text(again.tokens) == text


def test_sequences_do_not_depend_on_their_company(heavy):
    template = heavy.template(HEAVY[:50] + "X" * 6 + HEAVY[56:])
    oracle = heavy.oracle(template)

    def drawn(count):
        return cp.sample(oracle, "sequential", count, given=template.given).sequences

    assert np.array_equal(drawn(9)[:2], drawn(2))


def test_sequences_that_do_not_fit_are_refused(heavy):
    assert (heavy.max_length, load_sapiens("light", device="cpu").max_length) == (142, 126)
    with pytest.raises(ValueError, match=r"at most 142 letters.*got 143"):
        heavy.template("A" * 143)
    heavy.oracle("A" * 141 + "X")
    with pytest.raises(ValueError, match="got 'B' as letter 1"):
        heavy.template("BVQL")
    with pytest.raises(ValueError, match="chain must be 'heavy' or 'light', got 'kappa'"):
        load_sapiens("kappa")


def test_the_package_is_never_imported(heavy):
    assert "sapiens" not in sys.modules
    assert "fairseq" not in sys.modules


def test_a_missing_package_is_asked_for_by_name_and_version(monkeypatch):
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match=r"sapiens-heavy needs sapiens: pip install --no-deps sapiens==1.0.3"
    ):
        load_sapiens("heavy")
