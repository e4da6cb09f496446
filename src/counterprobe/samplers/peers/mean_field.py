"""Mean-field decoding: sure rows that look alike hold each other back, by a fixed point.

A reconstruction from what its abstract says (arXiv 2606.15805): every masked position has a commit
score, pairs interact by the overlap of their rows (one less the Jensen-Shannon divergence), and a
variational relaxation gives a fixed point that suppresses commits which conflict. No further
forward is made. What the abstract leaves open is settled here in the plainest way: commits are
independent coins ``m_i`` that maximise

``sum_i m_i u_i - coupling * sum_{i<j} overlap_ij m_i m_j + sum_i entropy(m_i)``,

``u_i`` being how far the log-odds of a row's confidence lie above those of the threshold, and
the positions with ``m_i >= 1/2`` are committed. Only rows that reach the threshold can be, so the
others are left out of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from counterprobe.arguments import Count, NotNegative, Range
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.rows import ClassedRows, Rows, to_numpy
from counterprobe.samplers.base import Sweep
from counterprobe.samplers.rules.stepwise import Reply, Stepwise

__all__ = ["MeanField", "commit_chances", "row_overlaps"]

# Confidences of 0 and 1 have no finite odds.
LEAST_DOUBT = 1e-9


@dataclass(frozen=True)
class MeanField(Stepwise):
    """Commit the sure positions that the mean field of their overlaps lets through.

    If none passes, the surest one. Without coupling this is ``threshold``.

    Parameters
    ----------
    threshold : float
        Confidence from which a row may be committed; 1 or more, one position per step.
    coupling : float
        How much two rows that are alike hold each other back; in log-odds.
    iterations : int
        Rounds of the fixed point, each half old and half new.
    """

    name: ClassVar[str] = "mean-field"
    summary: ClassVar[str] = "sure rows, held back by others that look alike; a fixed point"
    source: ClassVar[str] = "arXiv 2606.15805 (reconstruction from its abstract)"
    sweep: ClassVar[Sweep | None] = Sweep("threshold", (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9))

    threshold: Annotated[float, Range(above=0)] = 0.7
    coupling: NotNegative = 1.0
    iterations: Count = 20

    def exact_for(self, length: int) -> bool:
        """Claim the chain rule where no row can pass: one row-chosen position per step."""
        return length == 1 or self.threshold > 1

    def choose(self, reply: Reply) -> IntArray:
        """Relax the coins of the rows that may be committed."""
        confidence = reply.confidence()
        sure = np.flatnonzero(confidence >= self.threshold)
        if len(sure) > 1:
            field = _log_odds(confidence[sure]) - _log_odds(np.array(self.threshold))
            overlap = row_overlaps(reply.rows.take(sure))
            chances = commit_chances(field, self.coupling * overlap, self.iterations)
            sure = sure[chances >= 0.5]
        return reply.residual[sure if len(sure) else [int(np.argmax(confidence))]]


def row_overlaps(rows: Rows) -> FloatArray:
    """Return one less the Jensen-Shannon divergence, in bits, of every two rows; 0 of one alone.

    ``JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2``: 1 bit where two rows share no token, 0
    where they are equal.

    Parameters
    ----------
    rows : Rows
        m of them.

    Returns
    -------
    ndarray of float, shape (m, m)
    """
    p = _masses(rows)
    entropy = _entropies(p)
    overlap = np.zeros((len(p), len(p)))
    for i in range(len(p) - 1):
        mixed = _entropies((p[i] + p[i + 1 :]) / 2)
        divergence = (mixed - (entropy[i] + entropy[i + 1 :]) / 2) / np.log(2)
        overlap[i, i + 1 :] = overlap[i + 1 :, i] = 1 - np.clip(divergence, 0, 1)
    return overlap


def _masses(rows: Rows) -> FloatArray:
    """Return probabilities; of classes where all rows share them, which changes no divergence."""
    if isinstance(rows, ClassedRows):
        kinds = rows.classes.kind[rows.positions]
        if (kinds == kinds[0]).all():
            return rows.class_masses
    return np.asarray(to_numpy(rows.dense()), dtype=np.float64)


def commit_chances(field: FloatArray, repulsion: FloatArray, iterations: int) -> FloatArray:
    """Return the coins of the fixed point ``m_i = sigmoid(field_i - sum_j repulsion_ij m_j)``.

    Half of the old coins is kept in every round, so that two rows which exclude each other settle
    and do not take turns.

    Parameters
    ----------
    field : ndarray of float, shape (m,)
    repulsion : ndarray of float, shape (m, m)
        Symmetric, zero on its diagonal.
    iterations : int
    """
    chances = _sigmoid(field)
    for _ in range(iterations):
        chances = (chances + _sigmoid(field - repulsion @ chances)) / 2
    return chances


def _entropies(p: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p), 0.0)
    total: FloatArray = -terms.sum(axis=-1)
    return total


def _log_odds(chance: FloatArray) -> FloatArray:
    kept = np.clip(chance, LEAST_DOUBT, 1 - LEAST_DOUBT)
    odds: FloatArray = np.log(kept) - np.log1p(-kept)
    return odds


def _sigmoid(x: FloatArray) -> FloatArray:
    shares: FloatArray = 0.5 * (1 + np.tanh(x / 2))
    return shares
