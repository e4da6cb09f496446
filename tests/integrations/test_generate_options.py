"""Every option of transformers' ``generate`` is honoured or raises an error that names it."""

import inspect
import re

import pytest
import torch
from transformers import (
    CompileConfig,
    GenerationConfig,
    LogitsProcessorList,
    StoppingCriteriaList,
    TextStreamer,
    TopKLogitsWarper,
    WatermarkingConfig,
)
from transformers.generation import MaxTimeCriteria

import counterprobe as cp
from counterprobe.integrations.generate_options import REASON_OF
from counterprobe.integrations.transformers import generate, generate_from_folder
from small_language import GeneratingBert, bert_tokenizer, generating_bert, generating_llada

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
    return model.generate(
        ids,
        custom_generate=generate,
        processing_class=tokenizer,
        return_dict_in_generate=True,
        **options,
    )


# A value other than the default for every field; those above the line are honoured.
HONOURED = {
    "disable_compile": True,
    "do_sample": False,
    "eos_token_id": 7,
    "max_length": 12,
    "max_new_tokens": 2,
    "num_return_sequences": 2,
    "pad_token_id": 5,
    "renormalize_logits": True,
    "return_dict_in_generate": True,
    "temperature": 0.5,
    "use_cache": False,
}
REFUSED = {
    "assistant_confidence_threshold": 0.2,
    "assistant_early_exit": 1,
    "assistant_ensemble_weight": 0.5,
    "assistant_lookbehind": 5,
    "bad_words_ids": [[5]],
    "begin_suppress_tokens": [5],
    "bos_token_id": 5,
    "cache_config": {"backend": "quanto"},
    "cache_implementation": "static",
    "compile_config": CompileConfig(),
    "constraints": ["a"],
    "continuous_batching_config": {"block_size": 2},
    "decoder_start_token_id": 5,
    "diversity_penalty": 0.5,
    "dola_layers": "low",
    "early_stopping": True,
    "encoder_no_repeat_ngram_size": 2,
    "encoder_repetition_penalty": 1.2,
    "epsilon_cutoff": 0.01,
    "eta_cutoff": 0.01,
    "exponential_decay_length_penalty": (1, 1.5),
    "force_words_ids": [[5]],
    "forced_bos_token_id": 5,
    "forced_eos_token_id": 5,
    "guidance_scale": 1.5,
    "is_assistant": True,
    "length_penalty": 0.5,
    "low_memory": True,
    "max_cache_len": 64,
    "max_matching_ngram_size": 2,
    "max_time": 1.0,
    "min_length": 11,
    "min_new_tokens": 2,
    "min_p": 0.1,
    "no_repeat_ngram_size": 2,
    "num_assistant_tokens": 5,
    "num_assistant_tokens_schedule": "heuristic",
    "num_beam_groups": 2,
    "num_beams": 3,
    "output_attentions": True,
    "output_hidden_states": True,
    "output_logits": True,
    "output_scores": True,
    "penalty_alpha": 0.5,
    "prefill_chunk_size": 4,
    "prompt_lookup_num_tokens": 3,
    "remove_invalid_values": True,
    "repetition_penalty": 1.2,
    "sequence_bias": [[[5], 1.0]],
    "speculation_type": "dflash",
    "stop_strings": "cat",
    "suppress_tokens": [5],
    "target_lookbehind": 5,
    "token_healing": True,
    "top_h": 0.5,
    "top_k": 5,
    "top_p": 0.9,
    "typical_p": 0.5,
    "use_mtp": True,
    "watermarking_config": WatermarkingConfig(),
}
# For these transformers raises errors of its own before it calls a function.
ITS_OWN = {
    "exponential_decay_length_penalty": "Could not infer dtype",
    "stop_strings": "one or more stop strings",
    "token_healing": "generating with token healing",
}
# Said by transformers where a GenerationConfig is made, before anything of ours runs.
OLD_FIELDS = pytest.mark.filterwarnings("ignore:Passing ContinuousBatchingConfig")


def test_every_field_of_the_installed_transformers_is_honoured_or_refused_here():
    fields = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    assert fields - {"transformers_version"} == HONOURED.keys() | REFUSED.keys()


