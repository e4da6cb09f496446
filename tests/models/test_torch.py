"""A torch model as an oracle: its rows, its limits, and what it says when something is wrong."""

import warnings

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe import MASK, testing
from counterprobe.models.template import Template
from counterprobe.models.torch import TorchOracle
from counterprobe.oracles import Readouts
from counterprobe.rows import to_numpy

# About the law; or their guarantee is infeasible for so few tokens.
MUST_BE_TOLD = {
    "centroid-layers",
    "chen-cong-li",
    "information-curve",
    "li-cai",
    "packed-theory",
    "planned",
}


def softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    weights = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def some_states(length: int, vocab_size: int, count: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    states = draw.integers(0, vocab_size, size=(count, length)).astype(np.int32)
    states[draw.random(states.shape) < draw.random((count, 1))] = MASK
    return states


def logits_of(model: torch.nn.Module, states: np.ndarray, mask_id: int) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(np.where(states == MASK, mask_id, states))).numpy()


# ----- Rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_rows_are_the_softmax_of_the_logits_in_double_precision(denoiser, dtype, batch_size):
    model = denoiser().to(dtype)
    oracle = TorchOracle(model, length=12, mask_id=7, batch_size=batch_size)
    states = some_states(12, 7, 8)
    readouts = Readouts.every_masked(states)
    expected = softmax(logits_of(model, states, 7))[readouts.state_index, readouts.position]
    rows = oracle.rows(states, readouts)
    assert rows.dense().dtype == dtype
    np.testing.assert_allclose(
        to_numpy(rows.dense()), expected, atol=1e-6 if dtype == torch.float32 else 1e-13
    )


def test_it_passes_the_conformance_suite_of_oracles(denoiser):
    testing.check_oracle(TorchOracle(denoiser(), length=12, mask_id=7))


def test_temperature_divides_the_logits(denoiser):
    model = denoiser()
    states = some_states(12, 7, 4)
    readouts = Readouts.every_masked(states)
    oracle = TorchOracle(model, length=12, mask_id=7, temperature=0.5)
    expected = softmax(2 * logits_of(model, states, 7))
    np.testing.assert_allclose(
        to_numpy(oracle.rows(states, readouts).dense()),
        expected[readouts.state_index, readouts.position],
        atol=1e-6,
    )
    with pytest.raises(ValueError, match="temperature must be positive and finite, got 0"):
        TorchOracle(model, length=12, mask_id=7, temperature=0)


def test_shifted_logits_are_read_one_place_to_the_left(denoiser):
    model = denoiser()
    template = Template.from_ids([0, 7, 7, 3, 7], 7, range(7))
    oracle = TorchOracle(model, template, shift=True)
    states = template.given[None, :]
    rows = to_numpy(oracle.rows(states, Readouts.same(1, [1, 2, 4])).dense())
    np.testing.assert_allclose(rows, softmax(logits_of(model, states, 7))[0, [0, 1, 3]], atol=1e-6)


class WithOutput(torch.nn.Module):
    """Returns logits the way libraries do, and wants an attention mask."""

    def __init__(self, model: torch.nn.Module, form: str) -> None:
        super().__init__()
        self.model, self.form = model, form

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor):
        assert attention_mask.shape == ids.shape and bool((attention_mask == 1).all())
        logits = self.model(ids)
        if self.form == "tuple":
            return logits, None
        if self.form == "dict":
            return {"logits": logits}
        return type("Output", (), {"logits": logits})()


@pytest.mark.parametrize("form", ["tuple", "dict", "attribute"])
def test_logits_are_found_in_every_kind_of_output(denoiser, form):
    plain = TorchOracle(denoiser(), length=12, mask_id=7)
    wrapped = TorchOracle(WithOutput(denoiser(), form).eval(), length=12, mask_id=7)
    states = some_states(12, 7, 3)
    readouts = Readouts.every_masked(states)
    one, other = plain.rows(states, readouts), wrapped.rows(states, readouts)
    assert np.array_equal(to_numpy(one.dense()), to_numpy(other.dense()))


