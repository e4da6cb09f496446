"""``model.generate`` with our rules, on real models of transformers with random weights."""

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import norm
from transformers import GenerationConfig

import counterprobe as cp
from counterprobe.integrations.transformers import (
    UnmaskingOutput,
    generate,
    write_folder,
)
from counterprobe.models.transformers import LanguageModel
from small_language import WORDS, Counted, bert_tokenizer, generating_bert, generating_llada

# Said of every call without max_new_tokens, which masks need not.
pytestmark = pytest.mark.filterwarnings("ignore:Using the model-agnostic default")

TEXT = "paris [MASK] the [MASK] [MASK] [MASK] ."


@pytest.fixture(scope="module")
def model():
    return generating_bert(seed=3)


@pytest.fixture(scope="module")
def tokenizer():
    return bert_tokenizer()


@pytest.fixture(scope="module")
def ids(tokenizer):
    return torch.tensor([tokenizer.encode(TEXT)])


def drawn(model, ids, tokenizer, **options):
    with Counted(model) as counted:
        out = model.generate(
            ids,
            custom_generate=generate,
            processing_class=tokenizer,
            return_dict_in_generate=True,
            **options,
        )
    assert isinstance(out, UnmaskingOutput)
    assert out.evaluations == counted.states
    return out


# One of each kind: rows, candidates, batches fixed before, probes, verification, masking again.
@pytest.mark.parametrize(
    ("sampler", "settings"),
    [
        ("entropy-bounded", {"gamma": 0.5}),
        ("maskgit", {"steps": 3}),
        ("random-balanced", {"batches": 2}),
        ("sequential", {"order": "entropy"}),
        ("punt", {}),
        ("dapd", {"graph": "attention"}),
        ("lookum", {}),
        ("assd", {}),
        ("wino", {}),
        ("packed", {}),
        ("auto", {}),
    ],
)
def test_the_text_is_that_of_infill_and_every_state_is_counted(
    sampler, settings, model, ids, tokenizer
):
    out = drawn(model, ids, tokenizer, sampler=sampler, settings=settings, seed=7)
    alone = cp.infill(
        (model, tokenizer), TEXT, sampler=sampler, seed=7, progress=False, **settings
    )
    assert tokenizer.decode(out.sequences[0], skip_special_tokens=True) == alone.texts[0]
    assert out.batches[0].ledger == alone.ledger
    kept = ids != tokenizer.mask_token_id
    assert torch.equal(out.sequences[kept], ids[kept])


def test_without_more_it_returns_ids_as_generate_does(model, ids, tokenizer):
    out = model.generate(ids, custom_generate=generate, processing_class=tokenizer)
    assert isinstance(out, torch.Tensor) and out.dtype == torch.long and out.shape == ids.shape
    assert not set(out[0, 1:-1].tolist()) & set(tokenizer.all_special_ids)


def test_rules_that_compare_no_probes_cost_no_measuring(model, ids, tokenizer):
    out = drawn(model, ids, tokenizer, sampler="one-batch")
    assert out.evaluations == 1
    fresh = copy.deepcopy(model)  # whose rows were not compared yet
    spent = [
        drawn(fresh, ids, tokenizer, sampler="punt").batches[0].measuring.evaluations
        for _ in range(2)
    ]
    assert spent[0] > 0 == spent[1]


def test_a_structure_draws_here(model, ids, tokenizer):
    known = cp.models.LanguageModel(model, tokenizer)
    structure = cp.discover(known.oracle(TEXT), mode="soft", given=known.template(TEXT).given)
    out = drawn(model, ids, tokenizer, structure=structure, settings={"batches": 2})
    alone = cp.infill((model, tokenizer), TEXT, structure=structure, batches=2, progress=False)
    assert np.array_equal(out.batches[0].sequences, alone.sequences)


