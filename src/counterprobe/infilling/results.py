"""What ``infill`` returns: sequences with their texts, and why they were drawn as they were."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from counterprobe.arrays import FloatArray
from counterprobe.plain import plain
from counterprobe.run.batches import SampleBatch
from counterprobe.run.ledger import Ledger

__all__ = ["Choice", "Infilled"]


@dataclass(frozen=True, slots=True)
class Choice:
    """What ``sampler="auto"`` chose, or prices did where a structure comes from elsewhere; why.

    Attributes
    ----------
    sampler : str
        The rule that drew all sequences, or all but the first few.
    why : str
        One line for people.
    ledger : Ledger
        What it took to find and price a structure; part of the ledger of the whole.
    one_at_a_time : int
        Evaluations that one position at a time takes for all sequences.
    batch_kl, batch_kl_se : float, optional
        Nats that a plan was measured to break, where one was chosen.
    by : str
        Who chose: ``auto``, or ``measured prices``.
    prices : dict from str to (float, float)
        Ways of choosing batches that were priced, with nats and their standard error.
    """

    sampler: str
    why: str
    ledger: Ledger
    one_at_a_time: int
    batch_kl: float | None = None
    batch_kl_se: float | None = None
    by: str = "auto"
    prices: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.by} chose {self.why}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        prices = {way: (plain(nats), plain(se)) for way, (nats, se) in self.prices.items()}
        return {
            "sampler": self.sampler,
            "why": self.why,
            "evaluations": self.ledger.evaluations,
            "one_at_a_time": self.one_at_a_time,
            "batch_kl": plain(self.batch_kl),
            "batch_kl_se": plain(self.batch_kl_se),
            **({"by": self.by, "prices": prices} if prices else {}),
        }


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Infilled(SampleBatch):
    """Sequences that fill in a text, with what a ``SampleBatch`` says of them.

    Attributes
    ----------
    texts : tuple of str, optional
        The sequences spelled out, where there is a template.
    log_likelihoods : ndarray of float, shape (count, orders), optional
        Log-probability of each finished sequence by the chain rule in random orders.
    measuring : Ledger
        What was evaluated for measuring, apart from ``ledger``.
    choice : Choice, optional
        What ``sampler="auto"`` chose, and why.
    """

    texts: tuple[str, ...] | None = None
    log_likelihoods: FloatArray | None = None
    measuring: Ledger = field(default_factory=Ledger)
    choice: Choice | None = None

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        SampleBatch.__post_init__(self)
        if self.log_likelihoods is not None:
            self.log_likelihoods.setflags(write=False)

    @classmethod
    def of(cls, drawn: SampleBatch, **more: Any) -> Infilled:
        """Add to sequences what is known of them."""
        return cls(**{one.name: getattr(drawn, one.name) for one in fields(drawn)} | more)

    @property
    def num_sent(self) -> int:
        """States that were sent, also to discover and to measure."""
        return self.ledger.evaluations + self.measuring.evaluations

    def how(self) -> list[str]:
        """Return which rules drew, and why where ``auto`` or prices chose."""
        first = self.results[0].sampler
        if self.choice is None:
            return [first]
        later = self.choice.sampler
        return [first if later == first else f"{first} ({later})", str(self.choice)]

    def spelled(self, index: int) -> str:
        """Return the text of a sequence."""
        return self.texts[index] if self.texts else SampleBatch.spelled(self, index)

    def summary(self) -> dict[str, Any]:
        """Return the whole as plain values, without its sequences."""
        chosen = {} if self.choice is None else {"choice": self.choice.as_dict()}
        return SampleBatch.summary(self) | chosen