def test_half_precision_logits_become_single_precision_rows():
    def model(ids):
        return torch.linspace(-9, 9, 50).to(torch.bfloat16).expand(*ids.shape, 50)

    oracle = TorchOracle(model, length=4, mask_id=50)
    rows = oracle.rows(np.full((1, 4), MASK), Readouts.same(1, [0]))
    assert rows.dense().dtype == torch.float32
    assert float(rows.dense().sum()) == pytest.approx(1, abs=1e-6)


def test_a_vocabulary_of_131072_is_read_in_pieces():
    table = torch.randn(2000, generator=torch.Generator().manual_seed(1))

    def model(ids):
        logits = torch.zeros(*ids.shape, 131_072)
        logits[..., :2000] = table * (1 + ids[..., :1, None] % 3)
        return logits

    oracle = TorchOracle(model, length=6, mask_id=131_072, row_error=0.0)
    states = np.array([[0, MASK, MASK, MASK, MASK, MASK], [1, *[MASK] * 5]], dtype=np.int32)
    readouts = Readouts.every_masked(states)
    rows = oracle.rows(states, readouts)
    for k, scale in ((0, 1), (9, 2)):
        scores = np.zeros(131_072)
        scores[:2000] = scale * table.numpy()
        np.testing.assert_allclose(to_numpy(rows.dense())[k], softmax(scores), rtol=1e-6)
        entropy = -(softmax(scores) * np.log(softmax(scores))).sum()
        assert float(rows.entropy()[k]) == pytest.approx(entropy, rel=1e-5)


def test_one_state_a_call_gives_the_same_bits_in_any_company(denoiser):
    oracle = TorchOracle(denoiser(), length=12, mask_id=7, batch_size=1)
    states = some_states(12, 7, 40, seed=2)
    readouts = Readouts.every_masked(states)
    together = to_numpy(oracle.rows(states, readouts).dense())
    for k in range(len(states)):
        mine = np.flatnonzero(readouts.state_index == k)
        alone = oracle.rows(states[k : k + 1], Readouts.same(1, readouts.position[mine]))
        assert np.array_equal(to_numpy(alone.dense()), together[mine])


# ----- The vocabulary, and what is allowed --------------------------------------------------


def test_a_mask_inside_the_vocabulary_is_left_out(denoiser):
    model = denoiser()
    oracle = TorchOracle(model, length=12, mask_id=3)
    assert oracle.vocab_size == 6
    assert oracle.template.vocabulary.tolist() == [0, 1, 2, 4, 5, 6]
    states = some_states(12, 6, 3)
    ids = oracle.template.fill(states)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)).numpy()[..., [0, 1, 2, 4, 5, 6]]
    readouts = Readouts.every_masked(states)
    np.testing.assert_allclose(
        to_numpy(oracle.rows(states, readouts).dense()),
        softmax(logits)[readouts.state_index, readouts.position],
        atol=1e-6,
    )


def test_tokens_allowed_everywhere_are_the_vocabulary(denoiser):
    oracle = TorchOracle(denoiser(), length=12, mask_id=7, allowed=[1, 4, 5])
    assert oracle.vocab_size == 3
    states = np.full((1, 12), MASK, dtype=np.int32)
    rows = oracle.rows(states, Readouts.same(1, np.arange(12)))
    expected = softmax(logits_of(denoiser(), states, 7)[..., [1, 4, 5]])[0]
    np.testing.assert_allclose(to_numpy(rows.dense()), expected, atol=1e-6)


def test_tokens_that_are_not_allowed_have_probability_zero_without_a_warning(denoiser):
    allowed = {2: [1, 4], 5: [0], 7: [3, 5, 6]}
    oracle = TorchOracle(denoiser(), length=12, mask_id=7, allowed=allowed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", cp.errors.InfeasibleWarning)
        warnings.simplefilter("ignore", cp.errors.CostWarning)
        for name, sampler in cp.samplers.SAMPLERS.items():
            if name in MUST_BE_TOLD:
                continue
            result = sampler()(cp.run.Run(oracle), cp.Streams.from_seed(6))
            assert result.tokens is not None or name == "compressed", name
            for position, tokens in allowed.items() if result.tokens is not None else ():
                assert result.tokens[position] in tokens, name
    rows = to_numpy(oracle.rows(np.full((1, 12), MASK), Readouts.same(1, [2, 5, 0])).dense())
    assert (rows[0, [0, 2, 3, 5, 6]] == 0).all()
    assert rows[1].tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert (rows[2] > 0).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-6)


