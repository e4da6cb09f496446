"""Hugging Face models of proteins: no residue is lost, and masks are those of other models."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import counterprobe as cp
from counterprobe.models.letters import AMINO_ACIDS
from counterprobe.models.proteins.tokenizers import letters_of
from counterprobe.models.transformers import LanguageModel
from counterprobe.oracles import Readouts
from counterprobe.rows import to_numpy

ESM = (
    "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <null_1> <mask>"
).split()
PROTBERT = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] L A G V E S I K R D T P N Q F Y M H C W X U B Z O".split()
)
SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.6,
}


def esm2(folder: Path) -> LanguageModel:
    (folder / "vocab.txt").write_text("\n".join(ESM))
    config = transformers.EsmConfig(
        vocab_size=len(ESM),
        pad_token_id=1,
        mask_token_id=32,
        max_position_embeddings=66,
        position_embedding_type="rotary",
        token_dropout=True,
        **SMALL,
    )
    tokenizer = transformers.EsmTokenizer(str(folder / "vocab.txt"))
    return LanguageModel(transformers.EsmForMaskedLM(config).eval(), tokenizer)


def esmc(folder: Path) -> LanguageModel:
    config = transformers.EsmcConfig(max_position_embeddings=66, **SMALL)
    model = transformers.EsmcForMaskedLM(config).eval()
    return LanguageModel(model, transformers.EsmcTokenizer())


def protbert(folder: Path) -> LanguageModel:
    """Its own way wants spaces between letters, and makes one unknown word of a sequence."""
    (folder / "vocab.txt").write_text("\n".join(PROTBERT))
    config = transformers.BertConfig(vocab_size=len(PROTBERT), max_position_embeddings=66, **SMALL)
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), do_lower_case=False)
    return LanguageModel(transformers.BertForMaskedLM(config).eval(), tokenizer)


KINDS = {"esm2": esm2, "esmc": esmc, "protbert": protbert}


@pytest.fixture(params=list(KINDS), scope="module")
def protein(request, tmp_path_factory) -> LanguageModel:
    """Return a model with the tokenizer that it really has, and random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return KINDS[request.param](tmp_path_factory.mktemp(request.param))


def drawn(model: LanguageModel, text: str, **options) -> list[str]:
    found = cp.infill(
        model, text, count=40, seed=3, sampler="one-batch",
        progress=False, temperature=20.0, **options,
    )  # fmt: skip
    assert found.texts is not None
    return list(found.texts)


@pytest.mark.parametrize("mask", ["X", "_", "*", "[MASK]", "<mask>"])
def test_every_mask_is_one_position_and_everything_else_comes_back(protein, mask):
    template = protein.template(f"MKT{mask}{mask}AY")
    assert template.length == 7 and template.masked.tolist() == [3, 4]
    assert template.text(template.given) == "MKTXXAY"
    # The tokenizer's own ids, framed as it frames them.
    frame = protein.tokenizer.encode("M")
    expected = protein.tokenizer.convert_tokens_to_ids(list("MKT"))
    expected += [protein.mask_id] * 2 + protein.tokenizer.convert_tokens_to_ids(list("AY"))
    assert template.fill(template.given).tolist() == [[frame[0], *expected, frame[-1]]]
    for text in drawn(protein, f"MKT{mask}{mask}AY"):
        assert len(text) == 7 and text.startswith("MKT") and text.endswith("AY")


def test_only_amino_acids_are_drawn_and_allowed_letters_one_by_one(protein):
    letters = set("".join(drawn(protein, "X" * 30)))
    assert letters == set(AMINO_ACIDS)
    assert set("".join(drawn(protein, "X" * 30, allowed="ILV"))) == set("ILV")
    assert set("".join(drawn(protein, "X" * 30, allowed=AMINO_ACIDS))) == set(AMINO_ACIDS)
    for text in drawn(protein, "XAX", allowed={0: "KR"}):
        assert text[0] in "KR"
    with pytest.raises(ValueError, match=r"letters must be among ACDEF.*, got 'J'"):
        protein.template("XAX", allowed="AJ")


