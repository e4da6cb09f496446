"""Prices belong to a context: soft structures draw where theirs holds, or one was measured."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import testing
from counterprobe.discovery import average_structures
from counterprobe.evaluation.prices import price_plans
from counterprobe.infilling import carrying
from counterprobe.planning import plan_for
from counterprobe.samplers import as_sampler
from counterprobe.samplers.planned import MeasuredPrice, Planned

MASK = cp.MASK
STREAMS = cp.Streams(5, 6)
# Gates, pairs, tokens, strength of an open pair, seed.
CASES = [(1, 2, 2, 1.0, 0), (2, 3, 2, 2.5, 1), (2, 2, 3, 4.0, 2)]


def gated(gates: int, pairs: int, vocab_size: int, strength: float, seed: int) -> cp.TableLaw:
    """Pairs that depend on each other only while all gates, the first positions, show 0."""
    rng = np.random.default_rng(seed)
    length = gates + 2 * pairs
    shown = np.indices((vocab_size,) * length)
    is_open = (shown[:gates] == 0).all(axis=0)
    table = np.ones(is_open.shape)
    for i in range(gates, length, 2):
        pair = np.exp(strength * rng.permutation(np.eye(vocab_size)))
        table *= np.where(is_open, pair[shown[i], shown[i + 1]] / pair.sum(), vocab_size**-2.0)
    return cp.TableLaw(table / table.sum())


def context(law: cp.TableLaw, gates: int, token: int) -> np.ndarray:
    given = np.full(law.length, MASK)
    given[:gates] = token
    return given


def found_in(law: cp.TableLaw, given: np.ndarray, seed: int = 0) -> cp.Structure:
    streams = cp.Streams.from_seed(seed)
    return cp.discover(law.oracle(), streams, mode="soft", given=given, probes=64)


def broken(table: np.ndarray, given: np.ndarray, batches: tuple[tuple[int, ...], ...]) -> float:
    """Return what batches break in the mean over their draws, by enumeration."""
    histories, total = {tuple(given.tolist()): 1.0}, 0.0
    for batch in batches:
        after: dict[tuple[int, ...], float] = {}
        for history, weight in histories.items():
            left = [k for k, token in enumerate(history) if token == MASK]
            rest = table[tuple(slice(None) if token == MASK else token for token in history)]
            joint = rest.sum(axis=tuple(a for a, k in enumerate(left) if k not in batch))
            joint = joint / joint.sum()
            product = np.ones(())
            for axis in range(len(batch)):
                others = tuple(a for a in range(len(batch)) if a != axis)
                product = np.multiply.outer(product, joint.sum(axis=others))
            total += weight * float((product * np.log(product / joint)).sum())
            for tokens in itertools.product(*map(range, joint.shape)):
                state = list(history)
                for k, token in zip(batch, tokens, strict=True):
                    state[k] = token
                key = tuple(state)
                after[key] = after.get(key, 0.0) + weight * float(product[tokens])
        histories = after
    return total


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> tuple[cp.TableLaw, list[np.ndarray]]:
    """A law, and the contexts of its closed and its open gates."""
    law = gated(*request.param)
    return law, [context(law, request.param[0], token) for token in (1, 0)]


@pytest.fixture(scope="module")
def law() -> cp.TableLaw:
    return gated(*CASES[1])


@pytest.fixture(scope="module")
def closed(law) -> cp.Structure:
    """Found behind closed gates, where nothing depends on anything."""
    return found_in(law, context(law, 2, 1))


# ----- What is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("there", [0, 1])
def test_other_values_of_the_context_are_refused_before_anything_is_asked(case, there):
    law, contexts = case
    oracle = testing.CountingOracle(law.oracle())
    found, here = found_in(law, contexts[there]), contexts[1 - there]
    rule = as_sampler(found, {"batches": 1})
    token = contexts[there][0]
    said = (
        f"another context, which differs at .* first at 0: token {token} there, token {1 - token}"
    )
    for draw in (
        lambda: cp.sample(oracle, found, 2, given=here, batches=1, progress=False),
        lambda: cp.sample(oracle, rule, 2, given=here, progress=False),
        lambda: cp.sample(oracle, rule, 1, given=here, progress=False),
        lambda: rule(cp.run.Run(oracle, given=here), STREAMS),
    ):
        with pytest.raises(cp.StructureError, match=said):
            draw()
    assert oracle.states == 0


def test_other_masks_are_refused_too(law, closed):
    more, fewer, both = closed.given.copy(), closed.given.copy(), closed.given.copy()
    more[5], fewer[0] = 0, MASK
    both[0], both[5] = MASK, 0
    for given, said in (
        (more, "at 1 of 8 positions, first at 5: masked there, token 0 here"),
        (fewer, "at 1 of 8 positions, first at 0: token 1 there, masked here"),
        (both, "at 2 of 8 positions, first at 0: token 1 there, masked here"),
        (np.stack([closed.given, more]), "at 1 of 8 positions, first at 5: masked there"),
    ):
        with pytest.raises(cp.StructureError, match=said):
            cp.sample(law.oracle(), closed, 2, given=given, batches=2, progress=False)
    rule = as_sampler(closed, {"batches": 2})
    with pytest.raises(cp.StructureError, match="has 8 positions, the context 7"):
        rule.drawing(more[None, 1:], 1.0)


def test_files_and_means_and_what_was_carried_are_refused_alike(law, closed, tmp_path):
    opened = context(law, 2, 0)
    closed.save(tmp_path / "closed.npz")
    carried = closed.in_context(opened)
    carried.save(tmp_path / "carried.npz")
    mean = average_structures([closed, found_in(law, opened)])
    mean.save(tmp_path / "mean.npz")
    for name, said in (
        ("closed", "found in another context, which differs"),
        ("carried", "found in another context, with 6 positions masked"),
        ("mean", "found in another context, which differs"),
    ):
        again = cp.Structure.load(tmp_path / f"{name}.npz")
        with pytest.raises(cp.StructureError, match=said):
            cp.sample(law.oracle(), again, 2, given=opened, batches=2, progress=False)
    with pytest.raises(cp.StructureError, match="averaged over 2 contexts: what its plans break"):
        cp.sample(law.oracle(), mean, 2, batches=2, progress=False)
    with pytest.raises(cp.StructureError, match=r"infill.* measures what it breaks"):
        cp.sample(law.oracle(), as_sampler(carried), 2, given=opened, progress=False)
    assert closed.in_context(closed.given) is closed
    back = carried.in_context(closed.given)
    assert back.origin == carried.origin, "what was left out on the way does not come back"


# ----- What is said -----------------------------------------------------------------------------


def test_where_it_was_found_it_draws_at_its_own_price(case):
    law, contexts = case
    for given in contexts:
        found = found_in(law, given)
        for how in ({}, {"given": given}, {"given": np.stack([given] * 3)}):
            drawn = cp.sample(law.oracle(), found, 3, batches=2, progress=False, **how)
            plan = plan_for(found, batches=2)
            report = drawn.results[0].diagnostics
            assert (report.estimated_kl, report.by) == (
                plan.estimated_kl,
                "estimated from pairs by held-out probes",
            )


def test_what_was_found_elsewhere_says_so_and_names_no_price(law, closed):
    here = closed.in_context(context(law, 2, 0))
    assert "found in another context, with 6 positions masked: no price here" in repr(here)
    assert "no price here" in str(here) and here.summary()["found_masked"] == 6
    assert closed.origin is None and "no price" not in str(closed)
    for method in ("layers", "search"):
        plan = plan_for(here, batches=2, method=method)
        told = plan.as_dict()
        for name in ("estimated_kl", "estimated_kl_se", "uncovered", "dropped"):
            assert told[name] is None
        assert "no price" in repr(plan) and "nats" not in str(plan) and not plan.is_held_out
    exact = plan_for(here, batches=6)
    assert exact.estimated_kl == exact.uncovered == 0
    for price in price_plans(law.oracle(), here, (2,), samples=4, terms=2).prices:
        assert price.as_dict()["estimated_kl"] is None and price.as_dict()["uncovered"] is None
        assert price.measured.value > 0 or price.way == "spread"


def test_no_price_is_told_of_draws_at_another_temperature(law):
    found = found_in(law, context(law, 2, 0))
    for count in (1, 3):
        cold = cp.sample(law.oracle(), found, count, batches=2, temperature=0.5, progress=False)
        (note,) = cold.results[0].notes
        assert note == "no price: drawn at temperature 0.5, prices are of temperature 1"
        assert math.isnan(cold.results[0].diagnostics.estimated_kl)
    one = cp.sample(law.oracle(), found, 1, batches=6, temperature=0.5, progress=False)
    assert one.results[0].notes[0].startswith("0 ± 0 nats broken: every position is committed al")


def test_events_tell_no_price_of_another_context(law, closed, tmp_path):
    here = closed.in_context(context(law, 2, 0))
    rule = Planned.of(here, batches=2)
    with pytest.raises(cp.StructureError, match="is not known"):
        rule(cp.run.Run(law.oracle(), given=here.given), STREAMS)
    drawn = cp.infill(
        law.oracle(), here.given, structure=closed, batches=2, progress=False,
        trace=tmp_path / "run.json",
    )  # fmt: skip
    trace = cp.trace.load_trace(tmp_path / "run.json")
    assert drawn.choice.sampler == "spread" or all(
        event["price"] is None for event in trace.events if event["type"] == "plan"
    )


# ----- What is measured -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_prices_that_infill_measures_hold_in_the_new_context(seed, monkeypatch):
    """By enumeration: also where a gate is masked, more is given, or few sequences are drawn."""
    priced = []
    real = carrying.plan_kl

    def kept(oracle, plans, **how):
        priced.append((plans, real(oracle, plans, **how)))
        return priced[-1][1]

    monkeypatch.setattr(carrying, "plan_kl", kept)
    rng = np.random.default_rng(seed)
    law = gated(2, 2 + seed % 2, 2, float(rng.uniform(1, 3)), seed)
    found = found_in(law, context(law, 2, 1), seed)
    given = context(law, 2, 0)
    if seed % 2:
        given[0] = MASK
    else:
        given[2] = int(rng.integers(2))
    drawn = cp.infill(
        law.oracle(), given, structure=found, batches=2, count=[1, 12][seed % 2], seed=seed,
        progress=False,
    )  # fmt: skip
    for plans, measured in priced:
        exact = [
            broken(law.table, given, tuple(tuple(batch.tolist()) for batch in plan))
            for plan in plans
        ]
        truth = np.mean([exact[k % len(plans)] for k in range(measured.samples)])
        low, high = measured.interval
        assert low - 1e-9 <= truth <= high + 1e-9
        assert f"(at most {high:.2g} at 95%)" in drawn.choice.why
    for one in drawn.results:
        if drawn.choice.sampler == "planned":
            report = one.diagnostics
            assert (report.estimated_kl, report.estimated_kl_se) == drawn.choice.prices["planned"]
            assert "measured in this context" in one.notes[0]


def test_a_mean_and_what_was_carried_are_priced_where_they_seem_at_home(law, closed, tmp_path):
    opened = context(law, 2, 0)
    carried = closed.in_context(opened)
    carried.save(tmp_path / "carried.npz")
    mean = average_structures([closed, found_in(law, opened)])
    for structure in (carried, cp.Structure.load(tmp_path / "carried.npz"), mean):
        oracle = testing.CountingOracle(law.oracle())
        drawn = cp.infill(
            oracle, structure.given, structure=structure, batches=2, count=4, progress=False
        )
        assert set(drawn.choice.prices) == {"planned", "spread"}
        assert structure.origin in drawn.choice.why
        assert drawn.ledger.evaluations == oracle.states > drawn.choice.ledger.evaluations > 0


def test_a_rule_draws_by_a_price_that_was_measured_in_its_context_and_in_no_other(law, closed):
    here = closed.in_context(context(law, 2, 0))
    measured = MeasuredPrice(0.5, 0.1, "measured here")
    rule = Planned(2, strength=here.strength, found=here, price=measured)
    drawn = cp.sample(law.oracle(), rule, 2, given=here.given, progress=False)
    assert drawn.results[1].notes[0].startswith("0.5 ± 0.1 nats measured here")
    with pytest.raises(cp.StructureError, match="another context, which differs at 2 of 8"):
        cp.sample(law.oracle(), rule, 2, given=closed.given, progress=False)
