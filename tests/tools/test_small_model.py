"""The small model of the package is the trained one in bytes, and its NumPy network is torch's."""

import numpy as np
import small_model
import torch
from safetensors.torch import load_file

from counterprobe import MASK
from counterprobe.models.small import WEIGHTS, SmallModel, load_small_model


def test_what_the_package_carries_is_what_the_tool_makes():
    made = small_model.arrays()
    with np.load(WEIGHTS) as carried:
        assert set(carried) == set(made)
        for name, value in made.items():
            np.testing.assert_array_equal(carried[name], value)


def test_its_network_is_the_trained_one_and_bytes_move_it_little():
    from denoisers.network import Denoiser, Shape

    model, draw = load_small_model(), np.random.default_rng(3)
    tokens = model.law.sample(12, draw)
    states = np.where(draw.random(tokens.shape) < draw.random((12, 1)), MASK, tokens)
    trained = {name: part.float() for name, part in load_file(small_model.TRAINED).items()}
    network = Denoiser(Shape(64, 16))
    network.load_state_dict(trained)
    known = network.eval().log_rows(torch.as_tensor(states).long()).exp().numpy()
    same = SmallModel({name: part.numpy() for name, part in trained.items()}, model.law)
    assert np.abs(same.rows(states) - known).sum(axis=-1).max() / 2 < 1e-5
    moved = np.abs(model.rows(states) - known).sum(axis=-1) / 2
    assert moved.mean() < 0.01
    assert 1e-4 < moved.max() < 0.05