@OLD_FIELDS
@pytest.mark.parametrize("field", sorted(REFUSED))
def test_an_option_that_is_not_honoured_is_refused_by_name(field, model, ids, tokenizer):
    value = REFUSED[field]
    config = GenerationConfig(**{field: value})
    is_object = isinstance(value, (CompileConfig, WatermarkingConfig))
    shown = type(value).__name__ if is_object else re.escape(repr(value))
    said = f"^{field} must be left out, got {shown}: .+"
    with pytest.raises(ValueError, match=said):
        generate_from_folder(model, ids, generation_config=config, tokenizer=tokenizer)
    with pytest.raises(ValueError, match=said):
        generate_from_folder(model, ids, tokenizer=tokenizer, **{field: value})
    with pytest.raises(ValueError, match=said):
        generate(model, ids, generation_config=config, processing_class=tokenizer)
    with pytest.raises(Exception, match=ITS_OWN.get(field, said)):
        model.generate(
            ids, custom_generate=generate, processing_class=tokenizer, generation_config=config
        )
    if field == "exponential_decay_length_penalty":
        said = ITS_OWN[field]
    with pytest.raises(Exception, match=said):
        model.generate(ids, custom_generate=generate, processing_class=tokenizer, **{field: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("assistant_model", generating_bert(seed=3)),
        ("assistant_tokenizer", bert_tokenizer()),
        ("inputs_embeds", torch.zeros(1, 9, 16)),
        ("logits_processor", LogitsProcessorList([TopKLogitsWarper(5)])),
        ("negative_prompt_attention_mask", torch.ones(1, 9)),
        ("negative_prompt_ids", torch.full((1, 9), 5)),
        ("position_ids", torch.arange(9)[None]),
        ("prefix_allowed_tokens_fn", lambda *_: [5]),
        ("stopping_criteria", StoppingCriteriaList([MaxTimeCriteria(3.0)])),
        ("streamer", TextStreamer(bert_tokenizer())),
        ("synced_gpus", True),
        ("token_type_ids", torch.zeros(1, 9, dtype=torch.long)),
    ],
)
def test_an_argument_of_generate_that_is_not_honoured_is_refused(
    name, value, model, ids, tokenizer
):
    # Masked models have no inputs of embeddings alone.
    more = {} if name == "inputs_embeds" else {"tokenizer": tokenizer}
    with pytest.raises(ValueError, match=f"^{name} must be left out, got .+: .+"):
        model.generate(ids, custom_generate=generate, **more, **{name: value})
    with pytest.raises(ValueError, match=f"^{name} must be left out, got .+: .+"):
        generate_from_folder(model, ids, **more, **{name: value})


def test_reasons_name_arguments_that_exist():
    ours = {*inspect.signature(generate).parameters, *inspect.signature(cp.infill).parameters}
    ours |= HONOURED.keys()
    for reason in set(REASON_OF.values()):
        assert set(re.findall(r"(\w+)=", reason)) <= ours, reason


@pytest.mark.parametrize("name", ["use_model_defaults", "num_beam"])
def test_a_misspelt_option_is_refused(name, model, ids, tokenizer):
    with pytest.raises(ValueError, match=name):
        model.generate(ids, custom_generate=generate, processing_class=tokenizer, **{name: 1})
    for call in (generate, generate_from_folder):
        with pytest.raises(ValueError, match=f"{name} must be left out, got 1"):
            call(model, ids, **{name: 1})


def test_values_that_ask_for_nothing_change_nothing(model, ids, tokenizer):
    nothing = {
        "num_beams": 1, "num_beam_groups": 1, "top_k": 0, "top_p": 1.0, "typical_p": 1.0,
        "min_p": 0.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "repetition_penalty": 1.0,
        "encoder_repetition_penalty": 1.0, "length_penalty": 1.0, "no_repeat_ngram_size": 0,
        "encoder_no_repeat_ngram_size": 0, "diversity_penalty": 0.0, "guidance_scale": 1.0,
        "min_length": 0, "min_new_tokens": 0, "early_stopping": False, "use_cache": True,
        "renormalize_logits": True, "disable_compile": True, "output_scores": False,
    }  # fmt: skip
    plain = drawn(model, ids, tokenizer).sequences
    assert torch.equal(drawn(model, ids, tokenizer, **nothing).sequences, plain)
    more = {"synced_gpus": False, "streamer": None, "logits_processor": LogitsProcessorList()}
    assert torch.equal(drawn(model, ids, tokenizer, use_cache=False, **more).sequences, plain)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_greedy_and_temperature_hold_however_they_are_asked_for(seed, model, ids, tokenizer):
    call = {"sampler": "entropy-bounded", "seed": seed}
    likeliest = cp.infill(
        (model, tokenizer), TEXT, sampler="entropy-bounded", temperature=0, progress=False
    ).texts
    for asked in (
        {"do_sample": False},
        {"temperature": 0.0},
        {"generation_config": {"do_sample": False}},
        {"generation_config": {"temperature": 0.0}},
    ):
        config = {"return_dict_in_generate": True, **asked.pop("generation_config", {})}
        out = model.generate(
            ids,
            custom_generate=generate,
            tokenizer=tokenizer,
            generation_config=GenerationConfig(**config),
            **call,
            **asked,
        )
        assert out.batches[0].texts == likeliest
    warm = cp.infill((model, tokenizer), TEXT, temperature=2.0, progress=False, **call).texts
    out = drawn(model, ids, tokenizer, generation_config=GenerationConfig(temperature=2.0), **call)
    assert out.batches[0].texts == warm
    with pytest.raises(ValueError, match="temperature must be left out where do_sample is False"):
        drawn(model, ids, tokenizer, do_sample=False, temperature=0.5)