def test_sequences_that_are_returned_together_differ_and_prompts_keep_their_padding(
    model, tokenizer
):
    tokenizer.padding_side = "left"
    both = tokenizer(
        ["a cat [MASK] on [MASK]", "[MASK] [MASK]"], padding=True, return_tensors="pt"
    )
    out = drawn(
        model,
        both["input_ids"],
        tokenizer,
        attention_mask=both["attention_mask"],
        token_type_ids=None,
        num_return_sequences=4,
        sampler="sequential",
    )
    assert out.sequences.shape == (8, both["input_ids"].shape[1])
    assert len({tuple(row) for row in out.sequences[:4].tolist()}) > 1
    alone = cp.infill(
        (model, tokenizer), "[MASK] [MASK]", sampler="sequential", count=4, progress=False
    )
    short = [tokenizer.decode(row, skip_special_tokens=True) for row in out.sequences[4:]]
    assert tuple(short) == alone.texts
    assert (out.sequences[4:, :3] == tokenizer.pad_token_id).all()


@pytest.mark.parametrize("sampler", ["sequential", "entropy-bounded", "auto"])
def test_a_prompt_is_drawn_the_same_whatever_stands_beside_it(model, tokenizer, sampler):
    texts = {
        "A": "paris [MASK] the [MASK] [MASK] [MASK] .",
        "B": "a cat [MASK] [MASK] [MASK] [MASK] [MASK]",
        "C": "[MASK] cat [MASK] [MASK] [MASK] [MASK] [MASK]",
    }

    def rows(names, times=1):
        prompts = torch.tensor([tokenizer.encode(texts[name]) for name in names])
        out = drawn(model, prompts, tokenizer, sampler=sampler, num_return_sequences=times, seed=4)
        assert out.sequences.shape == (len(names) * times, prompts.shape[1])
        return [tuple(row) for row in out.sequences.tolist()]

    first, b, second, c = rows("ABAC")
    assert first != second, "equal prompts differ, neighbours or not"
    assert rows("CAAB") == [c, first, second, b]
    assert rows("A") == [first] and rows("B") == [b] and rows("C") == [c]
    assert rows("A", times=2) == [first, second]
    assert rows("AB", times=2)[2] == b
    twice = rows("ABA", times=2)
    assert twice[:2] == [first, second] and len({*twice[:2], *twice[4:]}) > 2


@pytest.mark.statistical
def test_different_prompts_agree_on_no_more_tokens_than_independent_draws(
    model, tokenizer, seed_of, false_alarms
):
    """Twenty pairs of prompts, five tokens each: agreement higher by 0.17 is seen."""
    rng = np.random.default_rng(seed_of(0))
    words = [word for word in tokenizer.get_vocab() if word.isalpha()]
    texts = [" ".join([*rng.choice(words, 3), *["[MASK]"] * 5]) for _ in range(40)]
    prompts = torch.tensor([tokenizer.encode(text) for text in texts])
    with torch.no_grad():
        logits = model(prompts).logits[:, 4:9].double()
    logits[..., tokenizer.all_special_ids] = -torch.inf
    rows = logits.softmax(dim=-1)
    chances = (rows[::2] * rows[1::2]).sum(dim=-1)
    error = (chances * (1 - chances)).sum().sqrt()

    def are_too_alike(ids):
        agreed = (ids[::2, 4:9] == ids[1::2, 4:9]).sum()
        return bool((agreed - chances.sum()) / error > norm.isf(false_alarms))

    out = drawn(model, prompts, tokenizer, sampler="one-batch", seed=1)
    assert not are_too_alike(out.sequences)
    known = LanguageModel(model, tokenizer)
    common = []
    for prompt in prompts.numpy():
        template = known.template(prompt)
        batch = cp.sample(
            known.oracle(template, row_error=0.0), "one-batch", seed=1, given=template.given
        )
        common.append(template.fill(batch.sequences))
    assert are_too_alike(torch.tensor(np.concatenate(common))), "the check sees common noise"


def test_a_diffusion_model_fills_in_new_tokens_after_a_prompt():
    model, tokenizer = generating_llada(seed=5)
    prompt = torch.tensor([tokenizer.encode("paris is the")])
    out = drawn(model, prompt, tokenizer, max_new_tokens=6, sampler="llada", settings={"steps": 3})
    assert out.sequences.shape == (1, 9)
    assert torch.equal(out.sequences[:, :3], prompt)
    assert not (out.sequences == model.config.mask_token_id).any()
    alone = cp.infill(
        (model, tokenizer), "paris is the" + "[MASK]" * 6, sampler="llada", steps=3, progress=False
    )
    assert out.batches[0].texts == alone.texts


