"""Frame2seq: our network against the package's own, and as an oracle."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe import MASK, testing
from counterprobe.extras import MissingExtra
from counterprobe.models import weights
from counterprobe.models.letters import AMINO_ACIDS
from counterprobe.models.proteins import frame2seq, point_attention
from counterprobe.models.proteins.backbones import Backbone
from counterprobe.models.proteins.frame2seq import MaskedFolding, load_frame2seq
from counterprobe.oracles import AttentionQuery, Readouts
from counterprobe.rows import to_numpy
from frame2seq_package import Package

LENGTH = 10


@pytest.fixture(scope="module")
def package() -> Package:
    return Package()


@pytest.fixture(scope="module")
def piece() -> Backbone:
    """A few residues of ubiquitin: pairs are what costs."""
    return Backbone.shipped("1ubi").part(range(20, 20 + LENGTH))


@pytest.fixture(scope="module")
def folding(piece) -> MaskedFolding:
    return load_frame2seq(piece, device="cpu")


@pytest.fixture(scope="module")
def single(piece) -> MaskedFolding:
    """One network of the three, the smallest."""
    return load_frame2seq(piece, weights="model1", device="cpu")


def some_ids(count: int, length: int) -> torch.Tensor:
    """Everything masked, then less and less."""
    draw = np.random.default_rng(3)
    ids = draw.integers(0, 20, (count, length))
    for k in range(count):
        ids[k, draw.random(length) < 1 - k / max(1, count - 1)] = 20
    return torch.from_numpy(ids)


def rows_of(logits: torch.Tensor) -> np.ndarray:
    """Rows over the 20 amino acids: the package can be told to leave X out."""
    return torch.softmax(logits[..., :20].double(), dim=-1).numpy()


def lacking(backbone: Backbone, *places: tuple[int, int]) -> Backbone:
    coordinates = backbone.coordinates.copy()
    for place in places:
        coordinates[place] = np.nan
    return replace(backbone, coordinates=coordinates)


# ----- The network ---------------------------------------------------------------------------


def test_every_network_agrees_with_the_package_s_own(package, piece, folding):
    ids = some_ids(4, LENGTH)
    theirs = package.logits(piece, ids)
    for number, logits in enumerate(theirs, start=1):
        mine = load_frame2seq(piece, weights=f"model{number}", device="cpu")
        assert mine.name == f"frame2seq model{number} 1ubi"
        with torch.no_grad():
            found = mine.network(ids)
        np.testing.assert_allclose(found.numpy(), logits.numpy(), atol=1e-4)
        np.testing.assert_allclose(rows_of(found), rows_of(logits), atol=2e-5)
    with torch.no_grad():
        together = folding.network(ids)
    np.testing.assert_allclose(rows_of(together), rows_of(sum(theirs) / 3), atol=1e-5)


def test_residues_without_a_frame_are_masked_as_in_the_package(package, piece):
    # One without its alpha carbon, one without any atom; an oxygen is not missed.
    gapped = lacking(piece, (3, 1), (8, slice(None)), (5, 3))
    ids = some_ids(3, LENGTH)
    found = load_frame2seq(gapped, device="cpu")
    with torch.no_grad():
        mine = rows_of(found.network(ids))
    theirs = rows_of(sum(package.logits(gapped, ids)) / 3)
    known = np.delete(np.arange(LENGTH), [3, 8])
    np.testing.assert_allclose(mine[:, known], theirs[:, known], atol=1e-5)
    assert np.isfinite(mine).all()
    # Nobody sees them: another letter there moves no row of the others.
    other = ids.clone()
    other[:, [3, 8]] = (other[:, [3, 8]] + 1) % 20
    with torch.no_grad():
        moved = rows_of(found.network(other))
    np.testing.assert_array_equal(moved[:, known], mine[:, known])
    template = found.template()
    assert np.flatnonzero(template.given != MASK).tolist() == [3, 8]
    assert template.text(template.given)[3] == piece.sequence[3]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1ubi", "1ake"])
def test_a_whole_protein_is_designed_from_the_package_s_rows(package, name):
    """What its ``design`` draws from, all residues at once, is what ``one-batch`` draws from."""
    backbone = Backbone.shipped(name)
    folding = load_frame2seq(backbone, device="cpu")
    bare = np.full((1, len(backbone)), MASK, dtype=np.int32)
    rows = to_numpy(folding.oracle(row_error=1e-5).rows(bare, Readouts.every_masked(bare)).dense())
    theirs = rows_of(sum(package.logits(backbone, torch.full(bare.shape, 20))) / 3)[0]
    np.testing.assert_allclose(rows, theirs, atol=1e-5)
    native = [AMINO_ACIDS.find(letter) for letter in backbone.sequence]
    assert (rows.argmax(axis=1) == native).mean() > 0.5


def test_the_same_is_found_in_pieces_in_any_company_and_at_any_place(folding, monkeypatch):
    ids = some_ids(5, LENGTH)
    with torch.no_grad():
        whole = folding.network(ids)
        for most in (1, 40, 3 * LENGTH**2):
            monkeypatch.setattr(point_attention, "HOST_PAIRS", most)
            np.testing.assert_allclose(folding.network(ids), whole, atol=2e-5)
        np.testing.assert_allclose(folding.network(ids[2:3]), whole[2:3], atol=2e-5)
        for places in ([3], [0, 9, 7], list(range(LENGTH)), []):
            some = folding.network(ids, places=torch.tensor(places, dtype=torch.int64))
            np.testing.assert_allclose(some, whole[:, places], atol=2e-5)


def test_a_moved_and_turned_backbone_has_the_same_rows(folding, piece):
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turn *= np.sign(np.linalg.det(turn))  # no mirror
    places = piece.coordinates.astype(float) @ turn.T + [30.0, -50.0, 20.0]
    moved = replace(piece, coordinates=places.astype(np.float32))
    mirrored = replace(piece, coordinates=-piece.coordinates)
    ids = some_ids(2, LENGTH)
    with torch.no_grad():
        rows = rows_of(folding.network(ids))
        again = rows_of(load_frame2seq(moved, device="cpu").network(ids))
        other = rows_of(load_frame2seq(mirrored, device="cpu").network(ids))
    np.testing.assert_allclose(again, rows, atol=1e-2)  # atoms are rounded to four decimals
    assert np.abs(other - rows).max() > 0.05


def test_attention_of_all_networks_comes_with_the_same_logits(folding):
    ids = some_ids(2, LENGTH)
    with torch.no_grad():
        logits, attention = folding.network(ids, output_attentions=True)
        np.testing.assert_array_equal(logits, folding.network(ids))
    assert len(attention) == 8 and {tuple(one.shape) for one in attention} == {
        (2, 12, LENGTH, LENGTH)
    }
    for one in attention:
        np.testing.assert_allclose(one.sum(-1), 1.0, atol=1e-5)
    oracle = folding.oracle(row_error=1e-5)
    state = np.full((1, LENGTH), MASK, dtype=np.int32)
    reply = oracle.ask(AttentionQuery(state, Readouts.every_masked(state), layers=2))
    with torch.no_grad():
        _, attention = folding.network(torch.full((1, LENGTH), 20), output_attentions=True)
    np.testing.assert_allclose(
        reply.attention[0], torch.stack(attention[-2:]).mean(dim=(0, 2))[0], atol=1e-5
    )


# ----- The oracle ----------------------------------------------------------------------------


def test_it_passes_the_conformance_suite_of_oracles(single):
    testing.check_oracle(single.oracle())


def test_rows_are_read_where_they_are_asked_for(single):
    oracle = single.oracle(row_error=1e-5, batch_size=2)
    states = np.where(some_ids(5, LENGTH).numpy() == 20, MASK, some_ids(5, LENGTH).numpy())
    states[:, 4] = MASK
    states = states.astype(np.int32)
    every = Readouts.every_masked(states)
    rows = to_numpy(oracle.rows(states, every).dense())
    evaluated = oracle.num_evaluated
    # Only some states are read, each at a place of its own: all of them are evaluated.
    chosen = np.array([0, len(every) - 1, 3])
    some = Readouts.pairs(every.state_index[chosen], every.position[chosen])
    np.testing.assert_allclose(
        to_numpy(oracle.rows(states, some).dense()), rows[chosen], atol=1e-5
    )
    assert oracle.num_evaluated - evaluated == 5
    warm = single.oracle(row_error=1e-5, temperature=2.0)
    logs = np.log(rows) / 2
    expected = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(to_numpy(warm.rows(states, every).dense()), expected, atol=1e-5)


def test_designs_keep_what_is_given_and_allowed(single, piece):
    text = piece.sequence[:6] + "X" * (LENGTH - 6)
    designs = cp.infill(
        single, text, sampler="one-batch", count=4, progress=False, allowed={6: "K", 7: "DE"}
    )
    assert designs.ledger.evaluations == 4
    for design in designs.texts:
        assert design[:6] == piece.sequence[:6] and design[6] == "K" and design[7] in "DE"
    one_by_one = cp.infill(single, sampler="sequential", progress=False, seed=2)
    assert len(one_by_one.texts[0]) == LENGTH and one_by_one.ledger.evaluations == LENGTH


def test_its_digest_is_of_weights_backbone_and_precision(single, piece):
    def digest(backbone: Backbone = piece, **options) -> str | None:
        model = load_frame2seq(backbone, device="cpu", **{"weights": "model1", **options})
        return model.oracle(row_error=1e-5).digest

    known = single.oracle(row_error=1e-5).digest
    assert digest() == known
    others = {digest(weights="model2"), digest(lacking(piece, (3, 1))), digest(tf32=True)}
    assert len({known, *others}) == 4


def test_as_many_states_go_at_once_as_fit(folding, monkeypatch):
    per_state = 4 * LENGTH**2 * (128 + 3 * 4)
    monkeypatch.setattr(frame2seq, "HOST_BYTES", 3 * per_state)
    assert folding.oracle(row_error=1e-5).batch_size == 3
    monkeypatch.setattr(frame2seq, "HOST_BYTES", 1)
    assert folding.oracle(row_error=1e-5).batch_size == 1
    assert folding.oracle(row_error=1e-5, batch_size=7).batch_size == 7


def test_without_triton_pairs_are_updated_as_tensors(single, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "counterprobe.models.proteins.fused_pairs", raising=False)
    monkeypatch.delitem(sys.modules, "counterprobe.models.proteins.fused", raising=False)
    assert not frame2seq._fuse(single.network.networks)
    assert all(block.fused is None for block in single.network.networks[0].blocks)


def test_the_precision_of_products_is_put_back():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    with point_attention.matrix_precision(short=True):
        assert matmul.fp32_precision == "tf32"
        with point_attention.matrix_precision(short=False):
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "tf32"
    assert matmul.fp32_precision == before


# ----- Bad input -----------------------------------------------------------------------------


def test_bad_input_is_refused(folding, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=f"must have {LENGTH} residues, got 3"):
        folding.template("AXA")
    with pytest.raises(ValueError, match="weights must be one of model1, model2, model3, or"):
        load_frame2seq("1ubi", weights="model4")
    torch.save({"state_dict": {"x": torch.zeros(1)}}, tmp_path / "bad.ckpt")
    with pytest.raises(ValueError, match=r"bad\.ckpt does not say how large the network is"):
        frame2seq._read_network(tmp_path / "bad.ckpt")
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"frame2seq needs frame2seq: pip install --no-deps"):
        load_frame2seq("1ubi")
