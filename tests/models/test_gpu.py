"""The same models on a GPU: rows stay there, and say the same."""

import gc

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe import MASK, models, testing
from counterprobe.models.rows import TorchRows
from counterprobe.models.torch import TorchOracle
from counterprobe.oracles import DrawsPlans, Readouts
from counterprobe.rows import DenseRows, to_numpy

pytestmark = pytest.mark.gpu

HEAVY = "EVQLVESGGGLVQPGGSLRLSCAASGFNIKXXXXXWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTIS"


def some_states(length: int, vocab_size: int, count: int) -> np.ndarray:
    draw = np.random.default_rng(1)
    states = draw.integers(0, vocab_size, size=(count, length)).astype(np.int32)
    states[draw.random(states.shape) < draw.random((count, 1))] = MASK
    return states


@pytest.mark.parametrize("name", ["sapiens-heavy", "proteinmpnn"])
def test_models_go_to_the_gpu_and_their_rows_agree_with_the_host_s(name):
    options = {"backbone": "1ubi"} if name == "proteinmpnn" else {}
    here, there = (models.load(name, device=device, **options) for device in ("cpu", None))
    text = "X" * 76
    one, other = here.oracle(text), there.oracle(text)
    states = some_states(76, 20, 20)
    readouts = Readouts.every_masked(states)
    rows = other.rows(states, readouts)
    assert rows.dense().device.type == "cuda"
    known = to_numpy(one.rows(states, readouts).dense())
    moved = np.abs(to_numpy(rows.dense()) - known).sum(axis=1) / 2
    assert moved.max() < max(1e-4, other.row_error)
    if name == "proteinmpnn":
        assert moved.max() > 1e-5  # factors of ten bits
        exact = models.load(name, **options, tf32=False).oracle(text)
        assert exact.row_error < 1e-4
        assert exact.row_error < other.row_error < 0.02
        np.testing.assert_allclose(
            to_numpy(exact.rows(states, readouts).dense()), known, atol=1e-4
        )
        assert exact.digest != other.digest
    testing.check_oracle(other)


def designs(model, count, **options):
    template = model.template(allowed={30: "AVL", 31: "K"}).favour([40, 41], "W", 2.0)
    given = template.given.copy()
    given[:9] = 5
    oracle = model.oracle(template, order="commit", temperature=0.7, row_error=0.01)
    return oracle, cp.sample(
        oracle, "random-balanced", count, batches=7, given=given, seed=3, log_probs=True, **options
    )


def test_designs_drawn_on_the_gpu_are_those_of_the_plain_decoder():
    model = models.load("proteinmpnn", backbone="1ubi", tf32=False)
    fast, drawn = designs(model, 20, orders=3)
    slow, expected = designs(model.exact(), 20, orders=3)
    assert fast.ability(DrawsPlans) is not None
    assert slow.ability(DrawsPlans) is None
    np.testing.assert_array_equal(drawn.sequences, expected.sequences)
    np.testing.assert_allclose(drawn.log_probs, expected.log_probs, atol=1e-2)
    np.testing.assert_allclose(drawn.scores, expected.scores, atol=1e-3)
    assert drawn.ledger == expected.ledger
    assert fast.num_evaluated == slow.num_evaluated == drawn.ledger.evaluations
    assert (drawn.sequences[:, 31] == drawn.sequences[0, 31]).all()


@pytest.mark.parametrize("tf32", [True, False])
def test_a_design_does_not_depend_on_how_many_are_drawn_at_once(tf32):
    model = models.load("proteinmpnn", backbone="1ubi", tf32=tf32)
    _, many = designs(model, 300, at_once=300)
    for count, at_once in ((1, 1), (3, 3), (300, 70)):
        _, few = designs(model, count, at_once=at_once)
        np.testing.assert_array_equal(few.sequences, many.sequences[:count])
        np.testing.assert_array_equal(few.log_probs, many.log_probs[:count])


def test_designs_that_do_not_fit_together_are_drawn_in_parts_and_are_the_same(caplog):
    model = models.load("proteinmpnn", backbone="1ubi")
    _, whole = designs(model, 4096, at_once=4096)
    gc.collect()  # the buffers of that oracle
    torch.cuda.empty_cache()
    allowed = torch.cuda.memory_reserved() + (256 << 20)  # of half a gigabyte that they take
    torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.mem_get_info()[1])
    try:
        _, parts = designs(model, 4096, at_once=4096)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "out of memory with 4096 states" in caplog.text
    np.testing.assert_array_equal(parts.sequences, whole.sequences)
    np.testing.assert_array_equal(parts.log_probs, whole.log_probs)
    assert parts.ledger == whole.ledger


