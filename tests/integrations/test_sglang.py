"""SGLang's algorithm of ours, against a stand-in with the published signatures: no real server."""

import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe.integrations import sglang
from counterprobe.models import Template
from small_language import Counted, generating_bert

MASK_ID, BLOCK, SPECIAL = 4, 8, [0, 1, 2, 3]
PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@dataclass
class Config:
    algorithm_config: dict[str, Any] = field(default_factory=dict)
    block_size: int = BLOCK
    mask_id: int = MASK_ID
    first_done_first_out_mode: bool = False


class StandIn:
    """What a subclass meets: the attributes, and both loops that call ``step``."""

    def __init__(self, config):
        self.block_size = config.block_size
        self.mask_id = config.mask_id
        self.fdfo = config.first_done_first_out_mode

    def run(self, model_runner, forward_batch, algo_states=None):
        states = list(algo_states or [None] * forward_batch.batch_size)
        if self.fdfo:  # one forward a call; blocks that are done leave the batch
            done = self.step(forward_batch, model_runner.forward(forward_batch), states)
            return done, [
                None if is_done else one for is_done, one in zip(done, states, strict=True)
            ]
        for _ in range(self.block_size + 2):
            done = self.step(forward_batch, model_runner.forward(forward_batch), states)
            if all(done):
                return done, states
        raise AssertionError("a block was never done")


class Runner:
    """Calls a real model on blocks after one prompt; dense logits, in either published form."""

    def __init__(self, model, wrapped):
        self.model, self.wrapped = model, wrapped

    def forward(self, forward_batch, pp_proxy_tensors=None):
        ids = forward_batch.input_ids.view(forward_batch.batch_size, BLOCK)
        with torch.no_grad():
            logits = self.model(ids).logits.reshape(-1, 17)
        return SimpleNamespace(full_logits=logits) if self.wrapped else logits


@pytest.fixture
def registered(monkeypatch):
    package, base = ModuleType("sglang.srt.dllm.algorithm"), ModuleType("base")
    package.algo_name_to_cls = {}
    base.DllmAlgorithm = StandIn
    monkeypatch.setitem(sys.modules, "sglang.srt.dllm.algorithm", package)
    monkeypatch.setitem(sys.modules, "sglang.srt.dllm.algorithm.base", base)
    for name in ("sglang", "sglang.srt", "sglang.srt.dllm"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    # As a server does: by the entry point that the package declares.
    declared = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]["sglang.srt.plugins"]
    module, _, function = declared["counterprobe"].partition(":")
    getattr(__import__(module, fromlist=[function]), function)()
    return package.algo_name_to_cls[sglang.NAME]


@pytest.fixture(scope="module")
def model():
    return generating_bert(seed=12)


def seeds(number, seed=0):
    state = np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(2, np.uint32)
    return cp.Streams(*map(int, state))


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("sampler", "settings"),
    [("entropy-bounded", {"gamma": 1.0}), ("maskgit", {"steps": 3}), ("spread", {"batches": 2})],
)
def test_blocks_are_what_sample_draws_and_one_forward_ends_them(
    sampler, settings, wrapped, registered, model
):
    told = {"sampler": sampler, "settings": settings, "never_drawn": SPECIAL}
    rule = registered(Config(told))
    given = torch.tensor([[2, 5, 6, 4, 4, 4, 4, 4], [4] * BLOCK])
    ids = given.clone().reshape(-1)
    with Counted(model) as counted:
        rule.run(Runner(model, wrapped), SimpleNamespace(batch_size=2, input_ids=ids))
    rounds = []
    for k, block in enumerate(ids.view(2, BLOCK).tolist()):
        template = Template.from_ids(given[k].numpy(), MASK_ID, range(5, 17))
        oracle = cp.models.TorchOracle(model, template, row_error=0.0)
        alone = cp.sample(
            oracle, sampler, seed=seeds(k), given=template.given, progress=False, **settings
        )
        assert template.fill(alone.sequences)[0].tolist() == block
        rounds.append(alone.ledger.evaluations)
    # The forward after the last round writes what attention keeps.
    assert counted.calls == max(rounds) + 1