def test_a_letter_that_is_no_amino_acid_stays_where_it_is_given(protein):
    template = protein.template("AUXBC")
    assert template.length == 5 and template.text(template.given) == "AUXBC"
    for text in drawn(protein, "AUXBC"):
        assert text[:2] == "AU" and text[2] in AMINO_ACIDS and text[3:] == "BC"
    assert "U" in set("".join(drawn(protein, "X" * 40, allowed=AMINO_ACIDS + "U")))
    asked = drawn(protein, "XX" * 15, allowed={1: "U"})
    assert {text[1] for text in asked} == {"U"} and "U" not in {text[0] for text in asked}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ACJ[MASK]DEF", "got 'J' as letter 3$"),
        ("ACX?", r"got '\?' as letter 4$"),
        ("MKt", "got 't' as letter 3; use capital letters"),
        ("MK-T", "got '-' as letter 3$"),
        ("<pad>", "got '<' as letter 1$"),
        (" ", "at least one letter or mask"),
    ],
)
def test_an_unknown_letter_is_refused_by_name_and_place(protein, text, said):
    with pytest.raises(ValueError, match=said):
        protein.template(text)


def test_rows_are_those_of_the_network(protein):
    template = protein.template("MKXAYX")
    oracle = protein.oracle(template)
    rows = to_numpy(oracle.rows(template.given[None], Readouts.same(1, [2, 5])).dense())
    ids = torch.from_numpy(template.fill(template.given))
    with torch.no_grad():
        logits = protein.model(ids, attention_mask=torch.ones_like(ids)).logits[0].double()
    columns = protein.tokenizer.convert_tokens_to_ids(list(AMINO_ACIDS))
    expected = torch.softmax(logits[[3, 6]][:, columns], dim=1)  # after the first special token
    np.testing.assert_allclose(rows, expected.numpy(), atol=1e-5)


def test_a_folder_reads_alike(protein, tmp_path):
    protein.model.save_pretrained(tmp_path)
    protein.tokenizer.save_pretrained(tmp_path)
    loaded = cp.models.load(tmp_path, device="cpu")
    template, again = protein.template("MKXAYX"), loaded.template("MK_AY*")
    assert np.array_equal(again.fill(again.given), template.fill(template.given))
    texts = cp.infill(
        str(tmp_path), "MKTXXAYX", count=3, progress=False, model_options={"device": "cpu"}
    ).texts
    assert all(len(text) == 8 and text[:3] == "MKT" and "X" not in text for text in texts)


def test_a_break_between_chains_is_kept_and_is_no_position(protein):
    mark = {"esm": "<eos>", "esmc": "|", "bert": "[SEP]"}[protein.name]
    template = protein.template(f"MK{mark}XY")
    assert template.length == 4 and template.masked.tolist() == [2]
    assert template.text(template.given) == f"MK{mark}XY"
    with pytest.raises(ValueError, match=r"got 'J' as letter 3$"):
        protein.template(f"MK{mark}J")
    bare = protein.template("MX", add_special_tokens=False)
    assert len(bare.frame) == 2 and bare.text(bare.given) == "MX"


def test_ids_are_read_alike_and_none_is_lost(protein):
    whole = protein.template("AUXC")
    ids = whole.fill(whole.given)[0]
    template = protein.template(ids)
    assert template.length == 4 and template.text(template.given) == "AUXC"
    assert protein.template(ids[1:-1]).length == 4
    for wrong in ([ids], [0.5]):
        with pytest.raises(ValueError, match=r"flat list of integers|masks or special tokens"):
            protein.template(wrong)
    ambiguous = protein.tokenizer.convert_tokens_to_ids("X")
    with pytest.raises(ValueError, match=f"masks or special tokens, got {ambiguous} as number 2"):
        protein.template([int(ids[1]), ambiguous])


def test_further_letters_are_drawn_when_asked_for(protein):
    more = LanguageModel(protein.model, protein.tokenizer, drawn_special=["U"])
    assert more.template("XX").vocab_size == 21
    assert "U" in set("".join(drawn(more, "X" * 40)))


def plain(*words: str, special: tuple[str, ...] = ("[UNK]", "[MASK]")):
    vocabulary = {word: k for k, word in enumerate([*special, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", mask_token="[MASK]"
    )


@pytest.mark.parametrize(
    ("words", "is_protein"),
    [
        ([*AMINO_ACIDS], True),
        ([*AMINO_ACIDS, "X", ".", "-", "<null_1>", "[unused7]"], True),
        ([*AMINO_ACIDS, "the"], False),  # as the vocabulary of a text has capital letters too
        ([*AMINO_ACIDS, "a"], False),
        ([*AMINO_ACIDS[:-1], "X", "U"], False),
        (["C", "N", "O", "Cl", "(", ")"], False),
    ],
)
def test_a_tokenizer_is_one_of_proteins_by_its_vocabulary(words, is_protein):
    tokenizer = plain(*words)
    assert (letters_of(tokenizer, 1, {0, 1}, len(tokenizer)) is not None) == is_protein
