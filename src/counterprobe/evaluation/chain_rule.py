"""The batch KL without a known law: what product commits break, by the oracle's own chain rule.

``batch_kl`` needs the law. A learned model has none that is known, but its rows define the joint
law of a batch, one position after another (``chains.py``), and the divergence from the product is
a sum of divergences of rows. :func:`run_kl` prices finished runs of any sampler, :func:`plan_kl`
a plan of batches before anything is drawn with it. Both are unbiased, state an interval that holds
where dear contexts are rare (``chain_rule_kl.py``) beside the standard error over samples, and
charge every evaluation to a ledger of their own.

Two directions are measured, and they are different quantities:

- ``"product"``, the batch KL K of the paper: ``KL(product || joint)`` of every batch, at histories
  that the sampler itself draws.
- ``"joint"``: ``KL(joint || product)``, the total correlation of every batch, at histories that
  are drawn one position at a time.

Rows of a learned model are consistent with no law, so that the joint law of a batch depends on the
order of its positions; both quantities are means over uniformly random orders inside a batch. With
the rows of an exact law every order gives the same, and "product" is ``batch_kl`` in expectation.

An oracle whose rows depend on the order of commits is priced under that very law, for one
evaluation per sample beside those that draw it; see ``ordered_runs.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.evaluation.chain_rule_kl import ChainRuleKL, Direction
from counterprobe.evaluation.chains import (
    Chain,
    Limits,
    chain_divergences,
    choose_steps,
    in_groups,
)
from counterprobe.evaluation.ordered_runs import finished_terms, ordered_terms
from counterprobe.evaluation.plan_runs import PlanRun, as_plans
from counterprobe.oracles import Oracle, as_oracle, depends_on_order
from counterprobe.planning import Plan
from counterprobe.run.batches import SampleBatch
from counterprobe.run.ledger import Ledger, Need
from counterprobe.run.requests import Requests
from counterprobe.run.results import SampleResult, StopReason
from counterprobe.run.run import measure
from counterprobe.states import as_contexts
from counterprobe.streams import keyed_generator

__all__ = ["ChainRuleKL", "Direction", "plan_kl", "run_kl"]

# States in one call, by default.
AT_ONCE = 256


def plan_kl(
    oracle: Oracle,
    plans: Plan | Sequence[Plan] | Sequence[ArrayLike] | Sequence[Sequence[ArrayLike]],
    *,
    samples: int,
    given: ArrayLike | None = None,
    direction: Direction = "product",
    terms: int | None = None,
    seed: int = 0,
    at_once: int = AT_ONCE,
) -> ChainRuleKL:
    """Price a plan of batches: run it on a few samples and expand every batch by the chain rule.

    Parameters
    ----------
    oracle : Oracle
        Where its rows depend on the order of commits (ProteinMPNN with ``order="commit"``), it is
        priced under that law, whole sequences at once; see ``ordered_runs.py``.
    plans : Plan or sequence of batches, or several of either
        One plan, or several: sample k follows plan ``k mod len(plans)``. Batches are committed as
        listed and may leave positions out.
    samples : int
    given : array_like of int, shape (N,) or (samples, N), optional
        Context, ``MASK`` elsewhere.
    direction : {"product", "joint"}
        See the module; "product" draws as the plan itself would, "joint" one position at a time.
    terms : int, optional
        With "product", evaluate only this many randomly chosen steps per batch, weighted so that
        the estimate stays unbiased; one is often enough, since all positions are read from it.
        In commit order all of them come in one evaluation, whatever is said here.
    seed : int
        Of values and orders: sample k has the same whatever the plan and the number of samples.
    at_once : int
        States in one call of the oracle, at most.

    Returns
    -------
    ChainRuleKL
        A batch of m positions costs m evaluations per sample, ``1 + terms`` if fewer; a batch of
        one costs one and contributes exactly zero. In commit order a batch costs one, and a
        sample one more ("product"), or a batch ``1 + m`` ("joint").

    Examples
    --------
    >>> import counterprobe as cp
    >>> from counterprobe.evaluation import plan_kl, reference_kl
    >>> law = cp.families.matching(8, target_seed=1)
    >>> kl = plan_kl(law.oracle(), [range(8)], samples=400)
    >>> abs(kl.value - reference_kl(law)) < 4 * kl.standard_error
    True
    """
    if direction not in get_args(Direction):
        raise ValueError(
            f"direction must be one of {', '.join(get_args(Direction))}; got {direction!r}"
        )
    if terms is not None:
        terms = whole_number("terms", terms, at_least=1)
        if direction == "joint":
            raise ValueError(
                "terms must be left out with direction 'joint', which draws position by position "
                f"and so evaluates every step; got {terms}"
            )
    samples = whole_number("samples", samples, at_least=1)
    oracle = as_oracle(oracle)
    contexts = as_contexts(given, oracle.length, oracle.vocab_size, samples)
    run = PlanRun(as_plans(plans, contexts), contexts, seed)
    limits = Limits.of(whole_number("at_once", at_once, at_least=1), oracle.vocab_size)
    is_ordered = depends_on_order(oracle)

    def terms_of(group: slice) -> Requests[tuple[FloatArray, float]]:
        if is_ordered:
            return ordered_terms(run, group, is_joint=direction == "joint")
        if direction == "joint":
            return run.joint_terms(group)
        return run.product_terms(group, limits, terms)

    sizes = [oracle.length] * samples if is_ordered else run.largest_batches
    parts, ledger = measure(oracle, map(terms_of, in_groups(sizes, limits)))
    found, largest = zip(*parts, strict=True)
    # In commit order a position also moves with what larger batches before it left behind.
    moving = oracle.length if is_ordered else run.num_followers
    most = moving * max(math.log(oracle.vocab_size), *largest)
    return ChainRuleKL.of(np.concatenate(found), direction, ledger, run.group_of, most)


def run_kl(
    oracle: Oracle,
    results: SampleBatch | SampleResult | Iterable[SampleResult],
    *,
    terms: int | None = None,
    seed: int = 0,
    at_once: int = AT_ONCE,
) -> ChainRuleKL:
    """Price finished runs of any sampler: their batch KL, product to joint.

    The values that a run committed are draws from the product, so that every state is known
    beforehand and all of them are one stage. Rules that choose a batch after they have seen its
    values (``CANDIDATES``) leave no such draws: their batches are drawn afresh,
    in a second stage. What such a choice does to the output is no part of the batch KL.

    Parameters
    ----------
    oracle : Oracle
        The one that the runs used. Where its rows depend on the order of commits, runs are
        followed once more, and compared with one position at a time in one pass.
    results : SampleBatch, SampleResult, or iterable of SampleResult
        Completed, at temperature 1 (a temperature that the oracle itself declares is part of its
        law), without verifying or masking again.
    terms : int, optional
        Evaluate only this many randomly chosen steps per batch, weighted so that the estimate is
        unbiased.
    seed : int
        Of the order inside batches, and of fresh values.
    at_once : int
        States in one call of the oracle, at most.

    Returns
    -------
    ChainRuleKL
        A batch of m > 1 positions costs m evaluations, ``1 + terms`` if fewer; a batch of one
        costs nothing and contributes exactly zero. In commit order a run of R batches costs
        ``R + 1`` evaluations.
    """
    if terms is not None:
        terms = whole_number("terms", terms, at_least=1)
    oracle = as_oracle(oracle)
    runs = _runs(results)
    for run in runs:
        _check_run(run, oracle.name)
    _, plan_of = np.unique([run.streams.decision_seed for run in runs], return_inverse=True)
    if len(np.unique(plan_of)) == 1:  # one plan for all is given
        plan_of = np.arange(len(runs))
    limits = Limits.of(whole_number("at_once", at_once, at_least=1), oracle.vocab_size)
    if depends_on_order(oracle):
        groups = in_groups([oracle.length] * len(runs), limits)
        parts, ledger = measure(oracle, finished_terms(runs, groups, seed))
        found, moving = np.concatenate([part[0] for part in parts]), oracle.length
        largest = [part[1] for part in parts]
    else:
        found, largest, ledger = _expand(oracle, runs, limits, terms, seed)
        moving = max(sum(len(batch) - 1 for batch in run.batches) for run in runs)
    most = moving * max([math.log(oracle.vocab_size), *largest])
    return ChainRuleKL.of(found, "product", ledger, plan_of, most)


# ----- Finished runs ------------------------------------------------------------------------


def _runs(results: SampleBatch | SampleResult | Iterable[SampleResult]) -> list[SampleResult]:
    if isinstance(results, SampleResult):
        return [results]
    runs = list(results.results if isinstance(results, SampleBatch) else results)
    if not runs:
        raise ValueError("results must hold at least one finished run, got none")
    return runs


def _check_run(run: SampleResult, oracle_name: str) -> None:
    """Refuse a run to which the measure does not apply."""
    which = f"run {run.sequence} of {run.sampler}"
    if run.stop is not StopReason.COMPLETED:
        raise ValueError(f"{which} must be complete, but it stopped: {run.stop}; leave it out")
    if run.temperature != 1:
        raise ValueError(
            f"{which} must have drawn at temperature 1, got {run.temperature}: its tokens are not "
            "draws from the oracle's rows; set the temperature of the oracle instead"
        )
    unlike = run.used & (Need.VERIFY | Need.REMASK)
    if unlike:
        raise ValueError(
            f"{which} must only commit, but it used {', '.join(unlike.names())}: the "
            "batch KL does not apply to it"
        )
    if run.oracle_name != oracle_name:
        raise ValueError(
            f"{which} used oracle {run.oracle_name!r}, not {oracle_name!r}; pass the one it used"
        )


def _expand(
    oracle: Oracle, runs: Sequence[SampleResult], limits: Limits, terms: int | None, seed: int
) -> tuple[FloatArray, list[float], Ledger]:
    """Expand the batches of runs; return terms of shape (runs, R), and the largest of parts."""
    chains, tokens, place = _chains_of(runs, terms, seed)
    is_fresh = any(Need.CANDIDATES in run.used for run in runs)

    def terms_of(group: slice) -> Requests[tuple[FloatArray, float, IntArray]]:
        if not is_fresh:
            return chain_divergences(chains[group], limits, tokens=np.concatenate(tokens[group]))
        uniforms = [
            keyed_generator(seed, "chain values", *where).random(len(chain))
            for chain, where in zip(chains[group], place[group].tolist(), strict=True)
        ]
        return chain_divergences(chains[group], limits, uniforms=np.concatenate(uniforms))

    groups = in_groups([len(chain) for chain in chains], limits)
    parts, ledger = measure(oracle, map(terms_of, groups))
    found = np.zeros((len(runs), max(len(run.batches) for run in runs)))
    found[tuple(place.T)] = np.concatenate([np.empty(0), *(part[0] for part in parts)])
    return found, [part[1] for part in parts], ledger


def _chains_of(
    runs: Sequence[SampleResult], terms: int | None, seed: int
) -> tuple[list[Chain], list[IntArray], IntArray]:
    """Return a chain for every batch of at least two, its tokens, and the (run, round) of each."""
    chains: list[Chain] = []
    tokens: list[IntArray] = []
    place: list[tuple[int, int]] = []
    for k, run in enumerate(runs):
        rng = keyed_generator(seed, "chain order", k)
        state = run.given.copy()
        for t, batch in enumerate(run.batches):
            if len(batch) > 1:
                order = rng.permutation(batch)
                steps, weight = choose_steps(len(batch), terms, rng)
                chains.append(Chain(state.copy(), order, steps, weight))
                tokens.append(run.state[order].astype(np.int64))
                place.append((k, t))
            state[batch] = run.state[batch]
    return chains, tokens, np.array(place, dtype=np.int64).reshape(-1, 2)
