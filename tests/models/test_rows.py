"""Rows of a torch model agree with NumPy rows, piece by piece and whatever their precision."""

import numpy as np
import pytest
import torch

from counterprobe.models import rows as module
from counterprobe.models.rows import TorchRows
from counterprobe.rows import DenseRows, Rows, concatenate, to_numpy


def pair(seed: int, count: int = 23, vocab_size: int = 11) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    p, q = draw.dirichlet(np.full(vocab_size, 0.4), size=(2, count))
    p[draw.random(p.shape) < 0.2] = 0
    p[p.sum(axis=1) == 0, 0] = 1
    return p / p.sum(axis=1, keepdims=True), q


def numbers(rows: Rows, other: Rows, uniforms: np.ndarray) -> dict[str, np.ndarray]:
    tokens = np.arange(len(rows)) % rows.vocab_size
    start, above = rows.above(0.1)
    return {
        "entropy": to_numpy(rows.entropy()),
        "tv": to_numpy(rows.total_variation(other)),
        "hellinger": to_numpy(rows.squared_hellinger(other)),
        "kl": to_numpy(rows.kl(other)),
        "reverse kl": to_numpy(other.kl(rows)),
        "margin": to_numpy(rows.margin()),
        "top": rows.top()[0],
        "top probability": to_numpy(rows.top()[1]),
        "start": start,
        "above": above,
        "prob": to_numpy(rows.prob(tokens)),
        "log_prob": to_numpy(rows.log_prob(tokens)),
        "draw": rows.draw(uniforms),
        "tempered": to_numpy(rows.tempered(0.7).dense()),
        "greedy": to_numpy(rows.tempered(0).dense()),
    }


@pytest.mark.parametrize("piece", [1, 50, 1 << 20])
@pytest.mark.parametrize("size", [(23, 11), (1, 2), (5, 1)])
def test_every_reduction_agrees_with_numpy_rows(monkeypatch, piece, size):
    monkeypatch.setattr(module, "PIECE", piece)
    p, q = pair(4, *size)
    uniforms = np.random.default_rng(5).random(len(p))
    expected = numbers(DenseRows(p), DenseRows(q), uniforms)
    found = numbers(TorchRows(torch.from_numpy(p)), TorchRows(torch.from_numpy(q)), uniforms)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-12, err_msg=name)


def test_single_precision_stays_close_and_draws_the_same():
    p, q = pair(6, 400)
    uniforms = np.random.default_rng(7).random(len(p))
    expected = numbers(DenseRows(p), DenseRows(q), uniforms)
    found = numbers(
        TorchRows(torch.from_numpy(p).float()), TorchRows(torch.from_numpy(q).float()), uniforms
    )
    for name in ("entropy", "tv", "hellinger", "kl", "margin", "draw", "above"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5, err_msg=name)


def test_a_draw_depends_on_its_row_and_its_uniform_alone():
    p, _ = pair(8, 300)
    rows = TorchRows(torch.from_numpy(p).float())
    uniforms = np.random.default_rng(9).random(len(p))
    together = rows.draw(uniforms)
    order = np.random.default_rng(10).permutation(len(p))
    assert np.array_equal(rows.take(order).draw(uniforms[order]), together[order])
    alone = [rows.take(np.array([k])).draw(uniforms[k : k + 1])[0] for k in range(len(p))]
    assert np.array_equal(alone, together)


def test_a_large_vocabulary_in_single_precision_keeps_its_rare_tokens():
    # 2^18 equal tokens: a running sum in single precision is off by whole tokens.
    size = 1 << 18
    rows = TorchRows(torch.full((3, size), 1 / size))
    wanted = np.array([17, size // 2 + 5, size - 1])
    assert np.array_equal(rows.draw((wanted + 0.5) / size), wanted)


def test_a_token_without_mass_is_never_drawn():
    rows = TorchRows(torch.tensor([[0.0, 0.4, 0.6, 0.0]]).repeat(3, 1))
    assert rows.draw(np.array([0.0, 0.5, 1 - 2**-53])).tolist() == [1, 2, 2]


def test_tempered_rows_are_of_the_same_kind_and_draw_the_same():
    p, _ = pair(13, 50)
    rows, plain = TorchRows(torch.from_numpy(p)), DenseRows(p)
    uniforms = np.random.default_rng(14).random(50)
    for temperature in (0, 1e-3, 0.5, 2.0):
        mine, theirs = rows.tempered(temperature), plain.tempered(temperature)
        assert isinstance(mine, TorchRows)
        np.testing.assert_allclose(to_numpy(mine.dense()), theirs.dense(), atol=1e-12)
        assert np.array_equal(mine.draw(uniforms), theirs.draw(uniforms))


def test_parts_join_and_come_apart():
    p, _ = pair(12)
    rows = TorchRows(torch.from_numpy(p))
    parts = [rows.take(np.arange(0, 9)), rows.take(np.arange(9, 23))]
    joined = concatenate(parts)
    assert isinstance(joined, TorchRows)
    assert np.array_equal(to_numpy(joined.dense()), p)
    assert np.array_equal(to_numpy(rows.take(np.array([5, 2, 5])).dense()), p[[5, 2, 5]])
    assert isinstance(rows.with_masses(rows.masses), TorchRows)
