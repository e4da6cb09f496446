"""A pipeline of diffusers with our scheduler: the real one, and random weights."""

import inspect

import numpy as np
import pytest
import torch
from diffusers import LLaDA2Pipeline

import counterprobe as cp
from counterprobe import samplers
from counterprobe.integrations.diffusers import PIPELINE_DEFAULTS, UnmaskingScheduler
from counterprobe.models import Template
from small_language import Counted, bert_tokenizer, generating_bert

SPECIAL = [0, 1, 2, 3]
MASK_ID = 4
PROMPT = [5, 6, 7]


@pytest.fixture(scope="module")
def model():
    return generating_bert(seed=9)


def drawn(model, scheduler, *, seed=3, gen_length=13, block_length=8, prompts=1, **options):
    pipeline = LLaDA2Pipeline(model, scheduler, bert_tokenizer())
    pipeline.set_progress_bar_config(disable=True)
    with Counted(model) as counted:
        out = pipeline(
            input_ids=torch.tensor([PROMPT] * prompts),
            gen_length=gen_length,
            block_length=block_length,
            editing_threshold=None,
            mask_token_id=MASK_ID,
            generator=torch.Generator().manual_seed(seed),
            **{"temperature": 1.0, **options},
        )
    assert scheduler.evaluations == counted.states
    return out, counted


# Rows, candidates, batches fixed before, a random order, quotas that end before steps do.
RULES = [
    ("entropy-bounded", {"gamma": 0.5}),
    ("maskgit", {"steps": 3}),
    ("spread", {"batches": 2}),
    ("sequential", {"order": "random"}),
    ("sequential", {"order": "confidence"}),
    ("llada", {"steps": 4, "confidence": "candidate"}),
    ("klass", {"confidence_threshold": 0.3}),
    ("mean-field", {"threshold": 0.3}),
    ("ancestral", {"steps": 3}),
]


@pytest.mark.parametrize(("sampler", "settings"), RULES)
def test_every_block_is_what_sample_draws_with_its_seeds(sampler, settings, model):
    scheduler = UnmaskingScheduler(sampler, settings, never_drawn=SPECIAL)
    out, counted = drawn(model, scheduler)
    text = [*PROMPT, *out.sequences[0].tolist()]
    assert MASK_ID not in text and not set(text[3:]) & set(SPECIAL)
    source = torch.Generator().manual_seed(3)
    for number, block in enumerate(scheduler.blocks):
        seed = int(torch.randint(2**31 - 1, (1,), generator=source))
        assert block.streams == cp.Streams.from_seed(seed)
        stop = 8 * (number + 1)
        frame = np.array([*text[: 8 * number], *PROMPT[: 3 if number == 0 else 0]])
        frame = np.append(frame, np.full(stop - len(frame), MASK_ID))
        template = Template(
            frame, np.arange(stop - 8, stop), block.template.given, block.template.vocabulary,
            MASK_ID,
        )  # fmt: skip
        oracle = cp.models.TorchOracle(model, template, row_error=0.0)
        alone = cp.sample(
            oracle, sampler, seed=seed, given=template.given, progress=False, **settings
        )
        assert template.fill(alone.sequences)[0].tolist() == text[:stop]
        assert block.ledgers == (alone.ledger,)
    assert sum(block.ledgers[0].evaluations for block in scheduler.blocks) == counted.calls


def test_the_rule_that_paces_itself_is_that_of_a_run(model):
    # Infill may leave it for another where many sequences pay for that, and shares no order.
    scheduler = UnmaskingScheduler("auto", {"target_kl": 3.0}, never_drawn=SPECIAL)
    out, _ = drawn(model, scheduler, gen_length=5)
    (block,) = scheduler.blocks
    template = Template.from_ids([*PROMPT, *[MASK_ID] * 5], MASK_ID, block.template.vocabulary)
    oracle = cp.models.TorchOracle(model, template, row_error=0.0)
    run = cp.run.Run(oracle, given=template.given)
    alone = samplers.Auto(3.0)(run, block.streams)
    assert template.fill(alone.tokens)[:, 3:].tolist() == out.sequences.tolist()
    assert block.ledgers == (alone.ledger,)


