"""How good samples are when no law is known: every measure of a batch of sequences, together.

:func:`assess` puts side by side what product commits broke (``chain_rule``), how probable the
oracle finds the sequences and how far its own orders disagree (``likelihood``), whether they may
be told from a reference, and how varied they are (``two_sample``). No single one suffices: a batch
KL does not see the bias of choosing among drawn values, a log-likelihood rewards dull samples, and
a test only sees what its number of sequences shows. ``docs/quality.md`` says when each misleads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, StateArray
from counterprobe.evaluation.chain_rule import AT_ONCE, run_kl
from counterprobe.evaluation.chain_rule_kl import ChainRuleKL, standard_error
from counterprobe.evaluation.likelihood import LogLikelihoods, log_likelihoods
from counterprobe.evaluation.two_sample import (
    Diversity,
    FrequencyDifference,
    TwoSampleTest,
    diversity,
    frequency_difference,
    two_sample_test,
)
from counterprobe.oracles import Oracle
from counterprobe.run.batches import SampleBatch
from counterprobe.run.ledger import Ledger, Need
from counterprobe.run.results import SampleResult
from counterprobe.states import MASK, as_states

__all__ = ["Quality", "assess", "quality_under_parallelism", "quality_weight"]

# Of quality under parallelism: how fast its weight falls, and percentage points that may be lost.
PENALTY, TOLERANCE = 3.0, 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Quality:
    """What was measured of a batch of sequences.

    Attributes
    ----------
    completed : int
        Sequences that were measured: the complete ones.
    batch_kl : ChainRuleKL or None
        None where it does not apply, as a note says, or was not asked for.
    likelihood : LogLikelihoods or None
        Of each complete sequence, in random orders; None where it was not asked for.
    diversity : Diversity
        Over the masked positions.
    test : TwoSampleTest or None
        Against the reference; None without one, or with fewer than two sequences.
    frequencies : FrequencyDifference or None
        Between these sequences and the reference, over the masked positions.
    ledger : Ledger
        What measuring was charged; what drawing was charged is the batch's own.
    notes : tuple of str
        What could not be measured, and what a measure does not see here.
    """

    completed: int
    batch_kl: ChainRuleKL | None
    likelihood: LogLikelihoods | None
    diversity: Diversity
    test: TwoSampleTest | None
    frequencies: FrequencyDifference | None
    ledger: Ledger
    notes: tuple[str, ...]

    @property
    def log_likelihood_per_token(self) -> float:
        """Mean over sequences, in nats per masked position; NaN where nothing was masked."""
        return float(self._per_token.mean()) if len(self._per_token) else math.nan

    @property
    def log_likelihood_per_token_se(self) -> float:
        """Standard error of that mean, between sequences."""
        return standard_error(self._per_token)

    @property
    def _per_token(self) -> FloatArray:
        if self.likelihood is None:
            return np.empty(0)
        per_token = self.likelihood.per_token
        return per_token[~np.isnan(per_token)]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        kl, test = self.batch_kl, self.test
        apart = None if self.likelihood is None else self.likelihood.disagreement
        return {
            "completed": self.completed,
            "batch_kl": None if kl is None else kl.value,
            "batch_kl_se": None if kl is None else kl.standard_error,
            "batch_kl_per_round": None if kl is None else kl.per_round.tolist(),
            "log_likelihood_per_token": self.log_likelihood_per_token,
            "log_likelihood_per_token_se": self.log_likelihood_per_token_se,
            "order_disagreement": None if apart is None else apart.mean_absolute,
            "order_standard_deviation": None if apart is None else apart.standard_deviation,
            "squared_mmd": None if test is None else dict(test.squared_mmd),
            "p_value": None if test is None else dict(test.p_value),
            "bandwidth": None if test is None else test.bandwidth,
            "permutations": None if test is None else test.permutations,
            "largest_site_difference": _largest(self.frequencies),
            "mean_pair_difference": (
                None if self.frequencies is None else self.frequencies.mean_pair
            ),
            "mean_distance": self.diversity.mean_distance,
            "num_distinct": self.diversity.num_distinct,
            "num_positions": self.diversity.num_positions,
            "measuring": self.ledger.as_dict(),
            "notes": list(self.notes),
        }


def assess(
    oracle: Oracle,
    batch: SampleBatch,
    reference: SampleBatch | ArrayLike | None = None,
    *,
    evaluate: bool = True,
    orders: int = 2,
    terms: int | None = None,
    permutations: int = 999,
    seed: int = 0,
    at_once: int = AT_ONCE,
) -> Quality:
    """Measure sequences without knowing the law that they should follow.

    Parameters
    ----------
    oracle : Oracle
        The one they were drawn with; its rows must be a function of the state alone. One whose
        rows depend on the order of commits refuses.
    batch : SampleBatch
        At least one complete sequence.
    reference : SampleBatch, or array_like of int of shape (n, N), optional
        Sequences of the law that is wanted, such as those of ``Sequential("random")`` with
        ``orders="fresh"`` and another seed.
    evaluate : bool
        Whether to ask the oracle; without, only what sequences themselves show is measured.
    orders : int
        Random orders in which each sequence is scored; with two, they can be compared.
    terms : int, optional
        Evaluate only this many steps of each batch for the batch KL; see :func:`run_kl`.
    permutations : int
        Of the test against the reference.
    seed : int
        Of orders, steps and shuffles; none of it is the seed of the sequences.
    at_once : int
        States in one call of the oracle, at most.

    Examples
    --------
    >>> import counterprobe as cp
    >>> from counterprobe.evaluation import assess
    >>> oracle = cp.TableLaw([[0.4, 0.1], [0.1, 0.4]]).oracle()
    >>> drawn = cp.sample(oracle, "one-batch", 50, progress=False)
    >>> wanted = cp.sample(oracle, "sequential", 50, seed=9, progress=False)
    >>> found = assess(oracle, drawn, wanted)
    >>> found.batch_kl.value > 0.1, found.diversity.num_distinct, found.ledger.evaluations
    (True, 4, 300)
    """
    is_complete = (batch.sequences != MASK).all(axis=1)
    if not is_complete.any():
        raise ValueError(
            f"batch must hold a complete sequence, got none of {len(batch)}: "
            f"{batch.results[0].reason}"
        )
    sequences, given = batch.sequences[is_complete], batch.given[is_complete]
    runs = [batch.results[k] for k in np.flatnonzero(is_complete).tolist()]
    notes = _notes(runs, len(batch))
    kl = scored = None
    ledger = Ledger()
    if evaluate and _has_batch_kl(runs):
        kl = run_kl(oracle, runs, terms=terms, seed=seed, at_once=at_once)
        ledger += kl.ledger
    if evaluate:
        scored = log_likelihoods(
            oracle, sequences, given=given, orders=orders, seed=seed, at_once=at_once
        )
        ledger += scored.ledger
    masked = np.flatnonzero((given == MASK).any(axis=0))
    test = frequencies = None
    wanted = _reference(reference, oracle)
    if wanted is not None:
        frequencies = frequency_difference(sequences, wanted, positions=masked)
        if min(len(sequences), len(wanted)) < 2:
            notes.append("a test against the reference needs two sequences of either")
        else:
            test = two_sample_test(
                sequences, wanted, positions=masked, permutations=permutations, seed=seed
            )
    return Quality(
        completed=len(sequences),
        batch_kl=kl,
        likelihood=scored,
        diversity=diversity(sequences, positions=masked),
        test=test,
        frequencies=frequencies,
        ledger=ledger,
        notes=tuple(notes),
    )


def _has_batch_kl(runs: list[SampleResult]) -> bool:
    unlike = Need.VERIFY | Need.REMASK
    return all(run.temperature == 1 and not run.used & unlike for run in runs)


def _notes(runs: list[SampleResult], count: int) -> list[str]:
    """Say what the numbers leave out, and what every run says of itself."""
    notes = []
    if len(runs) < count:
        notes.append(f"{count - len(runs)} of {count} sequences are not complete and left out")
    if any(run.temperature != 1 for run in runs):
        notes.append(
            "no batch KL: tokens were drawn at a temperature that the oracle's rows do not have"
        )
    elif not _has_batch_kl(runs):
        notes.append("no batch KL: it does not apply to runs that verify or mask again")
    if any(Need.CANDIDATES in run.used for run in runs):
        notes.append(
            "choosing among drawn values biases the output, which the batch KL does not see"
        )
    said = [run.notes for run in runs]
    return notes + [note for note in (said[0] if said else ()) if all(note in one for one in said)]


def _reference(reference: SampleBatch | ArrayLike | None, oracle: Oracle) -> StateArray | None:
    """Return the complete sequences of a reference."""
    if reference is None:
        return None
    listed = reference.sequences if isinstance(reference, SampleBatch) else reference
    states = as_states(listed, oracle.length, oracle.vocab_size, name="reference")
    complete: StateArray = states[(states != MASK).all(axis=1)]
    if not len(complete):
        raise ValueError(f"reference must hold a complete sequence, got none of {len(states)}")
    return complete


def _largest(difference: FrequencyDifference | None) -> float | None:
    if difference is None or not len(difference.site):
        return None
    return float(difference.site.max())


# ----- Quality under parallelism -----------------------------------------------------------


def quality_under_parallelism(
    tokens_per_forward: ArrayLike,
    quality: ArrayLike,
    best: float | None = None,
    *,
    penalty: float = PENALTY,
    tolerance: float = TOLERANCE,
) -> float:
    """Return the area under quality against tokens per forward, lost quality weighted down.

    The d3LLM leaderboard (hao-ai-lab/d3LLM, Qian et al. 2026) ranks decoders by accuracy under
    parallelism. A sampler's settings give points, tokens per forward ``r_k`` and quality ``y_k``
    in percent, with ``r_1 < r_2 < ...``; those with ``y_k`` more than five points below ``y_1``
    are left out. Then

    ``AUP = r_1 y_1 + sum_k (r_k - r_{k-1}) (y_k w(y_k) + y_{k-1} w(y_{k-1})) / 2``

    with ``w(y) = min(1, exp(-alpha (1 - y / y_best)))``, ``alpha = 3`` and the best quality of all
    samplers compared. Any quality in percent may stand in the place of accuracy, as long as it is
    named beside the number. One token at a time with the best quality scores 100.

    Parameters
    ----------
    tokens_per_forward : array_like of float, shape (points,)
        Positive; of equal ones the best counts.
    quality : array_like of float, shape (points,)
        In percent, of the same points; those where it is not a number are left out.
    best : float, optional
        The best quality of all samplers compared; of these points by default.
    penalty : float
        ``alpha``: how fast the weight falls with lost quality.
    tolerance : float
        Percentage points below the slowest setting's quality beyond which a point is left out.

    Returns
    -------
    float
        NaN if no point has a quality.

    Examples
    --------
    >>> quality_under_parallelism([1, 2, 4], [100, 100, 100])
    400.0
    >>> quality_under_parallelism([1, 2, 4], [100, 100, 90])  # the last one is too far below
    200.0
    """
    speed = np.asarray(tokens_per_forward, dtype=np.float64)
    kept = np.asarray(quality, dtype=np.float64)
    if speed.ndim != 1 or speed.shape != kept.shape:
        raise ValueError(
            "tokens_per_forward and quality must be flat and of one length, got shapes "
            f"{speed.shape} and {kept.shape}"
        )
    known = np.isfinite(kept) & np.isfinite(speed)
    speed, kept = speed[known], kept[known]
    if (speed <= 0).any() or (kept < 0).any():
        raise ValueError(
            "tokens_per_forward must be positive and quality not negative, got "
            f"{speed.min()} and {kept.min()}"
        )
    if not len(speed):
        return math.nan
    # Slowest first; of equal speeds the best first, and the others dropped.
    order = np.lexsort((-kept, speed))
    speed, kept = speed[order], kept[order]
    is_first = np.concatenate([[True], np.diff(speed) > 0])
    speed, kept = speed[is_first], kept[is_first]
    is_near = kept >= kept[0] - tolerance
    speed, kept = speed[is_near], kept[is_near]
    counted = kept * quality_weight(kept, kept.max() if best is None else best, penalty)
    return float(speed[0] * kept[0] + np.trapezoid(counted, speed))


def quality_weight(quality: FloatArray, best: float, penalty: float = PENALTY) -> FloatArray:
    """Return ``min(1, exp(-penalty (1 - quality / best)))``; 1 where the best is zero.

    Parameters
    ----------
    quality : ndarray of float
    best : float
        Not negative.
    penalty : float
    """
    if best == 0:
        return np.ones_like(quality)
    weight: FloatArray = np.minimum(1.0, np.exp(-penalty * (1 - quality / best)))
    return weight