# ----- Repeatability ------------------------------------------------------------------------


def test_rows_in_other_batches_stay_within_the_declared_error(denoiser):
    oracle = TorchOracle(denoiser(), length=12, mask_id=7)
    assert 0 < oracle.row_error < 1e-4
    states = some_states(12, 7, 33, seed=4)
    readouts = Readouts.every_masked(states)
    together = oracle.rows(states, readouts)
    for k in range(len(states)):
        mine = np.flatnonzero(readouts.state_index == k)
        alone = oracle.rows(states[k : k + 1], Readouts.same(1, readouts.position[mine]))
        gap = to_numpy(together.take(mine).total_variation(alone)).max(initial=0)
        assert gap <= oracle.row_error


def test_what_is_measured_is_counted_and_can_be_declared_instead(denoiser):
    measured = TorchOracle(denoiser(), length=12, mask_id=7)
    assert measured.num_evaluated == measured.repeatability.num_states + 1  # one for the width
    declared = TorchOracle(denoiser(), length=12, mask_id=7, allowed=range(7), row_error=0.25)
    assert (declared.num_evaluated, declared.row_error) == (0, 0.25)
    declared.rows(some_states(12, 7, 5), Readouts.same(5, []))
    assert declared.num_evaluated == 0
    states = np.full((5, 12), MASK, dtype=np.int32)
    declared.rows(states, Readouts.same(5, [0]))
    assert declared.num_evaluated == 5
    with pytest.raises(ValueError, match=r"row_error must lie in \[0, 1\], got 2"):
        TorchOracle(denoiser(), length=12, mask_id=7, row_error=2)


def test_a_model_with_active_dropout_is_refused(denoiser):
    with pytest.raises(ValueError, match=r"evaluation mode.*call model.eval\(\)"):
        TorchOracle(denoiser().train(), length=12, mask_id=7)


def test_a_random_model_is_refused():
    def model(ids):
        return 5 * torch.randn(*ids.shape, 4)

    with pytest.raises(cp.OracleError, match="gave another row the second time"):
        TorchOracle(model, length=5, mask_id=4)


def test_a_model_that_mixes_the_states_of_a_batch_is_refused():
    def model(ids):
        return 20 * (ids[..., None] == torch.arange(4)).float().mean(dim=(0, 1)).expand(
            *ids.shape, 4
        )

    with pytest.raises(cp.OracleError, match="must not mix the states of a batch"):
        TorchOracle(model, length=5, mask_id=4)


# ----- An exact law behind a model ----------------------------------------------------------


def forest(shape: str, length: int, vocab_size: int) -> cp.ForestLaw:
    draw = np.random.default_rng(8)
    label = draw.permutation(length)
    edges = {
        "path": [(k, k + 1) for k in range(length - 1)],
        "tree": [((k - 1) // 2, k) for k in range(1, length)],
        "matching": [(k, k + 1) for k in range(0, length - 1, 2)],
    }[shape]
    return cp.ForestLaw(
        draw.uniform(0.5, 1.5, (length, vocab_size)),
        label[np.array(edges)],
        draw.uniform(0.2, 1.8, (len(edges), vocab_size, vocab_size)),
    )


SHAPES = ("path", "tree", "matching")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_denoiser_equal_to_a_forest_law_gives_its_discoveries_and_samples(denoiser_of, shape):
    law = forest(shape, 24, 3)
    oracle = TorchOracle(denoiser_of(law), length=24, mask_id=3)
    assert oracle.row_error == 1e-12
    found, expected = cp.discover(oracle), cp.discover(law.oracle())
    assert {frozenset(e) for e in found.edges.tolist()} == set(map(frozenset, law.edges.tolist()))
    assert np.array_equal(found.edges, expected.edges)
    assert found.ledger == expected.ledger
    # Every sampler is run on one of the shapes; the theory's is infeasible at three tokens.
    names = sorted(cp.samplers.SAMPLERS.keys() - {"packed-theory"})[SHAPES.index(shape) :: 3]
    for name, sampler in ((name, cp.samplers.SAMPLERS[name]) for name in names):
        mine, theirs = (
            sampler().informed_by(law)(cp.run.Run(one), cp.Streams.from_seed(9))
            for one in (oracle, law.oracle())
        )
        assert mine.stop is cp.StopReason.COMPLETED, name
        assert np.array_equal(mine.tokens, theirs.tokens), name
        assert mine.ledger == theirs.ledger, name


# ----- Memory -------------------------------------------------------------------------------


class Small(torch.nn.Module):
    """Runs out of memory above a number of states."""

    def __init__(self, model: torch.nn.Module, most: int, error: type[Exception]) -> None:
        super().__init__()
        self.model, self.most, self.error, self.calls = model, most, error, []

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if len(ids) > self.most:
            raise self.error("CUDA out of memory. Tried to allocate 20 GiB\nand more")
        self.calls.append(len(ids))
        return self.model(ids)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError, MemoryError])