def test_rules_that_probe_are_refused_with_a_reason():
    for name in ("punt", "packed", "packed-theory", "lookum", "dapd", "wino", "assd"):
        with pytest.raises(ValueError, match="hands over the logits of its own forwards alone"):
            UnmaskingScheduler(name)


def test_a_plan_is_followed_block_by_block(model):
    strength = np.zeros((8, 8))
    strength[[4, 5], [5, 4]] = 5.0
    rule = samplers.Planned(batches=2, strength=strength)
    scheduler = UnmaskingScheduler(rule=rule)
    drawn(model, scheduler, gen_length=13)
    assert [block.ledgers[0].commits for block in scheduler.blocks] == [2, 2]


def test_many_sequences_differ_and_the_longest_ends_the_block(model):
    scheduler = UnmaskingScheduler("entropy-bounded", {"gamma": 2.0}, never_drawn=SPECIAL)
    out, counted = drawn(model, scheduler, prompts=3, gen_length=5)
    assert len({tuple(row) for row in out.sequences.tolist()}) > 1
    (block,) = scheduler.blocks
    assert counted.calls == max(ledger.evaluations for ledger in block.ledgers)
    # Each is the sequence that is drawn beside the others.
    template = Template.from_ids([*PROMPT, *[MASK_ID] * 5], MASK_ID, block.template.vocabulary)
    oracle = cp.models.TorchOracle(model, template, row_error=0.0)
    alone = cp.sample(
        oracle, "entropy-bounded", 3, seed=block.streams, given=template.given, gamma=2.0,
        progress=False,
    )  # fmt: skip
    assert template.fill(alone.sequences)[:, 3:].tolist() == out.sequences.tolist()


def test_an_end_of_text_stops_its_sequence(model):
    scheduler = UnmaskingScheduler("sequential", never_drawn=SPECIAL)
    whole, counted = drawn(model, scheduler, eos_early_stop=False)
    end = int(whole.sequences[0, 2])
    stopped, fewer = drawn(
        model, UnmaskingScheduler("sequential", never_drawn=SPECIAL), eos_token_id=end
    )
    first = whole.sequences[0].tolist().index(end)
    assert stopped.sequences[0, : first + 1].tolist() == whole.sequences[0, : first + 1].tolist()
    assert fewer.calls < counted.calls


def test_greedy_needs_no_generator_and_the_seed_serves_without_one(model):
    def text(**options):
        scheduler = UnmaskingScheduler("sequential", seed=options.pop("own", 0))
        pipeline = LLaDA2Pipeline(model, scheduler, None)
        pipeline.set_progress_bar_config(disable=True)
        return pipeline(
            input_ids=torch.tensor([PROMPT]), gen_length=13, block_length=8, output_type="seq",
            editing_threshold=None, mask_token_id=MASK_ID, **options,
        ).sequences.tolist()  # fmt: skip

    assert text(own=1) == text(own=2)  # the pipeline's temperature is 0
    assert text(temperature=1.0, own=1) == text(temperature=1.0, own=1)
    assert text(temperature=1.0, own=1) != text(temperature=1.0, own=2)


def test_settings_are_saved_and_loaded(tmp_path):
    UnmaskingScheduler("threshold", {"threshold": 0.6}, never_drawn=[0]).save_pretrained(tmp_path)
    again = UnmaskingScheduler.from_pretrained(tmp_path)
    assert again.rule == samplers.Threshold(0.6)
    assert again.config.never_drawn == [0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_k": 5}, "top_k must be left out"),
        ({"top_p": 0.5}, "top_p must be left out"),
        ({"threshold": 0.9}, "threshold must be left out, got 0.9"),
        ({"minimal_topk": 2}, "minimal_topk must be left out, got 2"),
    ],
)
def test_what_a_rule_would_not_do_is_refused(options, said, model):
    with pytest.raises(ValueError, match=said):
        drawn(model, UnmaskingScheduler(), **options)