# Twelve residues that are one with others, one of them by half.
TIED = "1-10=21-30,40=50*0.5"


@pytest.mark.parametrize("order", ["index", "commit"])
def test_tied_rows_on_the_gpu_agree_with_the_host_s_within_their_row_error(order):
    here, there, full = (
        models.load("proteinmpnn", backbone="1ubi", **options)
        for options in ({"device": "cpu"}, {"device": "cuda"}, {"device": "cuda", "tf32": False})
    )
    one, other, exact = (
        model.oracle(model.template(tied=TIED), order=order, temperature=0.5)
        for model in (here, there, full)
    )
    states = some_states(other.length, 20, 20)
    readouts = Readouts.every_masked(states)
    known, short, near = (to_numpy(o.rows(states, readouts).dense()) for o in (one, other, exact))
    moved = np.abs(short - known).sum(axis=1) / 2
    assert 1e-5 < moved.max() < other.row_error < 0.04
    assert np.abs(near - known).sum(axis=1).max() / 2 < max(2e-4, exact.row_error)
    assert exact.row_error < other.row_error
    assert other.ability(DrawsPlans) is None  # rows are combined before anything is drawn
    testing.check_oracle(other)


def test_tied_designs_on_the_gpu_are_the_plain_decoder_s_however_many_at_once():
    model = models.load("proteinmpnn", backbone="1ubi", device="cuda", tf32=False)

    def drawn(model, count, at_once):
        template = model.template(tied=TIED, allowed={30: "AVL"})
        oracle = model.oracle(template, order="commit", row_error=0.01)
        settings = {"batches": 7, "orders": 3, "at_once": at_once, "seed": 5}
        return cp.sample(oracle, "random-balanced", count, **settings)

    whole = drawn(model, 24, 24)
    np.testing.assert_array_equal(whole.sequences, drawn(model.exact(), 24, 24).sequences)
    np.testing.assert_array_equal(whole.sequences, drawn(model, 24, 5).sequences)
    texts = model.template(tied=TIED).texts(whole.sequences)
    assert all(len(text) == 76 and text[:10] == text[20:30] for text in texts)
    assert len(set(texts)) == 24


def test_contexts_that_differ_are_decoded_each_for_itself():
    model = models.load("proteinmpnn", backbone="1ubi", tf32=False)
    given = np.full((4, 76), MASK)
    given[:, :20] = np.random.default_rng(0).integers(20, size=(4, 20))
    found = [
        cp.sample(one.oracle(order="commit"), "random-balanced", 4, batches=5, given=given, seed=1)
        for one in (model, model.exact())
    ]
    np.testing.assert_array_equal(found[0].sequences, found[1].sequences)


def test_frame2seq_on_the_gpu_agrees_with_the_host_and_is_a_little_off_in_tf32():
    piece = models.Backbone.shipped("1ubi").part(range(24))
    here, there, short = (
        models.load("frame2seq", backbone=piece, **options)
        for options in ({"device": "cpu"}, {"device": "cuda"}, {"device": "cuda", "tf32": True})
    )
    states = some_states(24, 20, 12)
    readouts = Readouts.every_masked(states)
    known, same, near = (
        to_numpy(model.oracle("X" * 24, row_error=1e-2).rows(states, readouts).dense())
        for model in (here, there, short)
    )
    np.testing.assert_allclose(same, known, atol=1e-4)
    assert 0 < np.abs(near - known).max() < 0.05
    assert short.oracle(row_error=0.1).digest != there.oracle(row_error=0.1).digest
    testing.check_oracle(there.oracle())


def test_every_sampler_runs_and_is_charged_what_the_model_saw(denoiser):
    oracle = TorchOracle(denoiser(24, 7).cuda(), length=24, mask_id=7)
    told = {
        "centroid-layers",
        "chen-cong-li",
        "information-curve",
        "li-cai",
        "packed-theory",
        "planned",
    }
    for name, sampler in cp.samplers.SAMPLERS.items():
        if name in told:
            continue
        before = oracle.num_evaluated
        result = sampler()(cp.run.Run(oracle), cp.Streams.from_seed(4))
        assert oracle.num_evaluated - before == result.ledger.evaluations, name
        assert result.tokens is not None or name == "compressed", name


