"""Comparisons on an engine: what a worker's death changes, which is nothing, and what it says."""

from dataclasses import dataclass
from typing import ClassVar

from counterprobe import families, samplers
from counterprobe.engines import InProcess
from counterprobe.engines.outcomes import Failed, Lost
from counterprobe.evaluation.cells import compare_on

LAWS, SEEDS = [families.path(12, 1), families.path(12, 2)], [3, 4]


class Death(Exception):
    """Ends the worker that raises it."""


class Losing(InProcess):
    """This process, as if a task could end it."""

    attempts = 3

    def hire(self, prepared):
        return LosingHand(super().hire(prepared))


class LosingHand:
    is_placed = True

    def __init__(self, hand):
        self.send, self.close, self._receive = hand.send, hand.close, hand.receive

    def receive(self):
        outcome = self._receive()
        died = isinstance(outcome, Failed) and isinstance(outcome.error, Death)
        return Lost("it died") if died else outcome


@dataclass(frozen=True)
class Deadly(samplers.OneBatch):
    """One batch, after so many deaths of each run."""

    name: ClassVar[str] = "deadly"
    deaths: int = 0
    died: ClassVar[dict] = {}

    def schedule(self, residual, decisions):
        run = self.deaths, decisions.seed
        self.died[run] = self.died.get(run, 0) + 1
        if self.died[run] <= self.deaths:
            raise Death
        return super().schedule(residual, decisions)


def outcomes(entry):
    return [(trial.result.tokens.tolist(), trial.result.ledger) for trial in entry.trials]


def test_a_run_whose_workers_die_is_made_again_and_one_that_always_dies_fails_alone():
    losses = []
    Deadly.died.clear()
    rules = [Deadly(2), Deadly(100), samplers.OneBatch()]
    one, other, last = compare_on(Losing(), LAWS, rules, SEEDS, draws=None, on_loss=losses.append)
    (alone,) = compare_on(InProcess(), LAWS, [samplers.OneBatch()], SEEDS, draws=None)
    assert outcomes(one) == outcomes(last) == outcomes(alone)
    assert one.problem is last.problem is None
    assert (other.problem, other.trials) == ("it died, 3 times for one task", ())
    assert losses == ["it died"] * (2 * len(SEEDS) + 3 * len(LAWS) * len(SEEDS))
