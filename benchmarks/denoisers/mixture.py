"""The KL of what is drawn when every sequence may have another plan: that of the mixture.

A rule that decides at random before it sees a token, such as one token at a time in random orders,
draws from ``q = mean_k q_k`` over its plans k, and not from one ``q_k``. ``KL(q || truth)`` is at
most the mean of ``KL(q_k || truth)``, since KL is convex, and lower by at most ``log K``. For K
plans it is ``E_q[log q(x) - log p(x)]`` over sequences drawn from all of them, each scored under
every plan by the denoiser's own rows: the product of its tokens' entries, batch by batch. Plans
that depend on the tokens drawn are not known before, and such rules are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp

import counterprobe as cp
from counterprobe.oracles import Readouts
from counterprobe.rows import to_numpy
from counterprobe.states import MASK
from denoisers.laws import Truth
from denoisers.scoring import Draws, mean_and_error

__all__ = ["log_probs_by_plan", "mixture", "plans_of"]

# Mean difference, in nats, between what a sequence had when drawn and when scored: rounding alone.
ROUNDING = 0.01


def plans_of(draws: Draws) -> np.ndarray:
    """Return the round of every position under each decision seed, shape (K, N)."""
    if draws.rounds is None or draws.log_prob is None:
        raise ValueError(
            "a mixture needs draws with a log-probability and the rounds of their plan"
        )
    first = np.unique(draws.order, return_index=True)[1]
    plans: np.ndarray = draws.rounds[first]
    if (plans[draws.order] != draws.rounds).any():
        raise ValueError(
            "a plan must not depend on the tokens drawn, and sequences of one decision seed have "
            "several; the mixture of such a rule is not measured"
        )
    return plans


def log_probs_by_plan(oracle: cp.Oracle, tokens: np.ndarray, plans: np.ndarray) -> np.ndarray:
    """Return log-probabilities of sequences under every plan; one evaluation a round of each.

    Parameters
    ----------
    oracle : Oracle
    tokens : ndarray of int, shape (S, N)
    plans : ndarray of int, shape (K, N)
        The round in which each position is committed.

    Returns
    -------
    ndarray of float, shape (S, K)
    """
    # Seeds may agree on a plan, which is then scored once.
    different, which = np.unique(plans, axis=0, return_inverse=True)
    found = np.zeros((len(tokens), len(different)))
    for k, rounds in enumerate(different):
        for number in np.unique(rounds):
            batch = np.flatnonzero(rounds == number)
            states = np.where(rounds < number, tokens, MASK)
            rows = oracle.rows(states, Readouts.same(len(states), batch))
            log_prob = to_numpy(rows.log_prob(tokens[:, batch].ravel()))
            found[:, k] += log_prob.reshape(len(tokens), len(batch)).sum(axis=1)
    return found[:, which.ravel()]


def mixture(draws: Draws, oracle: cp.Oracle, truth: Truth) -> dict[str, Any]:
    """Measure the mixture of the plans that sequences were drawn with; plain values.

    The standard error is over sequences, for these plans; that of the mean KL of single plans,
    which the same draws give, is over plans.
    """
    plans = plans_of(draws)
    by_plan = log_probs_by_plan(oracle, draws.tokens, plans)
    own = by_plan[np.arange(len(by_plan)), draws.order]
    if (away := float(np.abs(own - draws.log_prob).mean())) > ROUNDING:
        raise ValueError(f"sequences must score as they were drawn, got {away:.3g} nats apart")
    share = np.bincount(draws.order) / len(draws.order)
    log_prob = logsumexp(by_plan, b=share, axis=1)
    tokens = torch.as_tensor(draws.tokens, dtype=torch.int64, device=truth.device)
    log_truth = truth.log_prob(tokens).cpu().numpy()
    kl, error = mean_and_error(log_prob - log_truth)
    one_plan, one_plan_error = mean_and_error(own - log_truth, draws.order)
    return {
        "count": len(draws.tokens),
        "plans": len(plans),
        "different_plans": len(np.unique(plans, axis=0)),
        "evaluations": float(draws.evaluations.mean()),
        "kl": kl,
        "kl_se": error,
        "kl_one_plan": one_plan,
        "kl_one_plan_se": one_plan_error,
    }
