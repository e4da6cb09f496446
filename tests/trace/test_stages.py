"""What a trace keeps of rows: likeliest tokens, entropies, how far rows moved."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run import Preprocess
from counterprobe.trace import stages
from counterprobe.trace.arrays import unpack
from counterprobe.trace.stages import Reference, likeliest, response_levels, summarise


def plain_likeliest(table, count):
    """Sort every row by falling probability, then by token."""
    found = []
    for row in table:
        order = sorted(range(len(row)), key=lambda token: (-row[token], token))[:count]
        found.append([(token, row[token]) for token in order])
    return found


@pytest.mark.parametrize("vocab_size", [1, 2, 3, 50])
def test_likeliest_tokens_are_those_of_a_sort(monkeypatch, vocab_size):
    monkeypatch.setattr(stages, "AT_ONCE", 120)  # several parts
    draw = np.random.default_rng(3)
    table = draw.integers(0, 6, size=(40, vocab_size)) + 1.0  # many ties
    table /= table.sum(axis=1, keepdims=True)
    tokens, masses = likeliest(cp.rows.DenseRows(table), 3)
    assert tokens.shape == (40, min(3, vocab_size))
    for row, (ids, mass) in enumerate(zip(tokens, masses, strict=True)):
        assert list(zip(ids, mass, strict=True)) == plain_likeliest(table, 3)[row]


def test_classed_rows_have_the_likeliest_tokens_of_their_dense_form(forest_law):
    run = cp.run.Run(forest_law.oracle())
    rows = run.do(Preprocess())
    tokens, masses = likeliest(rows, 4)
    other, dense = likeliest(cp.rows.DenseRows(rows.dense()), 4)
    assert (tokens == other).all()
    assert np.abs(masses - dense).max() < 1e-12


def test_a_summary_holds_entropies_to_half_a_step():
    table = np.random.default_rng(4).dirichlet(np.ones(9), size=60)
    said = summarise(cp.rows.DenseRows(table))
    entropy = -(table * np.log(table)).sum(axis=1)
    assert np.abs(unpack(said["entropy"]) - entropy).max() <= 0.501 * np.log(9) / 255
    assert unpack(said["top"])[:, 0].tolist() == table.argmax(axis=1).tolist()
    assert unpack(said["mass"]).shape == (60, 3)


def plain_level(distance, row_error):
    if distance <= 2 * row_error:
        return 0
    for level in range(1, 16):
        if distance <= 2.0 ** (level - 15):
            return level
    raise AssertionError


def test_levels_are_powers_of_two_above_twice_the_row_error():
    exact = [2.0**-k for k in range(20)]
    draw = np.random.default_rng(6).random(300) ** 8
    for row_error in (0.0, 1e-12, 1e-3, 0.2):
        distances = np.array([0.0, row_error, 2 * row_error, *exact, *draw])
        levels = response_levels(distances, row_error)
        assert levels.tolist() == [plain_level(d, row_error) for d in distances.tolist()]


def test_a_reference_keeps_the_first_row_of_each_position():
    draw = np.random.default_rng(7)
    first, second = (cp.rows.DenseRows(draw.dirichlet(np.ones(4), size=3)) for _ in range(2))
    reference = Reference(6)
    reference.extend(np.array([4, 1, 4]), first)
    assert reference.knows(np.array([1, 4]))
    assert not reference.knows(np.array([0]))
    reference.extend(np.array([1, 0, 0]), second)
    asked = cp.Readouts.pairs([0, 0, 0], [4, 1, 0])
    kept = cp.rows.DenseRows(np.stack([first.dense()[0], first.dense()[1], second.dense()[1]]))
    assert reference.distance(asked, kept).max() == 0.0
    other = cp.rows.DenseRows(second.dense())
    expected = np.abs(other.dense() - kept.dense()).sum(axis=1) / 2
    assert np.allclose(reference.distance(asked, other), expected)