def test_greedy_takes_the_likeliest_and_draws_otherwise(model, ids, tokenizer):
    def texts(**options):
        return {
            tuple(drawn(model, ids, tokenizer, seed=seed, **options).sequences[0].tolist())
            for seed in range(6)
        }

    assert len(texts(do_sample=False, sampler="entropy-bounded")) == 1
    assert len(texts()) > 1


def test_without_a_tokenizer_the_settings_say_what_is_never_drawn(ids):
    model = generating_bert(seed=3)
    model.config.mask_token_id = 4
    model.config.sep_token_id = 3
    out = model.generate(
        ids,
        custom_generate=generate,
        return_dict_in_generate=True,
        num_return_sequences=64,
        sampler="one-batch",
    )
    masked = ids[0] == 4
    values = set(out.sequences[:, masked].unique().tolist())
    assert not values & {0, 3, 4}
    assert 1 in values or 2 in values  # nobody said that these are special


def test_a_budget_leaves_masks_where_a_run_ended(model, ids, tokenizer):
    out = drawn(model, ids, tokenizer, sampler="sequential", max_evaluations=2)
    assert (out.sequences == tokenizer.mask_token_id).sum() == 2


# ----- The folder ------------------------------------------------------------------------------


def test_the_folder_is_loaded_from_disk_and_draws_the_same(tmp_path, model, ids, tokenizer):
    file = write_folder(tmp_path / "rules")
    assert file == tmp_path / "rules" / "custom_generate" / "generate.py"
    out = model.generate(
        ids,
        custom_generate=str(tmp_path / "rules"),
        trust_remote_code=True,
        sampler="entropy-bounded",
        settings={"gamma": 0.5},
        seed=7,
        tokenizer=tokenizer,
    )
    same = drawn(model, ids, tokenizer, sampler="entropy-bounded", settings={"gamma": 0.5}, seed=7)
    assert torch.equal(out, same.sequences)


def test_the_folder_of_a_saved_model_keeps_its_page(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    write_folder(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.slow
def test_the_folder_is_written_by_a_command(tmp_path):
    command = [sys.executable, "-m", "counterprobe.integrations.transformers", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "custom_generate" / "generate.py")


# ----- What is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sampler": "no such"}, "unknown sampler"),
        ({"settings": {"gamm": 1}}, "no setting 'gamm'"),
        ({"attention_mask": torch.tensor([[1, 1, 0, 1, 1, 1, 1, 1, 1]])}, "ends of a prompt"),
    ],
)
def test_what_would_be_ignored_is_refused(options, said, model, ids, tokenizer):
    with pytest.raises(ValueError, match=said):
        model.generate(ids, custom_generate=generate, processing_class=tokenizer, **options)


def test_a_prompt_without_masks_says_how_to_append_some(model, tokenizer):
    ids = torch.tensor([tokenizer.encode(WORDS[0])])
    with pytest.raises(ValueError, match="max_new_tokens=64 appends"):
        model.generate(ids, custom_generate=generate, processing_class=tokenizer)


def test_new_masks_do_not_come_after_padding(model, tokenizer):
    ids = torch.tensor([[2, 5, 3, 0]])
    with pytest.raises(ValueError, match="padded on their left"):
        model.generate(
            ids,
            attention_mask=(ids != 0).long(),
            custom_generate=generate,
            processing_class=tokenizer,
            max_new_tokens=2,
        )


def test_the_settings_of_a_call_may_come_in_one_object(model, ids, tokenizer):
    config = GenerationConfig(
        return_dict_in_generate=True, temperature=1e-4, do_sample=True, top_k=0
    )
    out = model.generate(
        ids, generation_config=config, custom_generate=generate, processing_class=tokenizer
    )
    greedy = drawn(model, ids, tokenizer, temperature=1e-4)
    assert torch.equal(out.sequences, greedy.sequences)
    assert transformers.__version__ >= "5"