def test_the_batch_size_is_halved_until_the_states_fit(denoiser, error):
    model = Small(denoiser(), 3, error).eval()
    oracle = TorchOracle(
        model, length=12, mask_id=7, allowed=range(7), row_error=0.0, batch_size=32
    )
    states = some_states(12, 7, 11)
    readouts = Readouts.every_masked(states)
    rows = oracle.rows(states, readouts)
    assert oracle.batch_size == 2  # 11 did not fit, nor 5
    assert model.calls == [2, 2, 2, 2, 2, 1]
    plain = TorchOracle(denoiser(), length=12, mask_id=7)
    np.testing.assert_allclose(
        to_numpy(rows.dense()), to_numpy(plain.rows(states, readouts).dense()), atol=1e-6
    )


def test_a_single_state_that_does_not_fit_says_what_to_do(denoiser):
    model = Small(denoiser(), 0, torch.OutOfMemoryError).eval()
    oracle = TorchOracle(model, length=12, mask_id=7, allowed=range(7), row_error=0.0)
    with pytest.raises(cp.OracleError, match=r"single state \(CUDA out of memory. Tried to all"):
        oracle.rows(some_states(12, 7, 4), Readouts.same(4, []).pairs([0], [0]))


# ----- Bad input ----------------------------------------------------------------------------


@pytest.mark.parametrize(("bad", "said"), [(float("nan"), "NaN"), (float("inf"), "infinite")])
def test_logits_that_are_no_numbers_are_named_with_state_and_position(bad, said):
    def model(ids):
        logits = torch.zeros(*ids.shape, 4)
        logits[(ids == 1).any(dim=1), 3, 2] = bad
        return logits

    oracle = TorchOracle(model, length=5, mask_id=4, allowed=range(4), row_error=0.0, batch_size=1)
    states = np.full((3, 5), MASK, dtype=np.int32)
    states[2, 0] = 1
    with pytest.raises(
        cp.OracleError, match=f"logits of state 2 at position 3 are {said}; check the weights"
    ):
        oracle.rows(states, Readouts.every_masked(states))


def test_a_position_whose_allowed_tokens_are_all_impossible_is_named():
    def model(ids):
        logits = torch.zeros(*ids.shape, 4)
        logits[..., :2] = -torch.inf
        return logits

    oracle = TorchOracle(model, length=3, mask_id=4, row_error=0.0)
    assert to_numpy(
        oracle.rows(np.full((1, 3), MASK), Readouts.same(1, [1])).dense()
    ).tolist() == [[0, 0, 0.5, 0.5]]
    oracle = TorchOracle(model, length=3, mask_id=4, allowed={1: [0, 1]}, row_error=0.0)
    with pytest.raises(cp.OracleError, match="every allowed token the score minus infinity"):
        oracle.rows(np.full((1, 3), MASK), Readouts.same(1, [1]))