@pytest.mark.parametrize("temperature", [0.05, 0.5, 50.0])
def test_a_temperature_is_that_of_sample(temperature, model):
    scheduler = UnmaskingScheduler("sequential", never_drawn=SPECIAL)
    out, _ = drawn(model, scheduler, gen_length=5, temperature=temperature)
    (block,) = scheduler.blocks
    template = Template.from_ids([*PROMPT, *[MASK_ID] * 5], MASK_ID, block.template.vocabulary)
    oracle = cp.models.TorchOracle(model, template, row_error=0.0, temperature=temperature)
    alone = cp.sample(
        oracle, "sequential", seed=block.streams, given=template.given, progress=False
    )
    assert template.fill(alone.sequences)[:, 3:].tolist() == out.sequences.tolist()


def test_what_the_pipeline_says_by_itself_is_no_request():
    parameters = inspect.signature(LLaDA2Pipeline.__call__).parameters
    for name, value in PIPELINE_DEFAULTS.items():
        assert parameters[name].default == value


@pytest.mark.parametrize("steps", [2, 5])
def test_more_forwards_than_steps_are_said(steps, model):
    with pytest.warns(UserWarning, match=f"more forwards than num_inference_steps={steps}"):
        drawn(model, UnmaskingScheduler("sequential"), num_inference_steps=steps, gen_length=5 + 8)
    drawn(model, UnmaskingScheduler("spread", {"batches": 2}), num_inference_steps=steps)


@pytest.mark.parametrize("mask_id", [5, 16, 17])
def test_a_wrong_mask_is_refused_where_it_would_decode_nothing(mask_id):
    logits, ids = torch.zeros(1, 4, 17), torch.full((1, 4), MASK_ID)
    scheduler = UnmaskingScheduler()
    scheduler.set_timesteps(4, block_length=4)
    with pytest.raises(ValueError, match=f"got none of mask_token_id={mask_id}"):
        scheduler.step(logits, 0, ids, mask_token_id=mask_id)
    with pytest.raises(ValueError, match="mask_id must be at least 0, got -1"):
        scheduler.step(logits, 0, torch.full((1, 4), -1), mask_token_id=-1)
    with pytest.raises(ValueError, match=r"sampling_method must be .* got 'greedily'"):
        scheduler.step(logits, 0, ids, mask_token_id=MASK_ID, sampling_method="greedily")


def test_editing_is_refused_and_masks_are_needed():
    scheduler = UnmaskingScheduler()
    logits, ids = torch.zeros(1, 4, 17), torch.full((1, 4), MASK_ID)
    with pytest.raises(ValueError, match="editing_threshold=None"):
        scheduler.step(logits, 0, ids, mask_token_id=MASK_ID, editing_threshold=0.5)
    with pytest.raises(ValueError, match="mask_token_id must be given"):
        scheduler.step(logits, 0, ids)
    with pytest.raises(ValueError, match="the rule has its own"):
        UnmaskingScheduler(settings={"gamma": 1.0}, rule=samplers.Spread(2))


def test_a_tuple_is_returned_on_request():
    scheduler = UnmaskingScheduler("one-batch")
    scheduler.set_timesteps(4, block_length=4)
    logits, ids = torch.zeros(1, 4, 17), torch.full((1, 4), MASK_ID)
    filled, transfer, *_ = scheduler.step(
        logits, 0, ids, mask_token_id=MASK_ID, temperature=1.0, return_dict=False
    )
    assert transfer.all() and not (filled == MASK_ID).any()
    assert not scheduler.check_block_should_continue(
        1, True, False, transfer, 0, 0, torch.zeros(1, dtype=torch.bool)
    )
