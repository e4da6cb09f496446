"""Arrays that make no sense are refused by states, rows, laws and tables, in one line each."""

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import counterprobe as cp
from counterprobe.errors import CounterprobeError
from counterprobe.run import Commit
from counterprobe.states import as_states

# A law may rule tokens out; runs say so.
pytestmark = pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
FACTOR = int(os.environ.get("COUNTERPROBE_FUZZ_FACTOR", "1"))
DOCUMENTED = (ValueError, CounterprobeError)
NUMBERS = (0, 1, 2, -1, -2, 0.5, 1.5, -0.25, 1e308, 1e-320, np.nan, np.inf, -np.inf, 2**31, 2**63)
STRANGE = (None, "x", [], [[]], {}, [None], ["a"], True, [[1], [1, 2]], 3, [1j], object())


def quick(examples: int) -> settings:
    return settings(derandomize=True, database=None, deadline=None, max_examples=examples * FACTOR)


def arrays(*dims: int) -> st.SearchStrategy[Any]:
    """Draw nested lists of odd numbers, mostly of a shape, or something else altogether."""
    shape = st.tuples(*(st.sampled_from((d, d, d, 0, d + 1)) for d in dims))

    def filled(sizes: tuple[int, ...]) -> st.SearchStrategy[Any]:
        count = int(np.prod(sizes))
        odd = st.lists(st.sampled_from(NUMBERS), min_size=count, max_size=count)
        fair = st.lists(st.sampled_from((0.25, 0.5, 1.0, 0)), min_size=count, max_size=count)
        values = st.one_of(odd, fair)
        return values.map(lambda v: np.array(v, dtype=object).reshape(sizes).tolist())

    return st.one_of(shape.flatmap(filled), st.sampled_from(STRANGE))


def built(make: Callable[[], Any]) -> Any | None:
    """Return what is made, or None after a documented refusal in one line; no warning either."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return make()
    except DOCUMENTED as refused:
        assert str(refused) and "\n" not in str(refused), repr(refused)
        return None


@quick(150)
@given(arrays(2, 3))
def test_states_are_tokens_or_refused(states):
    made = built(lambda: as_states(states, 3, 4))
    if made is not None:
        assert made.shape[1:] == (3,) and made.min(initial=0) >= -1 and made.max(initial=0) < 4


@quick(150)
@given(arrays(2, 3))
def test_rows_are_laws_or_refused(rows):
    made = built(lambda: cp.CallableOracle(lambda states: rows, 1, 3))
    if made is None:
        return
    run = built(lambda: cp.run.Run(made))
    drawn = built(lambda: run.do(Commit([0])).tokens) if run is not None else None
    assert drawn is None or 0 <= drawn[0] < 3


@quick(150)
@given(arrays(2, 2))
def test_tables_are_laws_or_refused(table):
    law = built(lambda: cp.TableLaw(table))
    if law is not None:
        rows = cp.run.Run(law.oracle()).do(cp.run.Preprocess()).dense()
        assert np.isfinite(rows).all() and np.allclose(rows.sum(axis=-1), 1)


@quick(150)
@given(arrays(3, 2), arrays(2, 2), arrays(2, 2))
def test_forests_are_laws_or_refused(unary, edges, pair):
    law = built(lambda: cp.ForestLaw(unary, edges, pair))
    if law is not None and law.length:
        rows = cp.run.Run(law.oracle()).do(cp.run.Preprocess()).dense()
        assert np.isfinite(rows).all() and np.allclose(rows.sum(axis=-1), 1)


@quick(100)
@given(st.sampled_from(NUMBERS), arrays(2, 2), arrays(2))
def test_edge_lists_make_forests_or_are_refused(length, edges, weights):
    if isinstance(length, int) and length > 100:
        return
    law = built(lambda: cp.families.from_edges(length, edges, weights))
    assert law is None or law.length == length
