"""Every rule draws text; what was drawn is scored by the model itself and by the judge.

Two tasks of one block: ``free`` masks all of it, ``infill`` the middle half of held-out blocks. Of
every rule at some settings:

* ``forwards`` a sequence, and ``tokens_per_forward``;
* ``own``: nats a token by the model that drew it, one at a time in a random order;
* ``judge``: nats a token of what was drawn, by the left-to-right model of the same text, and
  ``judge_after``: of the given tokens after it, which says whether the two fit;
* ``distinct``: share of different runs of four tokens among all that were drawn. A rule that says
  ordinary things again and again scores well above and badly here; real text stands beside it;
* ``recovered``: share of held-out tokens that came back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import counterprobe as cp
from counterprobe.errors import CounterprobeError
from counterprobe.evaluation.dependence import estimate_dependence
from counterprobe.evaluation.likelihood import log_likelihoods
from counterprobe.models.transformers import LanguageModel
from languages.text import BLOCK, Corpus, blocks_of

__all__ = ["CONTESTANTS", "Contestant", "Task", "contest", "reference", "tasks_of"]

# What is filled in of a held-out block.
SPAN = slice(BLOCK // 4, 3 * BLOCK // 4)
RUN = 4
# Texts that the information profile is measured on.
CURVE_SAMPLES = 4


@dataclass(frozen=True)
class Contestant:
    """A rule and its settings; a structure is found first where it has ``mode``."""

    sampler: str
    settings: dict[str, Any] = field(default_factory=dict)
    mode: str = ""

    @property
    def label(self) -> str:
        """How results name it."""
        said = " ".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.mode or self.sampler} {said}".strip()


def _sweep(sampler: str, setting: str, *values: Any, **more: Any) -> list[Contestant]:
    return [Contestant(sampler, {setting: value, **more}) for value in values]


# By rule; the first settings of all are measured before the second of any.
CONTESTANTS: list[list[Contestant]] = [
    [
        Contestant("sequential", {"order": "random"}),
        Contestant("sequential", {"order": "entropy"}),
    ],
    _sweep("random-balanced", "batches", 32, 64, 16),
    _sweep("spread", "batches", 32, 64, 16),
    _sweep("auto", "target_kl", 30.0, 10.0, 100.0),
    _sweep("entropy-bounded", "gamma", 30.0, 10.0, 60.0),
    _sweep("punt", "epsilon", 1.0, 0.3, 3.0),
    _sweep("mean-field", "threshold", 0.15, 0.3),
    _sweep("threshold", "threshold", 0.15, 0.3, 0.08),
    _sweep("factor", "factor", 8.0, 4.0, 16.0),
    _sweep("klass", "confidence_threshold", 0.15, 0.3),
    _sweep("llada", "steps", 32, 64, 16),
    _sweep("dream", "steps", 32, 64, 16),
    _sweep("maskgit", "steps", 32, 64, 16),
    [Contestant("dapd", {"graph": "attention"})],
    [
        Contestant(
            "dawn",
            {
                "graph": "attention",
                "low_threshold": 0.1,
                "induced_threshold": 0.15,
                "high_threshold": 0.3,
            },
        )
    ],
    _sweep("information-profile", "batches", 32, 64, 16),
    _sweep("planned", "batches", 32, 64),
]


@dataclass(frozen=True)
class Task:
    """Contexts to fill in, ``MASK`` elsewhere, and the truth where there is one."""

    name: str
    given: np.ndarray
    truth: np.ndarray | None
    num_masked: int


def tasks_of(oracle: Any, corpus: Corpus, count: int) -> list[Task]:
    """Return free text and held-out blocks, in the oracle's tokens."""
    ids = blocks_of(corpus.parts["held"], count, 2)
    truth = np.searchsorted(oracle.template.vocabulary, ids).astype(np.int32)
    free = np.full((count, BLOCK), cp.MASK, dtype=np.int32)
    span = truth.copy()
    span[:, SPAN] = cp.MASK
    return [
        Task("free", free, None, BLOCK),
        Task("infill", span, truth, int((span[0] == cp.MASK).sum())),
    ]


