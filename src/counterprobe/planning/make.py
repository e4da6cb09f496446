"""Plans from strengths: by number of batches, by budget for a batch, by price of the whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.graph import components
from counterprobe.planning.layers import forest_cut, layered_plan
from counterprobe.planning.plan import Coverage, Plan
from counterprobe.planning.search import searched_plan
from counterprobe.planning.strengths import Strengths, batch_prices, check_strength, priced

__all__ = ["TARGET_KL", "PlanMethod", "check_request", "make_plan", "price_curve"]

PlanMethod = Literal["auto", "layers", "search"]
# Share of the strength that weak pairs inside batches may hold for a forest's plan to stand.
MOST_WEAK = 0.02
# Nats that a plan of a structure may break when nothing else is said.
TARGET_KL = 0.1
Offer = tuple[Plan, FloatArray]  # a plan, and the price of each of its batches


def make_plan(
    strength: ArrayLike,
    *,
    positions: ArrayLike | None = None,
    batches: int | None = None,
    information_budget: float | None = None,
    target_kl: float | None = None,
    strength_se: ArrayLike | None = None,
    noise_floor: float = 0.0,
    method: PlanMethod = "auto",
    coverage: Coverage | None = None,
    restarts: int = 2,
    rng: np.random.Generator,
) -> Plan:
    """Plan batches with little dependence inside them.

    Exactly one of ``batches``, ``information_budget`` and ``target_kl`` says how many.

    Parameters
    ----------
    strength : array_like of float, shape (N, N)
        Information between positions that depend on each other directly, in nats: symmetric, the
        diagonal unread. Negative estimates count as zero; NaN, nothing known, is refused between
        positions of the plan.
    positions : array_like of int, optional
        Positions to commit; all by default.
    batches : int, optional
        Batches allowed. As many as there are positions means one each, which is exact whatever
        the strengths are.
    information_budget : float, optional
        Nats allowed inside any one batch: the fewest batches that keep to it.
    target_kl : float, optional
        Nats allowed in all: the fewest batches that keep to it.
    strength_se : array_like of float, shape (N, N), optional
        Standard errors, for the error of the price. It does not hold that the search has looked
        for strengths that came out low: :func:`plan_for` prices by probes that were held out.
    noise_floor : float
        Strengths of at most this count as zero.
    method : {"auto", "layers", "search"}
        ``auto`` takes the cheaper one, and layers where they cost the same; where the strong
        pairs are a forest above a clear gap (``layers.forest_cut``), both are made from them alone
        while the weak pairs inside batches hold at most 2% of the strength.
    coverage : Coverage, optional
        Which positions may be trusted to pairs. The others are committed alone, which is exact
        whatever they depend on; where ``batches`` are too few for that, the plan says in
        ``uncovered`` what it risks. Where it also knows what is near
        (:attr:`Coverage.nearness`), what pairs do not explain is taken to lie there: near
        positions are kept apart, and only those that were not measured go alone.
    restarts : int
        Long searches; the cheapest plan is kept.
    rng : numpy.random.Generator
        Another state, another plan.

    Examples
    --------
    >>> strength = np.diag(np.full(6, 0.3), k=1)
    >>> make_plan(strength + strength.T, batches=3, rng=np.random.default_rng(0))
    Plan(3 batches for 7 of 7 positions, layers, about 0 nats)
    """
    check_request(batches, information_budget, target_kl, method)
    searches = whole_number("restarts", restarts, at_least=1)
    strengths = check_strength(
        strength, positions, strength_se=strength_se, noise_floor=noise_floor
    )
    if len(strengths.positions) == 0:
        raise ValueError("positions must not be empty: there is nothing to plan")
    most = None if batches is None else int(batches)
    if coverage is None:
        return _planned(strengths, most, information_budget, target_kl, method, searches, rng)
    goes_alone = coverage.goes_alone[strengths.positions]
    alone, others = np.flatnonzero(goes_alone), np.flatnonzero(~goes_alone)

    def around(known: Strengths, method: PlanMethod) -> list[Plan]:
        """Return a plan with some positions alone, one with these spread, or both."""
        plans = []
        if len(others) == 0 and (most is None or most >= len(alone)):
            plans = [priced(known, list(rng.permutation(len(alone))[:, None]), "search")]
        elif most is None or most > len(alone):
            left = None if most is None else most - len(alone)
            among = known.between(others)
            plan = _planned(among, left, information_budget, target_kl, method, searches, rng)
            plans = [_with_alone(plan, known, alone, rng)]
        if most is not None and len(alone) and not (plans and method == "layers"):
            # Few batches: those that would go alone may be better spread over all of them.
            plans.append(_spread(known, alone, coverage, most, searches, rng))
        return plans

    if coverage.nearness is None:
        plans = around(strengths, method)
    else:
        plans = []
        if method != "layers":
            # What pairs do not explain is searched with, by nearness, and is no part of the price.
            shared = coverage.between(strengths.positions)
            near = replace(strengths, direct=strengths.direct + shared)
            plans = [_priced_by(strengths, plan) for plan in around(near, "search")]
        # Layers go by pairs alone: unasked, they choose their number where pairs explain all.
        is_explained = bool(coverage.is_trusted[strengths.positions].all())
        if method == "layers" or (method == "auto" and (most is not None or is_explained)):
            plans += around(strengths, "layers")
    found = [replace(plan, uncovered=coverage.uncovered(plan.batches)) for plan in plans]

    def worth(plan: Plan) -> tuple[int, float]:
        return 0 if most else len(plan), plan.estimated_kl + coverage.risk(plan.batches)

    return min(found, key=worth)


def _priced_by(strengths: Strengths, plan: Plan) -> Plan:
    """Return a searched plan at the price of other strengths than it was searched with."""
    rows = [np.searchsorted(strengths.positions, batch) for batch in plan.batches]
    return priced(strengths, rows, "search")


def _spread(
    strengths: Strengths,
    alone: IntArray,
    coverage: Coverage,
    most: int,
    searches: int,
    rng: np.random.Generator,
) -> Plan:
    """Return a plan that keeps positions apart which pairs are not trusted with, as far as it can.

    What is unexplained of each is taken to be shared with all others of them alike, in the search
    and not in the price.
    """
    loose = np.nan_to_num(coverage.unexplained[strengths.positions[alone]], nan=1.0)
    shared = np.minimum(loose[:, None], loose[None, :]) / max(1, len(alone) - 1)
    np.fill_diagonal(shared, 0.0)
    direct = strengths.direct.copy()
    if len(alone) < len(direct):  # among all alike, only what pairs say is left to go by
        direct[np.ix_(alone, alone)] += shared
    plan = _planned(replace(strengths, direct=direct), most, None, None, "search", searches, rng)
    return _priced_by(strengths, plan)


def _with_alone(
    plan: Plan, strengths: Strengths, alone: IntArray, rng: np.random.Generator
) -> Plan:
    """Add positions that are committed one by one, before or after all others.

    Those with neighbours among the others go first: while they are masked, others depend on each
    other through them. Those without go last: what shows only when several are known, such as a
    parity, is then broken by nobody who is not known to take part in it.
    """
    others = np.searchsorted(strengths.positions, plan.positions)
    has_pairs = strengths.direct[np.ix_(alone, others)].any(axis=1)
    singles = strengths.positions[rng.permutation(alone[has_pairs]), None]
    lasts = strengths.positions[rng.permutation(alone[~has_pairs]), None]
    return replace(plan, batches=(*singles, *plan.batches, *lasts))


def _planned(
    strengths: Strengths,
    batches: int | None,
    information_budget: float | None,
    target_kl: float | None,
    method: PlanMethod,
    searches: int,
    rng: np.random.Generator,
) -> Plan:
    """Return the plan of positions that pairs are trusted with."""
    strong = _strong(strengths, method)

    def from_strong(count: int) -> Offer:
        return _with_weak(_best_offer(strong, count, method, searches, rng), strengths, strong)

    def from_all(count: int) -> Offer:
        return _best_offer(strengths, count, method, searches, rng)

    if batches is not None:
        return _for_batches(from_strong, from_all, batches, strengths, strong)
    most = len(strengths.positions)

    def is_enough(found: Offer) -> bool:
        if target_kl is not None:
            return found[0].estimated_kl <= target_kl
        assert information_budget is not None
        return bool(found[1].max() <= information_budget)

    plan = _fewest(from_strong, most, is_enough)
    if strong is strengths:
        return plan
    other = _fewest(from_all, most, is_enough)
    return plan if len(plan) <= len(other) else other


def price_curve(
    strength: ArrayLike,
    positions: ArrayLike | None,
    counts: Iterable[int],
    *,
    noise_floor: float = 0.0,
    method: PlanMethod = "auto",
    restarts: int = 2,
    rng: np.random.Generator,
) -> FloatArray:
    """Return the estimated batch KL of the best plan for each number of batches, in nats.

    Parameters
    ----------
    strength, positions, noise_floor, method, restarts, rng
        As in :func:`make_plan`.
    counts : iterable of int
        Numbers of batches.
    """
    strengths = check_strength(strength, positions, noise_floor=noise_floor)
    searches = whole_number("restarts", restarts, at_least=1)
    prices = []
    for count in counts:
        check_request(count, None, None, method)
        plan = make_plan(
            strength,
            positions=strengths.positions,
            batches=count,
            noise_floor=noise_floor,
            method=method,
            restarts=searches,
            rng=rng,
        )
        prices.append(plan.estimated_kl)
    return np.array(prices)


def check_request(
    batches: int | None,
    information_budget: float | None,
    target_kl: float | None,
    method: str,
) -> None:
    """Refuse anything but one way of saying how many batches, and an unknown method."""
    asked = {
        "batches": batches,
        "information_budget": information_budget,
        "target_kl": target_kl,
    }
    given = [name for name, value in asked.items() if value is not None]
    if len(given) != 1:
        raise ValueError(
            f"give exactly one of {', '.join(asked)}; got {' and '.join(given) or 'none'}"
        )
    if batches is not None:
        whole_number("batches", batches, at_least=1)
    for name in ("information_budget", "target_kl"):
        value = asked[name]
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a number of nats, at least 0, got {value!r}")
    if method not in get_args(PlanMethod):
        raise ValueError(
            f"method must be one of {', '.join(get_args(PlanMethod))}; got {method!r}"
        )


def _strong(strengths: Strengths, method: PlanMethod) -> Strengths:
    """Return the strong pairs alone where they are a forest; otherwise everything."""
    cut = None if method == "search" else forest_cut(strengths.direct)
    if cut is None:
        return strengths
    return replace(strengths, direct=np.where(strengths.direct > cut, strengths.direct, 0.0))


def _for_batches(
    from_strong: Callable[[int], Offer],
    from_all: Callable[[int], Offer],
    count: int,
    strengths: Strengths,
    strong: Strengths,
) -> Plan:
    """Return the plan of the strong forest, unless the weak pairs that it breaks add up.

    Weak pairs are mostly noise, and plans that avoid them give up the forest's layers; but where
    they hold more than a little of the strength, the cheaper plan is taken.
    """
    plan = from_strong(count)[0]
    weak = plan.dropped if strong is not strengths else 0.0
    if weak <= MOST_WEAK * strengths.total:
        return plan
    other = from_all(count)[0]
    return plan if plan.estimated_kl <= other.estimated_kl else other


def _with_weak(found: Offer, strengths: Strengths, strong: Strengths) -> Offer:
    """Add the weak pairs inside batches to a price that knows the strong ones.

    Only those between trees of the strong forest: what positions of one tree tell about each
    other goes along its edges, whose price is known.
    """
    if strong is strengths:
        return found
    plan, prices = found
    label = components(len(strong.positions), np.argwhere(np.triu(strong.direct) > 0))
    weak = np.where(label[:, None] == label[None, :], 0.0, strengths.direct - strong.direct)
    rows = [np.searchsorted(strengths.positions, batch) for batch in plan.batches]
    inside = np.array([weak[np.ix_(part, part)].sum() / 2 for part in rows])
    total = float(inside.sum())
    priced_plan = replace(
        plan, estimated_kl=plan.estimated_kl + total, dropped=plan.dropped + total
    )
    return priced_plan, prices + inside


def _best_offer(
    strengths: Strengths, most: int, method: PlanMethod, restarts: int, rng: np.random.Generator
) -> Offer:
    """Return the cheapest plan of at most so many batches."""
    count = len(strengths.positions)
    if most >= count:
        each = list(rng.permutation(count)[:, None])
        return priced(strengths, each, "search"), np.zeros(count)
    layered = None
    if method != "search":
        layered = layered_plan(strengths, most)
        if method == "layers" or layered[0].estimated_kl == 0:
            return layered
    plan = searched_plan(strengths, most, restarts, rng)
    # Layers that ignore everything are one batch.
    if layered is not None and strengths.total > layered[0].estimated_kl <= plan.estimated_kl:
        return layered
    rows = [np.searchsorted(strengths.positions, batch) for batch in plan.batches]
    return plan, batch_prices(strengths, rows)


def _fewest(offer: Callable[[int], Offer], most: int, is_enough: Callable[[Offer], bool]) -> Plan:
    """Double the number of batches until a plan is good enough, then bisect; one each is."""
    low, high = 0, 1
    found = offer(high)
    while not is_enough(found) and high < most:
        low, high = high, min(2 * high, most)
        found = offer(high)
    while high - low > 1:
        middle = (low + high) // 2
        tried = offer(middle)
        if is_enough(tried):
            high, found = middle, tried
        else:
            low = middle
    return found[0]
