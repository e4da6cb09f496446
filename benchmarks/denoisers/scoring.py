"""What drawn sequences are worth: the true KL where a rule's log-probability is known, and pairs.

For one decision seed, a rule whose batches are a function of what was committed before (and of
rows, which are functions of that too) draws ``x`` with probability ``q(x)``, the product of its
tokens' entries in the rows they were drawn from. So ``KL(q || truth) = E[log q(x) - log p(x)]``
over its own draws, without bias and with a standard error. Averaged over decision seeds this is
the mean KL over orders, not the KL of the mixture of orders, which is smaller.

Rules that look at the drawn values before they choose what to keep (MaskGIT, PUNT) have no such
product. For every rule there are two measures that need draws alone: the energy gap
``E_q[-log p] - E_p[-log p]``, zero for the truth, and the squared distance between the frequencies
of all pairs of values, an unbiased MMD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denoisers.files import Trained
from denoisers.laws import Truth

__all__ = ["Draws", "Reference", "pair_distance", "score"]


@dataclass(frozen=True, slots=True)
class Draws:
    """Sequences of one sampler at one setting.

    Attributes
    ----------
    tokens : ndarray of int, shape (S, N)
    order : ndarray of int, shape (S,)
        Which decision seed each sequence had.
    evaluations, depth : ndarray of int, shape (S,)
        Of each sequence, what sequences share left out.
    log_prob : ndarray of float, shape (S,), or None
        Of each sequence under its order; None where drawn values decide what is kept.
    """

    tokens: np.ndarray
    order: np.ndarray
    evaluations: np.ndarray
    depth: np.ndarray
    log_prob: np.ndarray | None


@dataclass(frozen=True, slots=True)
class Reference:
    """Exact samples of a law, and its entropy estimated from many more of them."""

    tokens: Tensor
    entropy: float
    entropy_se: float

    @classmethod
    def of(cls, truth: Truth, count: int, entropy_count: int, seed: int = 11) -> Reference:
        """Draw ``count`` sequences to compare with, and ``entropy_count`` for the entropy."""
        generator = torch.Generator(truth.device).manual_seed(seed)
        surprise = -truth.log_prob(truth.sample(entropy_count, generator))
        mean, error = mean_and_error(surprise.cpu().numpy())
        return cls(truth.sample(count, generator), mean, error)


def pair_distance(drawn: Tensor, exact: Tensor, vocab_size: int) -> tuple[float, float]:
    """Return the squared distance between all pair frequencies, mean over pairs, and its error.

    The kernel ``C(a, 2) / C(N, 2)`` of two sequences that agree at ``a`` positions is the share of
    pairs of positions at which they agree; its MMD is the squared distance between the two tables
    of pair frequencies, averaged over pairs of positions. Unbiased: negative values happen at the
    truth. The error is that of the draws, by the U-statistic's projection.
    """
    length = drawn.shape[1]

    def indicator(tokens: Tensor) -> Tensor:
        one_hot = torch.nn.functional.one_hot(tokens, vocab_size)
        return one_hot.flatten(1).float()

    def kernel(first: Tensor, second: Tensor) -> Tensor:
        agree = (first @ second.T).double()
        return agree * (agree - 1) / (length * (length - 1))

    x, y = indicator(drawn), indicator(exact)
    among, across, exactly = kernel(x, x), kernel(x, y), kernel(y, y)
    n, m = len(x), len(y)
    inside = (among.sum(dim=1) - among.diagonal()) / (n - 1)
    outside = across.mean(dim=1)
    value = inside.mean() - 2 * outside.mean() + (exactly.sum() - m) / (m * (m - 1))
    error = 2 * (inside - outside).std() / math.sqrt(n)
    return float(value), float(error)


def score(draws: Draws, trained: Trained, reference: Reference) -> dict[str, Any]:
    """Measure draws against the truth; plain values."""
    device = trained.truth.device
    tokens = torch.as_tensor(draws.tokens, dtype=torch.int64, device=device)
    log_truth = trained.truth.log_prob(tokens)
    energy, energy_se = mean_and_error(-log_truth.cpu().numpy(), draws.order)
    distance, distance_se = pair_distance(tokens, reference.tokens, trained.truth.vocab_size)
    found: dict[str, Any] = {
        "count": len(tokens),
        "orders": len(np.unique(draws.order)),
        "evaluations": float(draws.evaluations.mean()),
        "evaluations_sd": float(draws.evaluations.std()),
        "depth": float(draws.depth.mean()),
        "energy_gap": energy - reference.entropy,
        "energy_gap_se": math.hypot(energy_se, reference.entropy_se),
        "pair_distance": distance,
        "pair_distance_se": distance_se,
        "kl": None,
        "kl_se": None,
    }
    if draws.log_prob is not None:
        gap = draws.log_prob - log_truth.cpu().numpy()
        found["kl"], found["kl_se"] = mean_and_error(gap, draws.order)
        if 1 < found["orders"] < len(gap):
            means = [gap[draws.order == k].mean() for k in np.unique(draws.order)]
            found["kl_least_order"], found["kl_largest_order"] = min(means), max(means)
    return found


def mean_and_error(values: np.ndarray, order: np.ndarray | None = None) -> tuple[float, float]:
    """Return a mean and its standard error.

    Sequences that share an order are not independent: with several orders the error is that of
    the mean of their means, for orders with equally many sequences.
    """
    if order is not None and 1 < len(np.unique(order)):
        values = np.array([values[order == k].mean() for k in np.unique(order)])
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), float(error)