@pytest.mark.parametrize("times", [2, 3])
def test_the_number_of_sequences_holds_however_it_is_asked_for(times, model, ids, tokenizer):
    config = GenerationConfig(num_return_sequences=times, do_sample=True)
    by_keyword = drawn(model, ids, tokenizer, num_return_sequences=times).sequences
    assert by_keyword.shape == (times, ids.shape[1])
    assert torch.equal(
        drawn(model, ids, tokenizer, generation_config=config).sequences, by_keyword
    )
    direct = generate(model, ids, generation_config=config, processing_class=tokenizer)
    assert torch.equal(direct, by_keyword)
    assert model.generate(
        ids, custom_generate=generate, tokenizer=tokenizer, generation_config=config
    ).shape == (times, ids.shape[1])


@pytest.mark.parametrize("count", [1, 4])
def test_the_length_holds_however_it_is_asked_for(count, model, ids, tokenizer):
    new = drawn(model, ids, tokenizer, max_new_tokens=count).sequences
    length = ids.shape[1] + count
    assert new.shape == (1, length)
    for config in (GenerationConfig(max_length=length), GenerationConfig(max_new_tokens=count)):
        out = drawn(model, ids, tokenizer, generation_config=config).sequences
        assert torch.equal(out, new)
    assert torch.equal(drawn(model, ids, tokenizer, max_length=length).sequences, new)
    whole = generate(model, ids, max_length=ids.shape[1], processing_class=tokenizer)
    assert whole.shape == ids.shape
    with pytest.raises(ValueError, match="max_length must be at least the 9 ids of a prompt, got"):
        generate(model, ids, max_length=8, processing_class=tokenizer)


def unending_llada(seed):
    """A model that draws an end of text, and whose own settings name none."""
    model, tokenizer = generating_llada(seed)
    model.generation_config.eos_token_id = None
    return model, tokenizer, torch.tensor([tokenizer.encode("paris is the")])


@pytest.mark.parametrize("seed", [1, 2, 5])
@pytest.mark.parametrize("place", ["keyword", "config", "own"])
def test_new_tokens_end_at_the_first_end_of_text(seed, place):
    model, tokenizer, prompt = unending_llada(seed)
    call = {"max_new_tokens": 9, "num_return_sequences": 4, "seed": seed}
    whole = drawn(model, prompt, tokenizer, **call)
    ends = [int(whole.sequences[0, 5]), int(whole.sequences[1, 8])]
    settings = {"eos_token_id": ends, "pad_token_id": 14}
    if place == "keyword":
        call |= settings
    elif place == "config":
        config = {name: call.pop(name) for name in ("max_new_tokens", "num_return_sequences")}
        call["generation_config"] = GenerationConfig(do_sample=True, **config, **settings)
    else:
        model.generation_config.update(**settings)
    out = drawn(model, prompt, tokenizer, **call)
    assert out.batches[0].texts == whole.batches[0].texts
    for row, uncut in zip(out.sequences.tolist(), whole.sequences.tolist(), strict=True):
        # An end of text in the prompt ends nothing.
        stop = min((k + 1 for k in range(3, 12) if uncut[k] in ends), default=12)
        assert row == uncut[:stop] + [14] * (12 - stop)


