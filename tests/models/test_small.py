"""The small model that comes with the package: the trained network, nearly, without torch."""

import subprocess
import sys

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import MASK, testing
from counterprobe.models.small import WEIGHTS, SmallModel, load_small_model


@pytest.fixture(scope="module")
def model() -> SmallModel:
    return load_small_model()


@pytest.fixture(scope="module")
def states(model) -> np.ndarray:
    draw = np.random.default_rng(3)
    tokens = model.law.sample(12, draw)
    return np.where(draw.random(tokens.shape) < draw.random((12, 1)), MASK, tokens)


def test_it_is_small_and_needs_no_torch(tmp_path):
    assert WEIGHTS.stat().st_size < 1_000_000
    code = (
        "import sys; sys.modules['torch'] = None; import counterprobe as cp\n"
        "print(cp.models.load_small_model().oracle().length)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "64"


def test_it_has_learned_its_law(model, states):
    exact = model.law.oracle()
    readouts = cp.Readouts.every_masked(states)
    rows, truth = (
        cp.rows.to_numpy(one.rows(states, readouts).dense()) for one in (model.oracle(), exact)
    )
    marginals = cp.rows.to_numpy(model.law.marginals().dense())[readouts.position]
    off, blind = (np.abs(one - truth).sum(axis=1).mean() / 2 for one in (rows, marginals))
    assert off < 0.2 * blind
    testing.check_oracle(model.oracle())
