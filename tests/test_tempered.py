"""Tempered rows: the law at its temperature, and the rows of temperature 1 that it comes from."""

import numpy as np

from counterprobe.rows import DenseRows, concatenate
from counterprobe.tempered import TemperedRows


def test_tempered_rows_are_the_law_and_keep_the_rows_they_come_from():
    draw = np.random.default_rng(7)
    plain = DenseRows(draw.dirichlet(np.ones(5), size=6))
    rows = TemperedRows.of(plain, 0.05)
    law = plain.tempered(0.05)
    uniforms, tokens = draw.random(6), draw.integers(5, size=6)
    assert np.array_equal(rows.dense(), law.dense()) and np.array_equal(rows.masses, law.masses)
    assert np.array_equal(rows.draw(uniforms), law.draw(uniforms))
    for name in ("entropy", "margin"):
        assert np.array_equal(getattr(rows, name)(), getattr(law, name)())
    for name in ("total_variation", "squared_hellinger", "kl"):
        assert np.array_equal(getattr(rows, name)(plain), getattr(law, name)(plain))
        assert np.array_equal(getattr(plain, name)(rows), getattr(plain, name)(law))
    assert np.array_equal(rows.prob(tokens), law.prob(tokens))
    assert all(np.array_equal(*both) for both in zip(rows.top(), law.top(), strict=True))
    assert all(np.array_equal(*both) for both in zip(rows.above(0.3), law.above(0.3), strict=True))
    assert np.array_equal(rows.tempered(2.0).dense(), law.tempered(2.0).dense())
    assert np.array_equal(rows.excess(plain).dense(), law.excess(plain).dense())
    assert rows.own is plain and plain.own is plain and len(rows) == 6 and rows.vocab_size == 5
    parts = concatenate([rows.take(np.array([0, 3])), rows.take(np.array([5]))])
    assert np.array_equal(parts.own.dense(), plain.dense()[[0, 3, 5]])
    assert np.array_equal(parts.dense(), law.dense()[[0, 3, 5]])


def test_rows_of_two_temperatures_join_without_those_of_one():
    plain = DenseRows(np.array([[0.25, 0.75]]))
    joined = concatenate([TemperedRows.of(plain, 0.5), TemperedRows.of(plain, 2.0)])
    assert joined.own is joined and np.allclose(joined.dense()[0], [0.1, 0.9])
