"""Weights are read without running code, and refused when they are not what the model needs."""

import pickle
from pathlib import Path

import pytest
import torch

from counterprobe.models.weights import default_device, fill_in, read_checkpoint, tensors_of


@pytest.fixture
def module() -> torch.nn.Module:
    return torch.nn.Linear(3, 2)


def test_what_was_saved_comes_back(module, tmp_path):
    file = tmp_path / "weights.pt"
    torch.save({"model": module.state_dict(), "epoch": 3}, file)
    other = torch.nn.Linear(3, 2)
    fill_in(other, tensors_of(read_checkpoint(file), file, "model"), file)
    assert torch.equal(other.weight, module.weight)


class Evil:
    """Runs something when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("ran"),)


def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "weights.pt"
    torch.save({"model": Evil()}, file)
    with pytest.raises(ValueError, match=r"weights\.pt holds no weights that can be read safely"):
        read_checkpoint(file)
    file.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="holds no weights that can be read safely"):
        read_checkpoint(file)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"no pickle at all", b"PK\x03\x04 broken archive"])
def test_a_damaged_file_is_refused(tmp_path, content):
    file = tmp_path / "weights.pt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="holds no weights that can be read safely"):
        read_checkpoint(file)


def test_a_pickle_that_is_no_state_dict_is_refused(tmp_path):
    file = tmp_path / "weights.pt"
    torch.save([torch.zeros(2)], file)
    with pytest.raises(ValueError, match="must hold a dictionary of weights, got list"):
        read_checkpoint(file)
    torch.save({"weight": 3}, file)
    with pytest.raises(ValueError, match="no state dict: 'weight' is of type int, not a tensor"):
        tensors_of(read_checkpoint(file), file)
    with pytest.raises(ValueError, match="holds no state dict under 'model'"):
        tensors_of(read_checkpoint(file), file, "model")
    with pytest.raises(ValueError, match="there are no weights at"):
        read_checkpoint(tmp_path / "absent.pt")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s: s.pop("bias"), "it lacks bias$"),
        (lambda s: s.clear(), "it lacks weight and 1 more$"),
        (lambda s: s.update(scale=torch.ones(1)), "it also has scale$"),
        (lambda s: s.update(bias=torch.ones(5)), r"size mismatch for bias.*\[5\].*\[2\]"),
    ],
)
def test_weights_that_do_not_match_are_named(module, change, problem):
    state = dict(module.state_dict())
    change(state)
    with pytest.raises(ValueError, match=problem) as error:
        fill_in(torch.nn.Linear(3, 2), state, Path("weights.pt"))
    assert "\n" not in str(error.value)


def test_what_is_known_to_be_unused_may_be_there(module):
    state = {**module.state_dict(), "species.weight": torch.ones(1)}
    fill_in(torch.nn.Linear(3, 2), state, Path("weights.pt"), unused=["species."])


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert default_device("cpu") == default_device() == torch.device("cpu")
    with pytest.raises(ValueError, match=r"device must be there, got 'cuda:1' and no GPU"):
        default_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert default_device("cuda") == default_device() == torch.device("cuda")
    with pytest.raises(ValueError, match=r"one of the 1 GPUs that can be seen, got 'cuda:1'; a"):
        default_device("cuda:1")
    with pytest.raises(ValueError, match=r"that torch knows, .* got 'warp'"):
        default_device("warp")