def contest(
    known: LanguageModel,
    judge: Any,
    corpus: Corpus,
    *,
    count: int,
    deadline: float,
    contestants: list[list[Contestant]] | None = None,
    keep: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Let every rule draw until a deadline; say what was left out for want of time.

    ``keep`` is handed what was found so far, after every measurement.
    """
    oracle = known.oracle(known.template(np.full(BLOCK, known.mask_id)))
    found: dict[str, Any] = {"free": {}, "infill": {}, "left_out": []}
    tasks = tasks_of(oracle, corpus, count)
    structures: dict[str, Any] = {}
    longest: dict[str, float] = {}
    for contestant, task in _in_turn(contestants or CONTESTANTS, tasks):
        # What a rule took before is about what it takes again; a new one is worth a try.
        if time.perf_counter() + longest.get(contestant.sampler, 5.0) > deadline:
            found["left_out"].append(f"{task.name}: {contestant.label}")
            continue
        started = time.perf_counter()
        try:
            result = _measure(oracle, judge, corpus, contestant, task, count, structures)
        except (ValueError, RuntimeError, CounterprobeError) as problem:
            # One rule that fails must not cost what the others measured; it is told.
            print(f"{task.name} {contestant.label}: {problem}", flush=True)
            found["left_out"].append(f"{task.name}: {contestant.label}: {problem}")
            continue
        if result is None:
            continue
        taken = time.perf_counter() - started
        longest[contestant.sampler] = max(longest.get(contestant.sampler, 0.0), taken)
        found[task.name][contestant.label] = {**result, "seconds": round(taken, 2)}
        print(
            f"{task.name} {contestant.label}: {result['tokens_per_forward']:.2f} tokens a forward,"
            f" own {result['own']:.3f}, judge {result['judge']:.3f}, distinct "
            f"{result['distinct']:.3f}, {taken:.1f} s",
            flush=True,
        )
        keep(found)
    return found


def _in_turn(
    contestants: list[list[Contestant]], tasks: list[Task]
) -> Iterator[tuple[Contestant, Task]]:
    """Yield the first settings of every rule, then the second, and so on."""
    for k in range(max(map(len, contestants))):
        for sweep in contestants:
            if k < len(sweep):
                yield from ((sweep[k], task) for task in tasks)


def _measure(
    oracle: Any,
    judge: Any,
    corpus: Corpus,
    contestant: Contestant,
    task: Task,
    count: int,
    structures: dict[str, Any],
) -> dict[str, Any] | None:
    """Draw and score."""
    shared = 0
    options: dict[str, Any] = {"orders": "fresh", "at_once": count}
    if contestant.sampler == "planned":
        # One structure serves many sequences of one context; here every infill has its own.
        if task.name != "free":
            return None
        if "free" not in structures:
            structures["free"] = cp.discover(oracle, cp.Streams.from_seed(5), mode="soft")
        structure = structures["free"]
        shared = structure.ledger.evaluations
        drawn = cp.sample(
            oracle, structure, count, seed=3, given=task.given, progress=False,
            **contestant.settings, at_once=count,
        )  # fmt: skip
    else:
        told: dict[str, Any] = {}
        if contestant.sampler == "information-profile":
            if "profile" not in structures:
                structures["profile"] = estimate_dependence(oracle, samples=CURVE_SAMPLES, seed=5)
            profile = structures["profile"]
            shared, told = profile.ledger.evaluations, {"curve": tuple(profile.curve.tolist())}
        drawn = cp.sample(
            oracle, contestant.sampler, count, seed=3, given=task.given, progress=False,
            **contestant.settings, **told, **options,
        )  # fmt: skip
    forwards = np.array([result.ledger.evaluations for result in drawn.results], dtype=float)
    scored = _scores(oracle, judge, drawn.sequences, task)
    return {
        "forwards": float(forwards.mean()),
        "tokens_per_forward": float(task.num_masked / forwards.mean()),
        "rounds": float(np.mean([result.ledger.stages for result in drawn.results])),
        "shared_forwards": shared,
        **scored,
    }


def _scores(oracle: Any, judge: Any, sequences: np.ndarray, task: Task) -> dict[str, Any]:
    """Score finished sequences: one row of a table."""
    own = log_likelihoods(oracle, sequences, given=task.given, orders=1, at_once=512).per_token
    ids = oracle.template.vocabulary[sequences]
    nats = judge_nats(judge, ids)
    span = SPAN if task.name == "infill" else slice(1, BLOCK)
    on_span = nats[:, span].mean(axis=1)
    out = {
        "own": float(-own.mean()),
        "own_se": float(own.std(ddof=1) / np.sqrt(len(own))),
        "judge": float(on_span.mean()),
        "judge_se": float(on_span.std(ddof=1) / np.sqrt(len(on_span))),
        "distinct": distinct(ids[:, span]),
    }
    if task.truth is not None:
        out["judge_after"] = float(nats[:, SPAN.stop :].mean())
        out["recovered"] = float((sequences[:, SPAN] == task.truth[:, SPAN]).mean())
    return out


def reference(known: LanguageModel, judge: Any, corpus: Corpus, count: int) -> dict[str, Any]:
    """Score held-out text itself: what a perfect sampler of the text would have."""
    oracle = known.oracle(known.template(np.full(BLOCK, known.mask_id)), row_error=0.0)
    free, infill = tasks_of(oracle, corpus, count)
    assert infill.truth is not None
    return {
        "free": _scores(oracle, judge, infill.truth, free),
        "infill": _scores(oracle, judge, infill.truth, infill),
    }


@torch.no_grad()
def judge_nats(judge: Any, ids: np.ndarray) -> np.ndarray:
    """Return how many nats the judge gives each token, shape ``(count, BLOCK)``; the first 0."""
    device = next(judge.parameters()).device
    out = np.zeros(ids.shape)
    for low in range(0, len(ids), 64):
        part = torch.as_tensor(ids[low : low + 64], device=device)
        logs = judge(part[:, :-1]).logits.float().log_softmax(dim=-1)
        taken = logs.gather(2, part[:, 1:, None])[..., 0]
        out[low : low + 64, 1:] = -taken.cpu().numpy()
    return out


def distinct(ids: np.ndarray) -> float:
    """Return the share of different runs among all runs of four tokens."""
    runs = np.lib.stride_tricks.sliding_window_view(ids, RUN, axis=1).reshape(-1, RUN)
    return float(len(np.unique(runs, axis=0)) / len(runs))
