"""Every oracle keeps the contract, and the checks notice one that does not."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import testing
from counterprobe.oracles import Attends, AttentionQuery, FollowsRuns
from counterprobe.testing import ConformanceError

LAWS = {
    "table": testing.small_table(),
    "forest": testing.small_forest(),
    "path": cp.families.path(30, target_seed=1),
    "hard-matching": cp.families.build("hard-matching", 16, 1),
}
ORACLES = {
    **{name: law.oracle() for name, law in LAWS.items()},
    "noise": cp.FrozenNoise(LAWS["path"].oracle(), radius=1e-3),
    "one position": cp.TableLaw([0.2, 0.8]).oracle(),
    "one token": cp.TableLaw(np.ones((1, 1, 1))).oracle(),
    "counting": testing.CountingOracle(LAWS["forest"].oracle()),
    "piecewise": testing.PiecewiseOracle(LAWS["forest"].oracle()),
}


@pytest.mark.parametrize("check", testing.ORACLE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", list(ORACLES))
def test_every_oracle_conforms(check, name):
    check(ORACLES[name])


class Attending(testing.CountingOracle):
    """An oracle with attention, spoiled as a test wants it."""

    spoil = staticmethod(lambda states, rows, weights: (rows, weights))

    def ability(self, kind):
        return self if kind is Attends else super().ability(kind)

    def ask(self, query):
        if isinstance(query, AttentionQuery):
            return query.put_to(self)
        return super().ask(query)

    def attend(self, states, readouts, layers):
        rows = self.inner.rows(states, readouts)
        weights = np.full((len(states), self.length, self.length), 1 / self.length)
        return self.spoil(states, rows, weights)


def test_attention_conforms_and_what_is_wrong_with_it_is_noticed():
    law = LAWS["forest"]
    oracle = Attending(law.oracle())
    testing.check_oracle(oracle)
    for said, spoil in {
        "negative or not finite": lambda states, rows, weights: (rows, -weights),
        "must return attention": lambda states, rows, weights: (rows, weights[:, 1:]),
        "sums to 2": lambda states, rows, weights: (rows, 2 * weights),
        "when asked alone": lambda states, rows, weights: (rows, weights / len(states)),
        "rows beside attention": lambda states, rows, weights: (
            rows.take(np.arange(len(rows))[::-1]), weights,
        ),
    }.items():  # fmt: skip
        oracle.spoil = spoil
        with pytest.raises(ConformanceError, match=said):
            testing.check_oracle(oracle)


def test_a_function_conforms(uniform_oracle):
    testing.check_oracle(uniform_oracle(6, 4))
    testing.check_oracle(uniform_oracle(6, 4, batch_size=2))


class Broken:
    """An oracle with one thing wrong."""

    length, vocab_size, row_error, trusted = 6, 3, 0.0, False

    def __init__(self, spoil) -> None:
        self.spoil = spoil
        self.calls = 0

    def rows(self, states, readouts):
        self.calls += 1
        rows = np.full((len(readouts), 3), 1 / 3)
        return cp.rows.DenseRows(self.spoil(self, states, readouts, rows))


def drift(oracle, states, readouts, rows):
    rows[:] = [0.5 / oracle.calls, 0.5 / oracle.calls, 1 - 1 / oracle.calls]
    return rows


def mix(oracle, states, readouts, rows):
    share = len(states) / 10
    rows[:] = [share, 0.5 - share, 0.5]
    return rows


def write(oracle, states, readouts, rows):
    states[states < 0] = 0
    return rows


def unnormalised(oracle, states, readouts, rows):
    return rows * 2


def short(oracle, states, readouts, rows):
    return rows[1:]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (drift, "another row the second time"),
        (mix, "moved by .* when asked alone"),
        (write, "wrote into the states"),
        (unnormalised, "sums to 2"),
        (short, "one row per readout"),
    ],
)
def test_a_broken_oracle_is_caught(spoil, message):
    with pytest.raises(ConformanceError, match=message):
        testing.check_oracle(Broken(spoil))


def test_what_is_no_oracle_is_caught(table_law):
    with pytest.raises(ConformanceError, match="oracle must have length, vocab_size"):
        testing.check_oracle(table_law)


@pytest.mark.parametrize("is_ordered", [True, False])
def test_kept_work_that_forgets_is_caught(is_ordered):
    class Stale(testing.CountingOracle):
        """Answers a run from the first state that it was shown of it."""

        first = None

        follows_many, depends_on_order, follow = False, is_ordered, None

        def ability(self, kind):
            return self if kind is FollowsRuns else None

        def ask(self, query):
            if getattr(query, "runs", None) is None:
                return super().ask(query)
            self.first = query.states.copy() if self.first is None else self.first
            return super().ask(cp.Query(self.first, query.readouts))

    with pytest.raises(ConformanceError, match="rows along a run are"):
        testing.check_oracle(Stale(cp.families.path(12, target_seed=1).oracle()))


def test_rows_must_be_as_close_to_the_law_as_declared():
    law = LAWS["path"]
    testing.check_oracle(law.oracle(), law)
    testing.check_oracle(ORACLES["noise"], law)
    other = cp.families.path(30, target_seed=2)
    with pytest.raises(ConformanceError, match=r"off in TV, but it declares 1e-12"):
        testing.check_oracle(law.oracle(), other)
