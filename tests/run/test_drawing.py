"""Rows become tokens by the commit noise of position and draw, at a temperature."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.arguments import as_temperature
from counterprobe.classes import TokenClasses
from counterprobe.rows import ClassedRows, DenseRows
from counterprobe.run.drawing import Scores, draw_tokens

LENGTH = 40
POSITIONS = np.arange(LENGTH)[::-2]


@pytest.fixture
def noise():
    return cp.Streams(3, 4).commit_noise(LENGTH, sequence=2)


@pytest.fixture(params=["dense", "classed"])
def rows(request):
    masses = np.random.default_rng(5).dirichlet(np.ones(6), len(POSITIONS))
    if request.param == "dense":
        return DenseRows(masses)
    # Classes out of token order: tempered rows, which are dense, are drawn from in another order.
    classes = TokenClasses.build(LENGTH, [3, 0, 5, 1, 4, 2, 0, 3])
    return ClassedRows(masses, classes, POSITIONS)


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("index", [0, 2])
def test_a_draw_takes_the_uniform_of_each_position_from_the_tempered_rows(
    noise, rows, temperature, index
):
    tempered = rows if temperature == 1 else rows.tempered(temperature)
    expected = tempered.draw(noise.uniforms(POSITIONS, index))
    scores = np.full(LENGTH, np.nan)
    uniforms = noise.uniforms(POSITIONS, index)
    plain = draw_tokens(rows, uniforms, temperature, None, None)
    scored = draw_tokens(rows, uniforms, temperature, Scores(scores), POSITIONS)
    assert plain.tolist() == scored.tolist() == expected.tolist()
    if temperature == 1 and isinstance(rows, ClassedRows):
        assert (
            expected.tolist() != rows.tempered(1.0).draw(noise.uniforms(POSITIONS, index)).tolist()
        )
    assert (scores[POSITIONS] == tempered.log_prob(expected)).all()
    assert np.isnan(np.delete(scores, POSITIONS)).all()


def test_a_position_that_is_drawn_again_keeps_its_last_score(noise, rows):
    scores = np.zeros(LENGTH)
    for index in (0, 1):
        uniforms = noise.uniforms(POSITIONS, index)
        tokens = draw_tokens(rows, uniforms, 1.0, Scores(scores), POSITIONS)
    assert (scores[POSITIONS] == rows.log_prob(tokens)).all()


@pytest.mark.parametrize("wrong", [-0.1, math.inf, math.nan])
def test_a_temperature_is_finite_and_not_negative(wrong):
    with pytest.raises(ValueError, match="temperature must be finite and at least 0, got"):
        as_temperature(wrong)
    assert as_temperature(0) == 0.0
    assert as_temperature(2) == 2.0
