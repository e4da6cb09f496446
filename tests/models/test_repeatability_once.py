"""How far rows move is measured once per network and shape of its input, not by every infill."""

import numpy as np
import pytest
import torch

import counterprobe as cp
from command_line import record_of
from counterprobe.models import Letters, SequenceModel

LETTERS = Letters("ABC", (0, 1, 2), 3)
OPTIONS = {"sampler": "sequential", "progress": False}


class Network(torch.nn.Module):
    """A table of logits by position; it counts the states that it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.table = torch.nn.Parameter(torch.randn(16, 4, 3, generator=generator))
        self.states = 0

    def forward(self, ids):
        self.states += len(ids)
        shown = torch.nn.functional.one_hot(ids, 4).to(self.table.dtype)
        return self.table[: ids.shape[1], 3] + (shown @ self.table[0]).mean(1, keepdim=True)


@pytest.fixture
def network() -> Network:
    return Network().eval()


def measured(network, text="XXBXX", **options) -> int:
    model = SequenceModel("letters", network, LETTERS, len(text))
    drawn = cp.infill(model, text, **OPTIONS, **options)
    network.states -= drawn.ledger.evaluations + drawn.measuring.evaluations
    assert network.states == 0, "everything that was sent is counted"
    sent = drawn.ledger.evaluations + drawn.measuring.evaluations
    assert drawn.tokens_per_forward == (np.array(list(text)) == "X").sum() / sent
    return drawn.measuring.evaluations


def test_a_second_infill_measures_nothing(network):
    assert measured(network) > 0
    assert measured(network) == measured(network, "XXAXB") == measured(network, seed=5) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"text": "XXBXXB"}, {"temperature": 0.5},
        {"oracle_options": {"batch_size": 2}},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_another_shape_is_measured_too(network, change):
    measured(network)
    assert measured(network, **change) == measured(Network().eval(), **change)


def test_changed_weights_are_measured_again(network):
    first = measured(network)
    with torch.no_grad():
        network.table += 1
    assert measured(network) == first and measured(network) == 0
    network.double()
    assert measured(network) == first and measured(network) == 0
    assert measured(Network().eval()) == first, "another network"


def test_a_cache_has_the_row_error_of_its_model(tmp_path):
    words = ("infill", "--model", "sapiens-heavy", "--device", "cpu", "--sequence", "EVQLVXXSGG")
    first, again = (record_of(*words, "--cache", tmp_path / "replies") for _ in range(2))
    assert first["measuring"] > 0 == again["measuring"]
    assert first["texts"] == again["texts"]