def test_first_done_first_out_carries_states_from_call_to_call(registered, model):
    config = Config({"sampler": "sequential", "never_drawn": SPECIAL})
    config.first_done_first_out_mode = True
    rule = registered(config)
    batch = SimpleNamespace(batch_size=1, input_ids=torch.full((BLOCK,), MASK_ID))
    states, done = [None], [False]
    for call in range(BLOCK + 1):
        assert (batch.input_ids == MASK_ID).sum() == BLOCK - call
        done, states = rule.run(Runner(model, False), batch, states)
    assert done == [True] and states == [None]


def test_likeliest_tokens_and_seeds(registered, model):
    def text(**told):
        rule = registered(Config({"sampler": "sequential", "never_drawn": SPECIAL, **told}))
        batch = SimpleNamespace(batch_size=1, input_ids=torch.full((BLOCK,), MASK_ID))
        rule.run(Runner(model, False), batch)
        return batch.input_ids.tolist()

    assert text(temperature=0.0, seed=1) == text(temperature=0.0, seed=2)
    assert text(seed=1) == text(seed=1) != text(seed=2)


@pytest.mark.parametrize(("top_k", "temperature"), [(1, 1.0), (1 << 30, 0.05), (1 << 30, 50.0)])
def test_the_temperature_of_a_request_holds_where_the_server_has_none(
    top_k, temperature, registered, model
):
    def text(**told):
        rule = registered(Config({"sampler": "sequential", "never_drawn": SPECIAL, **told}))
        info = SimpleNamespace(
            top_ks=torch.tensor([1 << 30, top_k]),
            temperatures=torch.tensor([[1.0], [temperature]]),
        )
        ids = torch.full((2 * BLOCK,), MASK_ID)
        batch = SimpleNamespace(batch_size=2, input_ids=ids, sampling_info=info)
        rule.run(Runner(model, False), batch)
        return ids.view(2, BLOCK).tolist()

    told = 0.0 if top_k == 1 else temperature
    assert text() == [text(temperature=1.0)[0], text(temperature=told)[1]]
    assert text()[1] != text(temperature=1.0)[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("top_k", 5), ("top_p", 0.9), ("repetition_penalty", 1.2), ("regex", "a+"), ("min_p", 0.1)],
)
def test_a_request_for_other_rows_is_refused(name, value, registered):
    plain = {"temperature": 0.5, "top_k": 1 << 30, "top_p": 1.0, "min_p": 0.0, "regex": None}
    request = SimpleNamespace(sampling_params=SimpleNamespace(**plain))
    assert registered.validate_request(request) is None
    setattr(request.sampling_params, name, value)
    assert registered.validate_request(request).startswith(
        f"{name} must be left out, got {value!r}"
    )


@pytest.mark.parametrize("temperature", [-1.0, float("nan"), float("inf")])
def test_a_temperature_that_is_none_is_refused_when_the_server_starts(temperature, registered):
    with pytest.raises(ValueError, match="temperature must be at least 0 and finite"):
        registered(Config({"temperature": temperature}))


def test_what_cannot_run_is_refused_when_the_server_starts(registered):
    with pytest.raises(ValueError, match="SGLang hands over the logits of its own forwards alone"):
        registered(Config({"sampler": "punt"}))
    with pytest.raises(ValueError, match=r"settings are sampler, .*; got 'threshold'"):
        registered(Config({"threshold": 0.9}))
    with pytest.raises(ValueError, match="leave an id to draw"):
        cp.integrations.blocks.DrawnIds(3, 2, [0, 1])


def test_without_sglang_the_entry_point_says_what_is_missing():
    with pytest.raises(ModuleNotFoundError, match="sglang"):
        sglang.register()
