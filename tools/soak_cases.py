"""What a soak draws and what it checks: laws, samplers, contexts, oracles that count and fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import counterprobe as cp
from counterprobe.oracles import Oracle, Query, Reply
from counterprobe.samplers import SAMPLERS, Sampler, build_sampler
from counterprobe.testing import CountingOracle, small_forest, small_table

# Needs laws of thousands of tokens; its tests have them.
LEFT_OUT = {"packed-theory"}
FAMILIES = ("matching", "path", "binary-tree", "growing-stars", "random-recursive-tree",
            "caterpillar", "double-star", "preferential-attachment", "random-forest")  # fmt: skip


class InjectedFault(RuntimeError):
    """What a faulty oracle raises."""


class Broken(AssertionError):
    """Something that must be conserved was not."""


class AnsweringOracle(CountingOracle):
    """Counts what was answered, keeps none of it, and fails once when told to."""

    fails_at: int | None = None

    def ask(self, query: Query) -> Reply:
        """Answer, unless this is the call that fails."""
        self.calls += 1
        if self.calls - 1 == self.fails_at:
            raise InjectedFault("injected")
        answer = self.inner.ask(query)
        self.states += len(query.states)
        self.rows_read += len(query.readouts)
        return answer


def require(holds: bool, what: str) -> None:
    """Raise ``Broken`` unless something holds."""
    if not holds:
        raise Broken(what)


@dataclass(frozen=True)
class Case:
    """A law, a sampler told of it, a context and the streams of one run."""

    law: Any
    sampler: Sampler
    given: Any
    streams: cp.Streams
    sequence: int = 0

    def run(self, oracle: Oracle, **options: Any) -> tuple[cp.run.Run, cp.SampleResult]:
        """Run once."""
        run = cp.run.Run(oracle, given=self.given, sequence=self.sequence, **options)
        return run, self.sampler(run, self.streams)


def draw_case(draw: np.random.Generator) -> Case:
    """Draw a case."""
    kind = int(draw.integers(4))
    law: Any
    if kind == 0:
        law = small_table()
    elif kind == 1:
        law = small_forest()
    else:
        family = str(draw.choice(FAMILIES))
        law = cp.families.build(family, int(draw.integers(3, 25)), int(draw.integers(1000)))
    names = sorted(set(SAMPLERS) - LEFT_OUT)
    sampler = None
    while sampler is None:
        try:
            sampler = build_sampler(str(draw.choice(names))).informed_by(law)
        except ValueError:  # it needs a forest, and this is a table
            continue
    whole = law.sample(1, draw)[0]
    given = np.where(draw.random(law.length) < draw.choice([0.0, 0.3, 1.0]), whole, cp.MASK)
    seeds = draw.integers(2**31, size=2)
    return Case(law, sampler, given, cp.Streams(int(seeds[0]), int(seeds[1])))


def check_result(result: cp.SampleResult, oracle: AnsweringOracle, given: Any) -> None:
    """Check one run against what the oracle outside has counted."""
    ledger = result.ledger
    require(
        ledger.evaluations == oracle.states,
        f"charged {ledger.evaluations}, answered {oracle.states}",
    )
    require(ledger.rows_read == oracle.rows_read, "rows read are not those answered")
    require(bool((result.state[given != cp.MASK] == given[given != cp.MASK]).all()),
            "given context changed")  # fmt: skip
    events = [event for event in result.transcript.events if event.operation == "commit"]
    committed = sum(len(event.positions) for event in events)
    standing = int(((result.state != cp.MASK) & (given == cp.MASK)).sum())
    told = f"{committed} positions committed, {standing} stand, {result.undone} taken back"
    require(committed == standing + result.undone, told)
    require(cp.Need.REMASK in result.used or result.undone == 0, "taken back without the right")
    if result.tokens is not None:
        require(bool((result.state != cp.MASK).all()), "a completed run has masks")


def tiny_model() -> Any | None:
    """Return a small network over two letters, or None without torch."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    from counterprobe.models.letters import Letters, SequenceModel

    weight = torch.tensor([[0.4, -0.3], [-0.2, 0.5], [0.1, 0.2]], dtype=torch.float64)

    def network(ids: torch.Tensor) -> torch.Tensor:
        return weight[ids] + weight[ids].roll(1, dims=1) - weight[ids].sum(dim=1, keepdim=True)

    return SequenceModel("tiny", network, Letters("AB", (0, 1), mask_id=2), 64)
