"""Attention of torch models: averaged as asked, from the very evaluation that gave the rows."""

import numpy as np
import pytest
import torch
import transformers

import counterprobe as cp
from counterprobe import testing
from counterprobe.models.proteins.antiberty import load_antiberty
from counterprobe.models.proteins.sapiens import load_sapiens
from counterprobe.models.torch import TorchOracle
from counterprobe.oracles import Attends, AttentionQuery, Readouts, Reply
from counterprobe.rows import to_numpy
from counterprobe.samplers import DAPD

LENGTH, VOCAB, MASK_ID = 6, 7, 7


def attends(oracle) -> bool:
    return oracle.ability(Attends) is not None


def attended(oracle, states, readouts, num_layers) -> Reply:
    return oracle.ask(AttentionQuery(states, readouts, layers=num_layers))


@pytest.fixture(scope="module")
def bert():
    """A BERT of three layers and two heads, with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        config = transformers.BertConfig(
            vocab_size=VOCAB + 1,
            hidden_size=16,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
        )
        return transformers.BertForMaskedLM(config).eval()


def states_of(count: int) -> np.ndarray:
    drawn = np.random.default_rng(1).integers(-1, VOCAB, (count, LENGTH)).astype(np.int32)
    drawn[:, 2] = cp.MASK
    return drawn


@pytest.mark.parametrize("num_layers", [1, 2, 9])
def test_heads_and_the_last_layers_are_averaged(bert, num_layers):
    oracle = TorchOracle(bert, length=LENGTH, mask_id=MASK_ID, row_error=1e-5)
    states = states_of(3)
    attention = attended(oracle, states, Readouts.same(3, [2]), num_layers).attention
    kept = bert.config._attn_implementation
    bert.config._attn_implementation = "eager"
    ids = torch.from_numpy(oracle.template.fill(states))
    with torch.no_grad():
        layers = bert(ids, output_attentions=True).attentions[-num_layers:]
    bert.config._attn_implementation = kept
    expected = torch.stack(layers).mean(dim=(0, 2)).numpy()
    np.testing.assert_allclose(attention, expected, atol=1e-6)
    np.testing.assert_allclose(attention.sum(axis=2), 1, atol=1e-5)


def test_rows_are_those_without_attention_and_nothing_is_evaluated_twice(bert):
    oracle = TorchOracle(bert, length=LENGTH, mask_id=MASK_ID, row_error=1e-5, batch_size=2)
    usual = bert.config._attn_implementation
    states = states_of(5)
    readouts = Readouts.every_masked(states)
    before = oracle.num_evaluated
    reply = attended(oracle, states, readouts, 2)
    rows, attention = reply.rows, reply.attention
    assert oracle.num_evaluated - before == 5
    assert bert.config._attn_implementation == usual  # later calls are what they were
    plain = oracle.rows(states, readouts)
    np.testing.assert_allclose(to_numpy(rows.dense()), to_numpy(plain.dense()), atol=1e-6)
    for k in range(5):
        alone = attended(oracle, states[k : k + 1], Readouts.same(1, [2]), 2).attention
        np.testing.assert_allclose(alone[0], attention[k], atol=1e-6)


def test_attention_conforms_and_long_inputs_go_in_smaller_batches(bert, monkeypatch):
    oracle = TorchOracle(bert, length=LENGTH, mask_id=MASK_ID, row_error=1e-5)
    testing.check_oracle(oracle)
    states = states_of(5)
    together = attended(oracle, states, Readouts.same(5, [2]), 2).attention
    monkeypatch.setattr("counterprobe.models.torch.HEAD_WEIGHTS", 2 * LENGTH**2 + 1)
    sizes = []
    plain = oracle._call.attended
    monkeypatch.setattr(
        oracle._call, "attended", lambda ids, n: sizes.append(len(ids)) or plain(ids, n)
    )
    again = attended(oracle, states, Readouts.same(5, [2]), 2).attention
    assert sizes == [2, 2, 1]
    np.testing.assert_allclose(again, together, atol=1e-6)


def test_special_tokens_are_left_out_and_shifted_models_are_asked_where_they_predict(bert):
    template = cp.models.Template.from_ids(
        np.array([0, MASK_ID, 3, MASK_ID, 4]), MASK_ID, np.arange(1, VOCAB)
    )
    states = template.given[None]
    masked = template.masked
    plain, shifted = (
        attended(
            TorchOracle(bert, template, shift=shift, row_error=1e-5),
            states,
            Readouts.same(1, masked),
            1,
        ).attention[0]
        for shift in (False, True)
    )
    slots = template.slots
    assert 0 not in slots
    ids = template.fill(states)
    whole = TorchOracle(bert, length=5, mask_id=MASK_ID, row_error=1e-5)._call.attended(ids, 1)[1]
    full = whole[0].numpy()
    np.testing.assert_allclose(plain, full[np.ix_(slots, slots)], atol=1e-6)
    np.testing.assert_allclose(shifted, full[np.ix_(slots - 1, slots)], atol=1e-6)
    assert (plain.sum(axis=1) < 1).all()


def test_who_offers_attention(bert, denoiser):
    assert attends(TorchOracle(bert, length=LENGTH, mask_id=MASK_ID, row_error=0.1))
    plain = TorchOracle(denoiser(), length=12, mask_id=7, row_error=0.1)
    assert not attends(plain)
    declined = TorchOracle(bert, length=LENGTH, mask_id=MASK_ID, row_error=0.1, attention=False)
    assert not attends(declined)
    assert not attends(cp.families.path(4, target_seed=1).oracle())


def test_a_model_that_returns_none_after_all_says_what_to_do(denoiser):
    network = denoiser()

    def model(ids, output_attentions=False):
        return network(ids)

    oracle = TorchOracle(model, length=12, mask_id=7, row_error=0.1)
    assert attends(oracle)
    with pytest.raises(cp.OracleError, match=r"no attention of shape.*attention=False"):
        attended(oracle, np.full((1, 12), cp.MASK), Readouts.same(1, [0]), 1)

    def refusing(ids, output_attentions=False):
        if output_attentions:
            raise ValueError("output_attentions is\nnot supported")
        return network(ids)

    oracle = TorchOracle(refusing, length=12, mask_id=7, row_error=0.1)
    with pytest.raises(cp.OracleError, match=r"\(output_attentions is not supported\).*probes"):
        DAPD()(cp.run.Run(oracle), cp.Streams(1, 2))
    assert DAPD(graph="probes")(cp.run.Run(oracle), cp.Streams(1, 2)).tokens is not None


def test_sapiens_gives_its_attention_and_the_same_rows_to_the_bit():
    model = load_sapiens("heavy", device="cpu")
    template = model.template("EVQLVXXXGGLVQPXG")
    oracle = model.oracle(template, row_error=1e-5)
    states = template.given[None]
    reply = attended(oracle, states, Readouts.same(1, template.masked), 4)
    rows, attention = reply.rows, reply.attention
    plain = oracle.rows(states, Readouts.same(1, template.masked))
    assert np.array_equal(to_numpy(rows.dense()), to_numpy(plain.dense()))
    assert attention.shape == (1, 16, 16)
    total = attention[0].sum(axis=1)
    assert (total < 1).all() and (total > 0.3).all()  # the rest looks at start and end
    # The weights are those the network used: values averaged by them give what it added.
    layer, network = model.network.layers[0], model.network
    with torch.no_grad():
        ids = torch.from_numpy(template.fill(states))
        hidden = network.norm(network.embed(ids) + network.places(torch.arange(ids.shape[1]) + 2))
        weights = network(ids, output_attentions=True)[1][0]
        query, key, value = (
            part(hidden).view(1, ids.shape[1], 8, -1).transpose(1, 2)
            for part in (layer.q_proj, layer.k_proj, layer.v_proj)
        )
        fused = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(weights @ value, fused, atol=1e-5, rtol=1e-4)


# ----- What rules make of it ----------------------------------------------------------------


def histories(result: cp.run.results.SampleResult) -> list[np.ndarray]:
    """The state before each commit round."""
    states = [result.given]
    for batch in result.batches[:-1]:
        states.append(states[-1].copy())
        states[-1][batch] = result.tokens[batch]
    return states


def check_attention_decides(oracle: TorchOracle, template: cp.models.Template) -> None:
    """Every batch is the independent set of the attention at its own history, by a plain loop."""
    # A threshold in the midst of what there is to see: the graph is neither empty nor full.
    masked = template.masked
    seen = attended(oracle, template.given[None], Readouts.same(1, masked), 2).attention[0]
    threshold = float(np.median(seen[np.ix_(masked, masked)]))
    rule = DAPD(threshold, num_layers=2)
    before = oracle.num_evaluated
    result = rule(cp.run.Run(oracle, given=template.given), cp.Streams(1, 2))
    assert oracle.num_evaluated - before == result.ledger.evaluations == len(result.batches)
    assert result.notes == ["dependence read from the attention of the last 2 layers"]
    assert 1 < len(result.batches) < len(masked)
    for state, batch in zip(histories(result), result.batches, strict=True):
        residual = np.flatnonzero(state == cp.MASK)
        reply = attended(oracle, state[None], Readouts.same(1, residual), 2)
        attention, top = reply.attention, to_numpy(reply.rows.top()[1])
        sure = dict(zip(residual.tolist(), top.tolist(), strict=True))
        taken: list[int] = []
        for i in sorted(sure, key=lambda i: (-sure[i], i)):
            if all(max(attention[0, i, j], attention[0, j, i]) <= threshold for j in taken):
                taken.append(i)
        assert sorted(batch.tolist()) == sorted(taken)


def test_attention_reaches_the_rule_of_a_small_transformer(bert):
    oracle = TorchOracle(bert, length=10, mask_id=MASK_ID)
    check_attention_decides(oracle, oracle.template)


def test_attention_reaches_the_rule_of_antiberty():
    model = load_antiberty(device="cpu")
    template = model.template("EVQLVESGXXXXXXGGSLRLXXXXXX")
    check_attention_decides(model.oracle(template, row_error=1e-5), template)


@pytest.mark.parametrize("name", ["dawn", "dapd"])
def test_sequences_of_a_model_meet_in_one_batch_and_are_as_alone(bert, name):
    oracle = TorchOracle(bert, length=10, mask_id=MASK_ID, row_error=1e-5)
    sampler = cp.samplers.build_sampler(name, {"edge_threshold": 0.12})
    before = oracle.num_evaluated
    batch = cp.sample(oracle, sampler, 4, seed=3, progress=False)
    assert oracle.num_evaluated - before == batch.ledger.evaluations
    assert batch.ledger.stages == max(result.ledger.stages for result in batch.results)
    for k, result in enumerate(batch.results):
        alone = sampler(cp.run.Run(oracle, sequence=k), cp.Streams.from_seed(3))
        assert np.array_equal(result.tokens, alone.tokens)
        assert result.diagnostics.graph == alone.diagnostics.graph == "attention"


def test_antiberty_gives_its_attention_with_one_evaluation():
    model = load_antiberty(device="cpu")
    template = model.template("EVQLVXXXGGLVQPXG")
    oracle = model.oracle(template, row_error=1e-5)
    before = oracle.num_evaluated
    reply = attended(oracle, template.given[None], Readouts.same(1, template.masked), 4)
    assert oracle.num_evaluated - before == 1
    assert reply.attention.shape == (1, 16, 16) and len(reply.rows) == 4
    assert reply.attention.std() > 1e-3  # not every position looks everywhere alike
