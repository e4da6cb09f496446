"""Batches of states asked for as one, against asking for each alone."""

import numpy as np
import pytest

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe.run import joined
from counterprobe.run.joined import Asked, ask_together, cut
from counterprobe.testing import CountingOracle

MASK = cp.MASK


def masked(count: int, length: int) -> np.ndarray:
    return np.full((count, length), MASK, dtype=np.int32)


def random_asked(draw, law, *, shared: bool, num_layers: int | None = None) -> Asked:
    """Some states, perhaps none, with the last two positions masked in all of them."""
    states = draw.integers(-1, 2, size=(draw.integers(0, 4), law.length)).astype(np.int32)
    states[:, -2:] = MASK
    if shared:
        readouts = cp.Readouts.same(len(states), [law.length - 1, law.length - 2])
    else:
        every = cp.Readouts.every_masked(states)
        chosen = draw.permutation(len(every))[: draw.integers(0, len(every) + 1)]
        readouts = cp.Readouts.pairs(every.state_index[chosen], every.position[chosen])
    return Asked(states, readouts, num_layers)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_everybody_gets_the_rows_that_asking_alone_gives_from_one_call(law, shared, count, seed):
    draw = np.random.default_rng([75, seed, count])
    asked = [random_asked(draw, law, shared=shared) for _ in range(count)]
    oracle = CountingOracle(law.oracle())
    answers = ask_together(oracle, asked)
    assert oracle.calls == 1 and oracle.states == sum(len(one.states) for one in asked)
    for one, rows in zip(asked, answers, strict=True):
        alone = law.oracle().rows(one.states, one.readouts)
        assert np.array_equal(rows.masses, alone.masses)
    is_common = oracle.read[0].shared is not None
    assert is_common == shared


class ByState(AttentiveLaw):
    """Attention that depends on the state."""

    def attended_rows(self, states, readouts, num_layers):
        rows, attention = super().attended_rows(states, readouts, num_layers)
        return rows, attention + (states + 1).sum(axis=1)[:, None, None]


@pytest.mark.parametrize("count", [1, 3])
def test_everybody_gets_the_attention_of_his_own_states(law, count):
    draw = np.random.default_rng([76, count])
    weights = draw.random((law.length, law.length))
    asked = [random_asked(draw, law, shared=False, num_layers=2) for _ in range(count)]
    oracle = ByState(law.oracle(), weights)
    for one, (rows, attention) in zip(asked, ask_together(oracle, asked), strict=True):
        alone, expected = ByState(law.oracle(), weights).attended_rows(one.states, one.readouts, 2)
        assert np.array_equal(rows.masses, alone.masses)
        assert np.array_equal(attention, expected)
    assert oracle.calls == [2]


class Reusing(AttentiveLaw):
    """Answers in buffers of its own, which the next call overwrites."""

    rows_buffer = np.empty((64, 3))
    attention_buffer = np.empty((8, 4, 4))

    def rows(self, states, readouts):
        rows = self.rows_buffer[: len(readouts)]
        rows[:] = self.inner.rows(states, readouts).dense()
        return cp.DenseRows(rows)

    def attended_rows(self, states, readouts, num_layers):
        attention = self.attention_buffer[: len(states)]
        attention[:] = self.weights
        return self.rows(states, readouts), attention


@pytest.mark.parametrize("count", [1, 2])
def test_an_answer_of_an_oracle_that_is_not_trusted_is_nobody_elses(table_law, count):
    asked = Asked(masked(1, 4), cp.Readouts.same(1, [0, 2]))
    attended = Asked(masked(1, 4), cp.Readouts.same(1, [0, 2]), 1)
    oracle = Reusing(table_law.oracle(), np.full((4, 4), 0.25))
    rows = ask_together(oracle, [asked] * count)
    both = ask_together(oracle, [attended] * count)
    expected = table_law.oracle().rows(asked.states, asked.readouts).dense()
    oracle.rows_buffer[:], oracle.attention_buffer[:] = -1, -1
    for one, (other, attention) in zip(rows, both, strict=True):
        assert np.array_equal(one.dense(), expected) and np.array_equal(other.dense(), expected)
        assert (attention == 0.25).all()


def test_the_only_answer_of_a_trusted_oracle_is_handed_on_as_it_is(table_law):
    oracle = Reusing(table_law.oracle(), np.full((4, 4), 0.25), trusted=True)
    (rows,) = ask_together(oracle, [Asked(masked(1, 4), cp.Readouts.same(1, [0]))])
    assert rows.masses.base is oracle.rows_buffer


def test_a_reply_of_another_length_is_refused_by_the_name_of_the_oracle(uniform_oracle):
    class Nameless:
        length, vocab_size, row_error, trusted = 3, 4, 0.0, False

        def rows(self, states, readouts):
            return uniform_oracle().rows(states, readouts).take(np.arange(1))

    class Named(Nameless):
        name = "too short"

    asked = Asked(masked(1, 3), cp.Readouts.same(1, [0]))
    for oracle, name in ((Nameless(), "Nameless"), (Named(), "too short")):
        with pytest.raises(cp.OracleError, match=rf"'{name}'.*2 asked, 1 returned"):
            ask_together(oracle, [asked, asked])


# ----- Cutting --------------------------------------------------------------------------------


def plain_cut(sizes: list[int], kinds: list[int | None], most: int) -> list[list[int]]:
    """Take as many neighbours of one kind as fit, and at least one."""
    parts: list[list[int]] = []
    for k, (size, kind) in enumerate(zip(sizes, kinds, strict=True)):
        last = parts[-1] if parts else []
        fits = last and sum(sizes[j] for j in last) + size <= most and kinds[last[-1]] == kind
        if fits:
            last.append(k)
        else:
            parts.append([k])
    return parts


@pytest.mark.parametrize("seed", range(10))
def test_parts_are_as_large_as_memory_and_kind_allow_and_nothing_is_lost(seed, monkeypatch):
    draw = np.random.default_rng([77, seed])
    length = 3
    kinds = [None if draw.random() < 0.5 else int(draw.integers(1, 3)) for _ in range(12)]
    counts = draw.integers(1, 5, size=12).tolist()
    asked = [
        Asked(masked(count, length), cp.Readouts.same(count, [0]), kind)
        for count, kind in zip(counts, kinds, strict=True)
    ]
    sizes = [n * length * (1 if kind is None else length)
             for n, kind in zip(counts, kinds, strict=True)]  # fmt: skip
    assert [one.size for one in asked] == sizes
    numbers = {id(one): k for k, one in enumerate(asked)}
    for most in (1, 9, 12, 27, 10**6):
        monkeypatch.setattr(joined, "MOST_NUMBERS", most)
        found = [[numbers[id(one)] for one in part] for part in cut(asked)]
        assert found == plain_cut(sizes, kinds, most)
