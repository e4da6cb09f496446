"""One run as JSON: everything that ``reproduce`` needs to make it again, and what came out."""

from __future__ import annotations

from typing import Any

from counterprobe.cli.targets import Target
from counterprobe.evaluation import Trial
from counterprobe.samplers import Sampler
from counterprobe.streams import Streams
from counterprobe.targets.law import ForestLaw

__all__ = ["run_record", "run_terms"]


def run_record(
    target: Target, law: ForestLaw, sampler: Sampler, seed: int, trial: Trial
) -> dict[str, Any]:
    """Return the record of a run: where it was made, and the run itself.

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
    """
    return {
        "family": law.name if target.edges is None else f"edges:{target.edges}",
        "n": law.length,
        "vocab": law.vocab_size,
        "target_seed": target.target_seed,
        "seed": seed,
        **trial.record(sampler),
        "target": target.as_dict(law),
    }


def run_terms(
    target: Target,
    law: ForestLaw,
    rule: Sampler,
    streams: Streams,
    temperature: float,
    paranoid: float,
) -> dict[str, Any]:
    """Return what determines a run, for its checkpoint; an edge list counts by its content."""
    return {
        **{key: value for key, value in target.as_dict(law).items() if key != "edges"},
        "forest": [law.unary, law.edges, law.pair],
        "sampler": rule.name,
        "settings": rule.settings,
        "decision_seed": streams.decision_seed,
        "commit_seed": streams.commit_seed,
        "temperature": temperature,
        "paranoid": paranoid,
    }
