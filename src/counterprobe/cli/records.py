"""One run as JSON: everything that ``reproduce`` needs to make it again, and what came out."""

from __future__ import annotations

from typing import Any

from counterprobe.cli.targets import Target
from counterprobe.evaluation.comparison import Trial
from counterprobe.samplers import Sampler
from counterprobe.states import fingerprint
from counterprobe.targets.law import ForestLaw

__all__ = ["run_record"]


def run_record(
    target: Target, law: ForestLaw, sampler: Sampler, seed: int, trial: Trial, draws: int | None
) -> dict[str, Any]:
    """Return the record of a run.

    Parameters
    ----------
    target : Target
        What was asked for.
    law : ForestLaw
        What it became.
    sampler : Sampler
        With the settings it was asked for; what the law told it is left out.
    seed : int
    trial : Trial
    draws : int or None
        Monte Carlo draws of the batch KL; None if it was not measured.
    """
    result, kl = trial.result, trial.kl
    tokens = result.tokens
    return {
        "family": law.name if target.edges is None else f"edges:{target.edges}",
        "n": law.length,
        "vocab": law.vocab_size,
        "target_seed": target.target_seed,
        "seed": seed,
        **result.summary(),
        "settings": sampler.settings,
        "knows": sampler.knows,
        "batch_kl": None if kl is None else kl.value,
        "batch_kl_se": None if kl is None else kl.standard_error,
        "draws": draws,
        "tokens_fingerprint": None if tokens is None else f"{int(fingerprint(tokens)[0]):016x}",
        "target": target.as_dict(law),
    }
