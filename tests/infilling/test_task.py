"""Inputs draw with noise of their own: by what they are, not by what stands beside them."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import counterprobe as cp
from counterprobe.infilling.task import input_digest, make_task
from counterprobe.models import SequenceModel, Template
from counterprobe.samplers.registry import build_sampler

LENGTH, PAIRS = 16, 40
RULES: dict[str, dict[str, Any]] = {
    "sequential": {"order": "random"},
    "random-balanced": {"batches": 3},
    "threshold": {},
    "auto": {},
}


@pytest.fixture(scope="module")
def independent() -> cp.ForestLaw:
    """A law whose rows no context changes."""
    weights = np.exp(np.random.default_rng(4).normal(size=(LENGTH, 3)))
    return cp.ForestLaw(weights, [], np.empty((0, 3, 3)))


def contexts(seed: int) -> np.ndarray:
    """Return different inputs that mask the same twelve positions."""
    words = np.random.default_rng(seed).permutation(3**4)[: 2 * PAIRS]
    given = np.full((2 * PAIRS, LENGTH), cp.MASK)
    given[:, :4] = words[:, None] // 3 ** np.arange(4) % 3
    return given


def are_too_alike(law: cp.ForestLaw, sequences: np.ndarray, level: float) -> bool:
    """Whether neighbours agree on more tokens than independent draws would, exactly."""
    rows = law.unary[4:] / law.unary[4:].sum(axis=1, keepdims=True)
    counts = np.arange(PAIRS + 1)
    chances = reduce(np.convolve, [binom.pmf(counts, PAIRS, p) for p in (rows**2).sum(axis=1)])
    agreed = int((sequences[::2, 4:] == sequences[1::2, 4:]).sum())
    return bool(chances[agreed:].sum() < level)


@pytest.mark.statistical
@pytest.mark.parametrize("name", RULES)
def test_different_inputs_agree_on_no_more_tokens_than_independent_draws(
    name: str, independent: cp.ForestLaw, seed_of: Callable[[int], int], false_alarms: float
) -> None:
    """Forty pairs of inputs on twelve positions: an excess of a tenth of the tokens is seen."""
    oracle, seed = independent.oracle(), seed_of(11)
    level = false_alarms / len(RULES)
    options = {"seed": seed, "progress": False, **RULES[name]}
    drawn = [cp.infill(oracle, one, sampler=name, **options) for one in contexts(seed)]
    assert not are_too_alike(independent, np.concatenate([b.sequences for b in drawn]), level)
    # One law's sequence of one number has one noise, whatever is given: the check sees that.
    shared = [cp.sample(oracle, name, given=one, **options) for one in contexts(seed)[:8]]
    control = np.tile(np.concatenate([b.sequences for b in shared]), (PAIRS // 4, 1))
    assert are_too_alike(independent, control, level)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", [1, 5])
def test_the_first_sequences_of_an_input_do_not_depend_on_how_many_are_drawn(
    name: str, seed: int, independent: cp.ForestLaw
) -> None:
    options = {"sampler": name, "seed": seed, "progress": False, **RULES[name]}
    given = contexts(0)[3]
    many = cp.infill(independent.oracle(), given, count=7, **options)
    few = cp.infill(independent.oracle(), given, count=3, **options)
    assert np.array_equal(many.sequences[:3], few.sequences)
    again = cp.infill(independent.oracle().retrying(2), given, count=7, at_once=2, **options)
    assert np.array_equal(many.sequences, again.sequences)
    assert len({row.tobytes() for row in many.sequences}) > 1
    result = many.results[4]
    rule = build_sampler(name, RULES[name])
    run = cp.run.Run(independent.oracle(), given=result.given, sequence=result.sequence)
    assert rule(run, result.streams).tokens.tolist() == many.sequences[4].tolist()


def test_equal_inputs_of_one_call_draw_apart_with_the_same_decisions(
    independent: cp.ForestLaw,
) -> None:
    task = make_task(independent.oracle(), contexts(0)[0])
    rule = {"sampler": "sequential", "order": "random", "progress": False}
    first, second = (cp.infill(replace(task, occurrence=k), **rule) for k in (0, 1))
    assert not np.array_equal(first.sequences, second.sequences)
    rounds = [batch.results[0].round_of_position.tolist() for batch in (first, second)]
    assert rounds[0] == rounds[1]
    seeds = {replace(task, occurrence=k).streams(7).commit_seed for k in range(50)}
    assert len(seeds) == 50


def test_ids_masks_and_backbone_tell_inputs_apart_and_nothing_else(
    forest_law: cp.ForestLaw, spelled: Callable[[cp.ForestLaw], SequenceModel]
) -> None:
    model = spelled(forest_law)
    task = make_task(model, "XXBXX")
    same = [
        make_task(model, "XXBXX", allowed={0: "AB"}, temperature=0.5),
        make_task(model.oracle("XXBXX").retrying(2)),
        make_task(model.oracle("XXXXX"), task.given),
    ]
    assert {one.streams(3).commit_seed for one in same} == {task.streams(3).commit_seed}
    others = [make_task(model, text) for text in ("XXAXX", "XBXXX", "XXBXA")]
    assert len({one.streams(3).commit_seed for one in (task, *others)}) == 4
    assert task.streams(3).commit_seed != task.streams(4).commit_seed

    # A prompt in ids that are never drawn, and where a backbone is, are part of the input too.
    framed = [Template.from_ids([k, 1, 9, 9], 9, range(5)) for k in (7, 8)]
    places = np.random.default_rng(1).normal(size=(2, 3, 3))
    framed += [replace(framed[0], coordinates=coordinates) for coordinates in places]
    assert len({input_digest(one.given, one) for one in framed}) == 4