@pytest.mark.parametrize("mask_id", [8, 99, -1])
def test_a_mask_outside_the_vocabulary_is_refused(denoiser, mask_id):
    model = denoiser(extra_ids=1)
    with pytest.raises(ValueError, match=f"an id that the model reads, 0..7; got {mask_id}"):
        TorchOracle(model, length=12, mask_id=mask_id)
    template = Template.from_ids([1, 2], max(mask_id, 8), range(7))
    with pytest.raises(ValueError, match=r"an id that the model reads, 0..7; got"):
        TorchOracle(model, template)
    with pytest.raises(ValueError, match="an id that the model reads"):
        TorchOracle(lambda ids: torch.zeros(*ids.shape, 7), length=12, mask_id=mask_id)


def test_a_sequence_longer_than_the_model_is_refused(denoiser):
    class Positions(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.place = torch.nn.Embedding(9, 4)

        def forward(self, ids):
            return self.place(torch.arange(ids.shape[1])).expand(*ids.shape, 4)

    with pytest.raises(cp.OracleError, match="or a sequence of 10"):
        TorchOracle(Positions().eval(), length=10, mask_id=4)


class AtPlaces(torch.nn.Module):
    """A model that computes logits where it is told to, and notes where that was."""

    def __init__(self, whole: torch.nn.Module) -> None:
        super().__init__()
        self.whole = whole
        self.asked: list[list[int]] = []

    def forward(self, ids: torch.Tensor, places: torch.Tensor | None = None) -> torch.Tensor:
        if places is None:
            return self.whole(ids)
        self.asked.append(places.tolist())
        return self.whole(ids)[:, places]


@pytest.mark.parametrize("shift", [False, True])
def test_a_model_that_can_be_told_computes_only_what_is_read(denoiser, shift):
    whole = denoiser()
    template = Template.blank(12, range(7), 7)
    known = TorchOracle(whole, template, shift=shift, row_error=1e-5)
    told = TorchOracle(AtPlaces(whole).eval(), template, shift=shift, batch_size=2, row_error=1e-5)
    states = np.full((5, 12), cp.MASK)
    states[:, 4] = np.arange(5)
    # Two states have no readout, one has two, and they come in any order.
    readouts = Readouts.pairs([4, 0, 2, 0], [11, 3, 0, 8])
    found = to_numpy(told.rows(states, readouts).dense())
    np.testing.assert_allclose(found, to_numpy(known.rows(states, readouts).dense()), atol=1e-6)
    model = told._call.model
    left = -1 if shift else 0
    assert model.asked == [[3 + left, 8 + left], [0], [11 + left]]
    assert told.num_evaluated == 5
    blank = TorchOracle(AtPlaces(whole).eval(), length=12, mask_id=7)
    assert blank.vocab_size == 7


@pytest.mark.parametrize(
    ("reply", "got"),
    [
        (lambda ids: torch.zeros(len(ids), 4), r"\(1, 4\)"),
        (lambda ids: torch.zeros(len(ids), 2, 4), r"\(1, 2, 4\)"),
        (lambda ids: "nothing", "str"),
    ],
)
def test_output_of_another_shape_is_refused(reply, got):
    with pytest.raises(cp.OracleError, match=rf"must return logits of shape \(B, L, W\).*{got}"):
        TorchOracle(reply, length=3, mask_id=4)


def test_what_is_missing_or_contradicts_the_template_is_said(denoiser):
    model, template = denoiser(), Template.blank(12, range(7), 7)
    with pytest.raises(ValueError, match="give a template, or length and mask_id"):
        TorchOracle(model, mask_id=7)
    with pytest.raises(ValueError, match="length must be the template's, 12, or left out; got 11"):
        TorchOracle(model, template, length=11)
    with pytest.raises(ValueError, match="mask_id must be the template's, 7, or left out; got 6"):
        TorchOracle(model, template, mask_id=6)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got -1"):
        TorchOracle(model, template, batch_size=-1)
    with pytest.raises(ValueError, match="allowed must name at least one token, got none"):
        TorchOracle(model, length=12, mask_id=7, allowed=[])
    with pytest.raises(cp.OracleError, match="logits for 7 ids, but the vocabulary reaches id 7"):
        TorchOracle(denoiser(extra_ids=3), Template.blank(12, range(8), 9))
