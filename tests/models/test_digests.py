"""Models are told from others of their name and size before anything is asked of them."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe.models import Letters, SequenceModel, TorchOracle, digests
from counterprobe.models.digests import weights_digest
from counterprobe.models.proteins.message_passing import Decoder
from counterprobe.models.proteins.proteinmpnn import InverseFolding, load_proteinmpnn

LETTERS = Letters("ABC", (0, 1, 2), 3)
QUIET = {"row_error": 1e-5}


class Network(torch.nn.Module):
    """A few weights, a buffer, and logits of them."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.embed = torch.nn.Embedding(6, 6)
        self.head = torch.nn.Linear(6, 3)
        for weights in self.parameters():
            weights.data = torch.randn(weights.shape, generator=draw)
        self.register_buffer("scale", torch.tensor(1.0))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids)
        return self.head(hidden + hidden.mean(dim=1, keepdim=True)) * self.scale


def model(network: torch.nn.Module) -> SequenceModel:
    return SequenceModel("letters", network.eval(), LETTERS, 5)


def digest(network, text: str = "XXBXX", allowed=None, **options) -> str | None:
    known = model(network)
    template = known.template(text, allowed=allowed)
    return known.oracle(template, **{**QUIET, **options}).digest


# ----- Weights ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["embed.weight", "head.weight", "head.bias", "scale"])
def test_one_bit_of_any_weight_or_buffer_makes_another_digest(name):
    one = Network()
    known = weights_digest(one)
    assert known == weights_digest(Network()) == weights_digest(copy.deepcopy(one))
    tensor = dict([*one.named_parameters(), *one.named_buffers()])[name].data.view(-1)
    tensor[:1].view(torch.int32)[0] ^= 1
    assert weights_digest(one) != known


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_weights_of_every_type_are_read_and_a_type_counts(dtype):
    one, other = Network().to(dtype), Network(2).to(dtype)
    digests = {weights_digest(Network()), weights_digest(one), weights_digest(other)}
    assert len(digests) == 3 and None not in digests


def test_weights_laid_out_otherwise_or_with_another_name_are_told_apart_by_their_numbers_only():
    square = torch.arange(9.0).reshape(3, 3)

    def holding(name, tensor):
        module = torch.nn.Module()
        module.register_buffer(name, tensor)
        return weights_digest(module)

    transposed = square.T.contiguous().T
    assert not transposed.is_contiguous()
    assert holding("a", square) == holding("a", transposed) != holding("a", square.T)
    assert holding("a", square) != holding("b", square)
    assert holding("a", square.reshape(9)) != holding("a", square)


def test_what_has_no_weights_to_read_is_unknown():
    assert weights_digest(lambda ids: ids) is None
    assert weights_digest(torch.nn.Linear(2, 2, device="meta")) is None
    assert weights_digest(torch.nn.LazyLinear(3)) is None
    sparse = torch.nn.Module()
    sparse.register_buffer("a", torch.eye(2).to_sparse())
    assert weights_digest(sparse) is None
    function = TorchOracle(lambda ids: torch.zeros(*ids.shape, 4), length=3, mask_id=4, **QUIET)
    assert function.digest is None


def test_a_network_that_is_compiled_or_spread_over_devices_is_the_same():
    one = Network()
    known = weights_digest(one)
    assert weights_digest(torch.compile(one, backend="eager")) == known
    assert weights_digest(torch.nn.DataParallel(one)) == known
    assert weights_digest(torch.compile(torch.nn.DataParallel(one), backend="eager")) == known
    around = torch.nn.Module()
    around.module = one  # any network may call a part so
    assert weights_digest(around) != known


def test_weights_that_are_written_over_have_another_digest_at_once(monkeypatch):
    network = Network()
    oracle = model(network).oracle(model(network).template("XXBXX"), **QUIET)
    known = oracle.digest
    passes = []
    read = digests.weights_digest
    monkeypatch.setattr(digests, "weights_digest", lambda one: passes.append(one) or read(one))
    assert oracle.digest == known and passes == []
    with torch.no_grad():
        network.head.weight.mul_(1.5)
    assert oracle.digest == digest(network) != known
    with torch.inference_mode():  # where writes are not counted
        network.register_buffer("scale", torch.tensor(2.0))
    assert oracle.digest == digest(network) != known


# ----- What else makes rows -----------------------------------------------------------------


