"""What drawn sequences are worth: the true KL where a rule's log-probability is known, and pairs.

For one decision seed, a rule whose batches are a function of what was committed before (and of
rows, which are functions of that too) draws ``x`` with probability ``q(x)``, the product of its
tokens' entries in the rows they were drawn from. So ``KL(q || truth) = E[log q(x) - log p(x)]``
over its own draws, without bias and with a standard error. Averaged over decision seeds this is
the mean KL over orders, not the KL of the mixture of orders, which is smaller (``mixture.py``).

Rules that look at the drawn values before they choose what to keep (MaskGIT, PUNT) have no such
product. Every rule therefore has measures that need draws alone: the energy gap
``E_q[-log p] - E_p[-log p]``, zero for the truth; the squared distance between the frequencies of
pairs of values and those of exact samples, on the true edges and on all pairs; and the library's
permutation test of both sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from counterprobe.evaluation.two_sample import two_sample_test
from denoisers.files import Trained
from denoisers.laws import Truth

__all__ = ["Draws", "Reference", "pair_distance", "score"]

# Sequences and shuffles of the permutation test.
TESTED = 512
PERMUTATIONS = 199


@dataclass(frozen=True, slots=True)
class Draws:
    """Sequences of one sampler at one setting.

    Attributes
    ----------
    tokens : ndarray of int, shape (S, N)
    order : ndarray of int, shape (S,)
        Which decision seed each sequence had.
    evaluations, stages : ndarray of int, shape (S,)
        Of each sequence, what sequences share left out.
    log_prob : ndarray of float, shape (S,), or None
        Of each sequence under its order; None where drawn values decide what is kept.
    rounds : ndarray of int, shape (S, N), or None
        When each token was committed; None for sequences that were not drawn in rounds.
    """

    tokens: np.ndarray
    order: np.ndarray
    evaluations: np.ndarray
    stages: np.ndarray
    log_prob: np.ndarray | None
    rounds: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """Exact samples of a law, and its entropy estimated from many more of them."""

    tokens: np.ndarray
    entropy: float
    entropy_se: float

    @classmethod
    def of(cls, truth: Truth, count: int, entropy_count: int, seed: int = 11) -> Reference:
        """Draw ``count`` sequences to compare with, and ``entropy_count`` for the entropy."""
        generator = torch.Generator(truth.device).manual_seed(seed)
        surprise = -truth.log_prob(truth.sample(entropy_count, generator))
        mean, error = mean_and_error(surprise.cpu().numpy())
        return cls(truth.sample(count, generator).cpu().numpy(), mean, error)


def pair_distance(
    drawn: np.ndarray, exact: np.ndarray, pairs: np.ndarray, vocab_size: int
) -> tuple[float, float]:
    """Return the squared distance between pair frequencies, mean over pairs, and its error.

    With ``n_c`` of n draws and ``m_c`` of m exact samples in cell c of a pair's joint table it is
    the sum over cells of ``n_c (n_c - 1) / (n (n - 1)) + m_c (m_c - 1) / (m (m - 1)) - 2 n_c m_c /
    (n m)``: unbiased, so that it may be negative near the truth. It is the squared MMD of the
    kernel "share of the pairs at which two sequences agree". The error is that of the draws, by
    the projection of the U-statistic.

    Parameters
    ----------
    drawn, exact : ndarray of int, shape (n, N) and (m, N)
    pairs : ndarray of int, shape (P, 2)
    vocab_size : int
    """
    n, m = len(drawn), len(exact)
    value, lead = 0.0, np.zeros(n)
    for i, j in pairs:
        ours = drawn[:, i] * vocab_size + drawn[:, j]
        theirs = exact[:, i] * vocab_size + exact[:, j]
        size = vocab_size**2
        a, b = np.bincount(ours, minlength=size), np.bincount(theirs, minlength=size)
        value += (a * (a - 1)).sum() / (n * (n - 1)) + (b * (b - 1)).sum() / (m * (m - 1))
        value -= 2 * (a @ b) / (n * m)
        lead += (a[ours] - 1) / (n - 1) - b[ours] / m
    error = 2 * (lead / len(pairs)).std(ddof=1) / math.sqrt(n)
    return float(value / len(pairs)), float(error)


def score(draws: Draws, trained: Trained, reference: Reference) -> dict[str, Any]:
    """Measure draws against the truth; plain values."""
    device = trained.truth.device
    tokens = torch.as_tensor(draws.tokens, dtype=torch.int64, device=device)
    log_truth = trained.truth.log_prob(tokens)
    energy, energy_se = mean_and_error(-log_truth.cpu().numpy(), draws.order)
    exact, vocab_size = reference.tokens, trained.truth.vocab_size
    everywhere = np.column_stack(np.triu_indices(trained.truth.length, k=1))
    on_edges = pair_distance(draws.tokens, exact, trained.truth.edges, vocab_size)
    on_pairs = pair_distance(draws.tokens, exact, everywhere, vocab_size)
    # Some of every order: sequences of one order stand side by side.
    some = draws.tokens[:: max(1, len(tokens) // TESTED)]
    test = two_sample_test(some, exact[:TESTED], permutations=PERMUTATIONS)
    found: dict[str, Any] = {
        "count": len(tokens),
        "orders": len(np.unique(draws.order)),
        "evaluations": float(draws.evaluations.mean()),
        "evaluations_sd": float(draws.evaluations.std()),
        "stages": float(draws.stages.mean()),
        "energy_gap": energy - reference.entropy,
        "energy_gap_se": math.hypot(energy_se, reference.entropy_se),
        "edge_distance": on_edges[0],
        "edge_distance_se": on_edges[1],
        "pair_distance": on_pairs[0],
        "pair_distance_se": on_pairs[1],
        "p_value_pairs": test.p_value["pairs"],
        "p_value_hamming": test.p_value["hamming"],
        "kl": None,
        "kl_se": None,
    }
    if draws.log_prob is not None:
        gap = draws.log_prob - log_truth.cpu().numpy()
        found["kl"], found["kl_se"] = mean_and_error(gap, draws.order)
        if 1 < found["orders"] < len(gap):
            means = [float(gap[draws.order == k].mean()) for k in np.unique(draws.order)]
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
