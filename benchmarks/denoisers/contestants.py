"""Who is measured: every sampler that a learned model can be given to, over a range of budgets.

Left out are ``compressed`` and ``packed``, whose screens certify a graph from rows that fit one
exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import counterprobe as cp
from counterprobe.samplers import Sampler
from counterprobe.samplers.registry import build_sampler
from denoisers.forest import ForestTruth
from denoisers.laws import Truth
from denoisers.scoring import Draws

__all__ = ["Contestant", "Sizes", "baselines", "draw", "peers", "told_peers"]

Kind = Literal["structured", "baseline", "peer", "told"]

BUDGETS = (2, 4, 8, 16, 32)
# Sequences side by side: more would only be slower to keep apart.
AT_ONCE = 2_048
# Rules that are told the number of steps, then those with a setting that decides it.
STEPWISE = ("maskgit", "llada", "dream")
SWEEPS: dict[str, tuple[str, tuple[float, ...]]] = {
    "entropy-bounded": ("gamma", (1.0, 3.0, 10.0, 30.0)),
    "threshold": ("threshold", (0.2, 0.3, 0.5)),
    "factor": ("factor", (1.0, 4.0, 16.0)),
    "klass": ("confidence_threshold", (0.2, 0.3, 0.5)),
    "punt": ("epsilon", (0.003, 0.01, 0.03, 0.1)),
    "info-gain": ("tokens_per_action", (8, 16)),
    "lookum": ("tokens_per_action", (8, 16)),
    "dawn": ("low_threshold", (0.2, 0.5)),
    "dapd": ("edge_threshold", (0.01, 0.1)),
    "demask": ("budget", (0.1, 1.0)),
    "wino": ("threshold", (0.2, 0.3, 0.5)),
    "remdm": ("steps", (8, 16, 32, 64, 128)),
}
# Rules that draw as one token at a time would, in fewer rounds.
VERIFYING: dict[str, dict[str, Any]] = {
    "assd": {"window": 8, "order": "random"},
    "universal-coupling": {},
    "autospeculation": {},
    "freedave": {"order": "confidence"},
}
# Schedules that are told nothing.
UNTOLD: dict[str, tuple[str, tuple[float, ...]]] = {
    "effective-tc": ("kappa", (0.2, 0.5, 1.0, 2.0)),
    "zhao-cai": ("steps", (4, 8, 16, 32)),
}
# What is told: batches of a schedule, or the accuracy it is to reach.
TOLD_SWEEPS: dict[str, tuple[str, tuple[float, ...]]] = {
    "li-cai": ("accuracy", (1.0, 3.0, 10.0)),
    "chen-cong-li": ("accuracy", (1.0, 3.0, 10.0)),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is drawn.

    Parameters
    ----------
    entropy, reference : int
        Exact samples for the entropy, and to compare pairs with.
    fixed, orders : int
        Sequences of a rule whose batches need no reply, and the decision seeds they share.
    adaptive : int
        Sequences of a rule that adapts to replies, each with decisions of its own; twice as many
        where it has no log-probability.
    """

    entropy: int = 65_536
    reference: int = 4_096
    fixed: int = 4_096
    orders: int = 8
    adaptive: int = 256

    @classmethod
    def quick(cls) -> Sizes:
        """Seconds on a processor."""
        return cls(entropy=2_048, reference=256, fixed=32, orders=2, adaptive=12)


@dataclass(frozen=True, slots=True)
class Contestant:
    """A sampler at one setting, and how it is drawn from.

    Attributes
    ----------
    sampler : str
    settings : dict
        What sets it apart from others of its name.
    rule : Sampler
    kind : {"structured", "baseline", "peer", "told"}
    orders : int
        Decision seeds, each shared by equally many sequences; 0 for one a sequence.
    count : int
        Sequences in all.
    """

    sampler: str
    settings: dict[str, Any]
    rule: Sampler
    kind: Kind
    orders: int
    count: int

    @property
    def key(self) -> str:
        """Name and settings, unlike those of any other."""
        return " ".join([self.sampler, *(f"{k}={v}" for k, v in self.settings.items())])