def test_reductions_on_the_gpu_agree_with_numpy_rows():
    draw = np.random.default_rng(2)
    p, q = draw.dirichlet(np.full(50, 0.3), size=(2, 300))
    mine, theirs = (
        [kind(value) for value in (p, q)]
        for kind in (lambda v: TorchRows(torch.from_numpy(v).cuda()), DenseRows)
    )
    for name in ("total_variation", "squared_hellinger", "kl"):
        found, expected = (getattr(one, name)(other) for one, other in (mine, theirs))
        np.testing.assert_allclose(to_numpy(found), expected, atol=1e-12)
    for name in ("entropy", "margin"):
        found, expected = (getattr(one, name)() for one, _ in (mine, theirs))
        np.testing.assert_allclose(to_numpy(found), expected, atol=1e-12)
    uniforms = draw.random(300)
    assert np.array_equal(mine[0].draw(uniforms), theirs[0].draw(uniforms))
    for found, expected in zip(mine[0].above(0.05), theirs[0].above(0.05), strict=True):
        assert np.array_equal(found, expected)
    order = draw.permutation(300)
    assert np.array_equal(mine[0].take(order).draw(uniforms[order]), mine[0].draw(uniforms)[order])


def test_memory_that_runs_out_halves_the_batch():
    total = torch.cuda.mem_get_info()[1]

    def model(ids):
        torch.empty(len(ids) * (total // 6), dtype=torch.uint8, device="cuda")
        return torch.zeros(*ids.shape, 4, device="cuda")

    oracle = TorchOracle(
        model, length=3, mask_id=4, allowed=range(4), row_error=0.0, batch_size=32, device="cuda"
    )
    states = np.full((32, 3), MASK, dtype=np.int32)
    assert len(oracle.rows(states, Readouts.every_masked(states))) == 96
    assert oracle.batch_size == 4


def test_a_vocabulary_of_131072_in_half_precision_is_reduced_in_pieces():
    table = torch.randn(64, 131_072, device="cuda", dtype=torch.bfloat16) * 3

    def model(ids):
        return table[ids % 64]

    oracle = TorchOracle(
        model, length=64, mask_id=131_072, row_error=0.0, device="cuda", batch_size=16
    )
    states = np.full((48, 64), MASK, dtype=np.int32)
    states[:, :32] = np.random.default_rng(3).integers(0, 1000, (48, 32))
    readouts = Readouts.every_masked(states)
    torch.cuda.reset_peak_memory_stats()
    rows = oracle.rows(states, readouts)
    held = len(rows) * 131_072 * 4
    assert torch.cuda.max_memory_allocated() < held + 3 * 2**30
    torch.cuda.reset_peak_memory_stats()
    entropy, top = to_numpy(rows.entropy()), to_numpy(rows.top()[1])
    rows.draw(np.random.default_rng(4).random(len(rows)))
    assert torch.cuda.max_memory_allocated() < held + 3 * 2**30
    exact = torch.softmax(table[131_072 % 64].double(), dim=0)
    np.testing.assert_allclose(entropy, float(torch.special.entr(exact).sum()), rtol=1e-5)
    np.testing.assert_allclose(top, float(exact.max()), rtol=1e-5)


def test_an_infill_on_the_gpu_keeps_its_context():
    model = models.load("sapiens-heavy")
    template = model.template(HEAVY)
    many = cp.sample(model.oracle(template), "sequential", 64, seed=1, given=template.given)
    for text in template.texts(many.sequences):
        assert text[:30] == HEAVY[:30] and text[35:] == HEAVY[35:] and "X" not in text


def test_pairs_of_frame2seq_updated_by_one_kernel_are_those_of_the_plain_network():
    plain, fused = (
        models.load("frame2seq", backbone="1ubi", tf32=tf32).network for tf32 in (False, True)
    )
    assert fused._is_fused
    ids = torch.as_tensor(some_states(76, 20, 12)).cuda()
    ids[ids == MASK] = 20
    with torch.no_grad():
        for places in (None, torch.tensor([3, 40, 75], device="cuda")):
            known, fast = (one(ids, places=places)[..., :20] for one in (plain, fused))
            moved = (known.softmax(-1) - fast.softmax(-1)).abs().sum(-1) / 2
            assert 1e-5 < moved.max() < 0.01  # factors of ten bits
            alone = torch.cat([fused(one[None], places=places)[..., :20] for one in ids])
            assert (alone - fast).abs().max() < 0.05
