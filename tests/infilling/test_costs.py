"""A rule that takes more than one at a time says so: before, or when it happens, once."""

import warnings

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.errors import CostWarning
from counterprobe.states import MASK


class Watched:
    """An oracle that keeps how often it was asked when a warning came."""

    def __init__(self, law: cp.ForestLaw) -> None:
        self.inner = law.oracle()
        self.length, self.vocab_size, self.row_error = law.length, law.vocab_size, 0.0
        self.states = 0

    def rows(self, states, readouts):
        self.states += len(states)
        return self.inner.rows(states, readouts)


def warned(sampler: str, count: int = 1, **options: object) -> list[tuple[str, int]]:
    """Return the warnings of an infill, each with the states that were evaluated before it."""
    oracle = Watched(cp.families.path(12, target_seed=1))
    heard: list[tuple[str, int]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", CostWarning)
        warnings.showwarning = lambda message, *where: heard.append((str(message), oracle.states))
        cp.infill(oracle, sampler=sampler, count=count, progress=False, **options)
    return heard


@pytest.mark.parametrize("sampler", ["compressed", "lookum"])
def test_what_is_known_beforehand_is_said_before_the_first_evaluation(sampler):
    ((said, states),) = warned(sampler)
    assert states == 0
    assert said.startswith(f"{sampler} will take about ")
    assert said.endswith('for 12 masks, more than one at a time, 12; sampler="auto" never does')


def test_that_nothing_is_screened_is_said_before_the_first_evaluation():
    ((said, states),) = warned("packed")
    assert states == 0
    assert said.startswith("packed would take about ")
    assert "for 12 positions, more than one at a time, and so decodes one position at a" in said


def test_what_is_not_known_is_said_once_as_soon_as_it_happens():
    ((said, states),) = warned("punt", epsilon=-1.0)
    assert 12 < states <= 12 + 5
    assert said.startswith(f"punt has taken {states} evaluations for 12 masks, more than one at a")
    assert " masks left; " in said


@pytest.mark.parametrize("sampler", ["auto", "sequential", "spread", "entropy-bounded"])
def test_a_rule_that_takes_no_more_says_nothing(sampler):
    assert warned(sampler) == warned(sampler, 5) == []


def test_what_many_designs_share_is_held_against_all_of_them():
    assert warned("compressed", 200) == []


def test_nothing_masked_costs_nothing():
    law = cp.families.path(4, target_seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CostWarning)
        done = cp.infill(law.oracle(), np.zeros(4, dtype=int), sampler="packed", progress=False)
    assert (done.sequences != MASK).all() and done.ledger.evaluations == 0


def test_progress_is_told_all_the_same():
    told: list[cp.run.Progress] = []
    law = cp.families.path(12, target_seed=1)
    listener = cp.run.Listener(told.append, cp.run.Progress)
    cp.infill(law.oracle(), sampler="sequential", on_event=listener)
    assert [now.committed for now in told] == list(range(1, 13))