def draw(oracle: cp.Oracle, contestant: Contestant, seed: int = 0) -> Draws:
    """Draw sequences; raise ``ValueError`` with the rule's reason if it stopped early."""
    batch = cp.sample(
        oracle,
        contestant.rule,
        contestant.count,
        seed=seed,
        orders=contestant.orders or "fresh",
        at_once=AT_ONCE,
        log_probs=True,
        progress=False,
    )
    results = list(batch.results)  # each is made when it is looked at
    if batch.num_completed < len(batch):
        raise ValueError(f"{contestant.key} stopped early: {results[0].reason}")
    seeds = [result.streams.decision_seed for result in results]
    # What was verified has the probability of the chain rule, which its tokens' rows multiply to.
    harmless = cp.Need.SELECT | cp.Need.VERIFY
    decided_by_rows = results[0].used & ~harmless == cp.Need.NONE
    return Draws(
        tokens=batch.sequences.astype(np.int64),
        order=np.unique(seeds, return_inverse=True)[1],
        evaluations=np.array([result.ledger.evaluations for result in results]),
        stages=np.array([result.ledger.stages for result in results]),
        log_prob=batch.token_log_probs.sum(axis=1) if decided_by_rows else None,
        rounds=np.stack([result.round_of_position for result in results]),
    )


def baselines(sizes: Sizes, budgets: tuple[int, ...]) -> Iterator[Contestant]:
    """Yield one at a time, and what needs no reply."""

    def fixed(name: str, **settings: Any) -> Contestant:
        rule = build_sampler(name, settings)
        return Contestant(name, settings, rule, "baseline", sizes.orders, sizes.fixed)

    yield fixed("sequential", order="random")
    yield Contestant("one-batch", {}, build_sampler("one-batch"), "baseline", 1, sizes.fixed)
    for budget in budgets:
        yield fixed("random-balanced", batches=budget)
    for budget in budgets:
        yield fixed("spread", batches=budget)
        yield fixed("ancestral", steps=budget)
    for name, (setting, values) in UNTOLD.items():
        for value in values:
            yield fixed(name, **{setting: value})


def peers(sizes: Sizes, budgets: tuple[int, ...]) -> Iterator[Contestant]:
    """Yield rules that adapt to replies."""

    def adaptive(name: str, **settings: Any) -> Contestant:
        rule = build_sampler(name, settings)
        # Without a log-probability there is less to go by in each sequence.
        unscored = cp.Need.CANDIDATES | cp.Need.REMASK
        times = 2 if rule.needs & unscored else 1
        return Contestant(name, settings, rule, "peer", 0, times * sizes.adaptive)

    for budget in budgets:
        for name in STEPWISE:
            yield adaptive(name, steps=budget)
        yield adaptive("maskgit", steps=budget, confidence="row")
    for name, (setting, values) in SWEEPS.items():
        for value in values:
            yield adaptive(name, **{setting: value})
    for name, settings in VERIFYING.items():
        yield adaptive(name, **settings)
    yield adaptive("sequential", order="confidence")


def told_peers(truth: Truth, sizes: Sizes, budgets: tuple[int, ...]) -> Iterator[Contestant]:
    """Yield rules that are told something of the true law, where it is a forest."""
    if not isinstance(truth, ForestTruth):
        return
    law = truth.forest_law()
    sweeps = {**TOLD_SWEEPS, "information-curve": ("batches", budgets)}
    layers = build_sampler("centroid-layers").informed_by(law)
    yield Contestant("centroid-layers", {}, layers, "told", 1, sizes.fixed)
    for name, (setting, values) in sweeps.items():
        for value in values:
            rule = build_sampler(name, {setting: value}).informed_by(law)
            settings = {setting: value}
            yield Contestant(name, settings, rule, "told", sizes.orders, sizes.fixed)
