"""The ledger: what a run was charged, by one rule for every sampler.

Each submitted state is one evaluation, whatever is read from it and however often it was submitted
before. Evaluations whose inputs were fixed before any of their replies share one stage.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Flag, auto

from counterprobe.errors import BudgetExceeded

__all__ = ["Ledger", "Need", "check_budget"]


class Need(Flag):
    """What a rule does beyond committing batches that it fixed before their replies.

    Probes are admissible in the paper's sense; the others are not, and a run grants them.
    """

    NONE = 0
    PROBE = auto()
    """Rows of other states than the current one are read."""
    ATTENTION = auto()
    """Attention is read with the rows."""
    SELECT = auto()
    """The batch is a function of the very rows it is drawn from."""
    CANDIDATES = auto()
    """Values are drawn before the batch is chosen."""
    VERIFY = auto()
    """Drawn values may be rejected."""
    REMASK = auto()
    """Committed values may be masked again."""
    GRANTED = SELECT | CANDIDATES | VERIFY | REMASK

    def names(self) -> list[str]:
        """Return the needs as lower-case words, for tables and JSON."""
        return [str(need.name).lower().replace("_", "-") for need in type(self) if need in self]


@dataclass(frozen=True, slots=True)
class Ledger:
    """Counts of one run.

    Attributes
    ----------
    preprocessing : int
        1 if the distinguished all-mask readout was made.
    probes, commits : int
        Counterfactual evaluations, and non-empty product commits.
    stages : int
        Sequential oracle stages.
    rows_read : int
        Rows returned over all evaluations.
    widest_stage : int
        Evaluations in the largest stage: what one device would have to batch.
    selected_commits : int
        Commits whose batch was chosen after the reply; where ``SELECT`` is not allowed each costs
        one more evaluation and one more stage.

    A commit that draws from rows which a probe has already returned submits nothing: that probe
    becomes the commit.
    """

    preprocessing: int = 0
    probes: int = 0
    commits: int = 0
    stages: int = 0
    rows_read: int = 0
    widest_stage: int = 0
    selected_commits: int = 0

    @property
    def noncommit(self) -> int:
        """Preprocessing and probes."""
        return self.preprocessing + self.probes

    @property
    def evaluations(self) -> int:
        """Every evaluation."""
        return self.noncommit + self.commits

    @property
    def evaluations_without_selection(self) -> int:
        """Evaluations if every batch had to be fixed before its commit's reply."""
        return self.evaluations + self.selected_commits

    @property
    def stages_without_selection(self) -> int:
        """The stages of one run if every batch had to be fixed before its commit's reply.

        For many runs side by side it is an upper bound: their selected commits share stages.
        """
        return self.stages + self.selected_commits

    def __add__(self, other: Ledger) -> Ledger:
        """Return the ledger of one run after the other."""
        return Ledger(
            self.preprocessing + other.preprocessing,
            self.probes + other.probes,
            self.commits + other.commits,
            self.stages + other.stages,
            self.rows_read + other.rows_read,
            max(self.widest_stage, other.widest_stage),
            self.selected_commits + other.selected_commits,
        )

    def shown(self) -> dict[str, int]:
        """Return the counts under names for people."""
        return {
            "evaluations": self.evaluations,
            "preprocessing": self.preprocessing,
            "probes": self.probes,
            "commits": self.commits,
            "sequential stages": self.stages,
            "widest stage": self.widest_stage,
            "rows read": self.rows_read,
        }

    def as_dict(self) -> dict[str, int]:
        """Return the counts and the sums by name."""
        return {
            **asdict(self),
            "noncommit": self.noncommit,
            "evaluations": self.evaluations,
            "evaluations_without_selection": self.evaluations_without_selection,
        }


def check_budget(max_evaluations: int | None, needed: int) -> None:
    """Raise ``BudgetExceeded`` if an evaluation would pass what the caller permits."""
    if max_evaluations is not None and needed > max_evaluations:
        raise BudgetExceeded(
            f"max_evaluations is {max_evaluations} and going on would make {needed}; permit more, "
            "or choose a sampler that needs fewer"
        )