def test_what_changes_rows_changes_the_digest_and_nothing_else_does():
    network = Network()
    known = digest(network)
    same = [
        digest(network, "ABCXX"), digest(network, allowed="ABC"), digest(network, batch_size=1),
        digest(network, name="other"), digest(network, row_error=0.5),
    ]  # fmt: skip
    assert set(same) == {known}
    others = [
        digest(Network(2)), digest(network, temperature=0.5), digest(network, allowed="AB"),
        digest(network, allowed={0: "AB"}), digest(network, allowed={1: "AB"}),
        digest(network, shift=True), digest(network, "XXBX"),
    ]  # fmt: skip
    assert len({known, *others}) == 1 + len(others)


def test_ids_around_the_positions_count():
    network = Network()
    plain = Letters("ABC", (0, 1, 2), 3)
    framed = [Letters("ABC", (0, 1, 2), 3, prefix=(k,)) for k in (4, 5)]
    digests = {
        SequenceModel("letters", network.eval(), letters, 5).oracle("XX", **QUIET).digest
        for letters in (plain, *framed)
    }
    assert len(digests) == 3


@pytest.fixture(scope="module")
def folding() -> InverseFolding:
    return load_proteinmpnn("1ubi", device="cpu")


def test_a_backbone_and_an_order_of_decoding_count(folding):
    known = folding.oracle(**QUIET).digest
    by_commit = folding.oracle(order="commit", **QUIET)
    assert (
        by_commit.by_index().digest
        == by_commit.retrying(2).by_index().digest
        == known
        != by_commit.digest
    )
    assert folding.oracle(temperature=0.5, **QUIET).digest != known
    backbone = folding.backbone
    moved = backbone.coordinates.copy()
    moved[3, 1, 0] += 1e-3
    other = replace(backbone, coordinates=moved)
    decoder = Decoder(folding.decoder.network, other, "moved")
    assert decoder.content_digest(folding.template(), 1.0, "by index") != known
    assert folding.decoder.content_digest(folding.template(), 1.0, "by index") == known


# ----- Who refuses --------------------------------------------------------------------------


@pytest.fixture
def evaluated(monkeypatch) -> list[int]:
    """States that networks were asked for."""
    states: list[int] = []
    plain = Network.forward

    def forward(network, ids):
        states.append(len(ids))
        return plain(network, ids)

    monkeypatch.setattr(Network, "forward", forward)
    return states


def test_caches_and_structures_of_other_weights_are_refused_before_anything_is_asked(
    evaluated, tmp_path
):
    options = {"progress": False, "oracle_options": QUIET}
    path, file = tmp_path / "replies", tmp_path / "soft.npz"
    template = model(Network()).template("XXBXX")

    def oracle_of(network):
        return model(network).oracle(template, **QUIET)

    oracle = oracle_of(Network())
    cp.infill(oracle.cached(path), progress=False)
    cp.discover(oracle, mode="soft", given=template.given, probes=8).save(file)
    soft = cp.Structure.load(file)
    assert soft.about["oracle_content"] == oracle.digest
    evaluated.clear()
    # Less than the declared row error apart: replies alone do not tell.
    near = Network()
    near.head.bias.data += 1e-7
    with pytest.raises(cp.CacheError, match="its digest is"):
        oracle_of(near).cached(path)
    with pytest.raises(cp.StructureError, match="another than this structure was found with, by"):
        cp.infill(model(near), "XXBXX", structure=soft, **options)
    assert evaluated == []
    drawn = cp.infill(model(Network()), "XXBXX", structure=soft, count=2, **options)
    assert len(drawn) == 2


def test_a_structure_found_by_index_is_recognised_in_commit_order(folding):
    template = folding.template("X" * 4 + folding.backbone.sequence[4:])
    by_index = folding.oracle(template, **QUIET)
    soft = cp.discover(by_index, mode="soft", given=template.given, probes=8)
    oracle = folding.oracle(template, order="commit", row_error=1e-5)
    assert cp.infill(oracle, structure=soft, progress=False).num_completed == 1


def test_an_unknown_content_is_left_to_the_replies(tmp_path):
    network = Network().eval()
    template = LETTERS.template("XXBXX")
    known = TorchOracle(network, template, name="letters", **QUIET)
    unknown = TorchOracle(lambda ids: network(ids), template, name="letters", **QUIET)
    soft = cp.discover(unknown, mode="soft", given=template.given, probes=8)
    assert "oracle_content" not in soft.about
    assert cp.discovery.check_oracle(soft, known).evaluations > 0
    for oracle in (unknown, known):
        cp.sample(oracle.cached(tmp_path / "replies"), "sequential", progress=False)
    assert np.isfinite(soft.row_error)