def test_the_end_of_text_pads_where_there_is_no_padding():
    model, tokenizer, prompt = unending_llada(2)
    whole = drawn(model, prompt, tokenizer, max_new_tokens=9).sequences[0].tolist()
    end = whole[4]
    out = drawn(model, prompt, tokenizer, max_new_tokens=9, eos_token_id=end).sequences[0].tolist()
    stop = whole.index(end, 3)
    assert out == whole[:stop] + [end] * (12 - stop)


def test_an_end_of_text_that_could_end_nothing_is_refused(model, ids, tokenizer):
    with pytest.raises(
        ValueError, match=r"eos_token_id must be left out, got 7: .*max_new_tokens"
    ):
        drawn(model, ids, tokenizer, eos_token_id=7)
    with pytest.raises(ValueError, match=r"id 3 never is; .*'drawn_special': \[3\]"):
        drawn(model, ids, tokenizer, eos_token_id=[7, 3], max_new_tokens=2)
    options = {"model_options": {"drawn_special": [3]}, "eos_token_id": 3, "max_new_tokens": 2}
    assert drawn(model, ids, tokenizer, **options).sequences.shape == (1, 11)


def test_settings_of_a_checkpoint_neither_fail_nor_multiply_prompts(ids, tokenizer):
    model = generating_bert(seed=3)
    plain = drawn(model, ids, tokenizer, num_return_sequences=2).sequences
    own = {"num_beams": 4, "top_k": 20, "top_p": 0.8, "do_sample": True, "max_length": 60}
    model.generation_config.update(**own)
    with pytest.warns(UserWarning, match=r"num_beams=4.* of model.generation_config is not used"):
        out = drawn(model, ids, tokenizer, num_return_sequences=2)
    assert torch.equal(out.sequences, plain)
    # A copy of them, as `GenerationConfig.from_pretrained` gives it, asks for nothing more.
    copied = GenerationConfig(**own, num_return_sequences=2)
    with pytest.warns(UserWarning, match="is not used"):
        out = drawn(model, ids, tokenizer, generation_config=copied)
    assert torch.equal(out.sequences, plain)
    with pytest.raises(ValueError, match="num_beams must be left out, got 4"):
        drawn(model, ids, tokenizer, num_beams=4)


def test_the_model_s_own_greed_and_temperature_are_kept(ids, tokenizer):
    model = generating_bert(seed=3)
    cold = drawn(model, ids, tokenizer, temperature=0.5).sequences
    greedy = drawn(model, ids, tokenizer, do_sample=False).sequences
    model.generation_config.temperature = 0.5
    assert torch.equal(drawn(model, ids, tokenizer).sequences, cold)
    model.generation_config.do_sample = False
    assert torch.equal(drawn(model, ids, tokenizer).sequences, greedy)


def test_a_tokenizer_may_be_named_as_elsewhere(model, ids, tokenizer):
    out = model.generate(
        ids, custom_generate=generate, tokenizer=tokenizer, num_return_sequences=64
    )
    assert not set(out[:, 1:-1].unique().tolist()) & set(tokenizer.all_special_ids)
    with pytest.raises(ValueError, match="give one of them"):
        generate(model, ids, processing_class=tokenizer, tokenizer=tokenizer)


def test_options_of_ours_do_not_come_in_an_object_of_theirs(model, ids, tokenizer):
    config = GenerationConfig(sampler="packed")
    with pytest.raises(ValueError, match=r"sampler must be left out.* pass it to generate itself"):
        drawn(model, ids, tokenizer, generation_config=config)


@pytest.mark.parametrize("enters", [torch.no_grad, torch.enable_grad])
def test_options_are_seen_through_a_method_of_the_model_and_in_a_direct_call(
    enters, ids, tokenizer
):
    class Overriding(GeneratingBert):
        def generate(self, *args, **kwargs):
            return super().generate(*args, **kwargs)

    model = generating_bert(seed=3)
    model.__class__ = Overriding

    @enters()
    def direct(**options):
        return generate(model, ids, processing_class=tokenizer, **options)

    assert torch.equal(direct(seed=4), drawn(model, ids, tokenizer, seed=4).sequences)
    for call in (direct, lambda **options: drawn(model, ids, tokenizer, **options)):
        with pytest.raises(ValueError, match="num_beams must be left out, got 3"):
            call(num_beams=3)
        with pytest.raises(ValueError, match="assistant_model must be left out, got Overriding"):
            call(assistant_model=model)
