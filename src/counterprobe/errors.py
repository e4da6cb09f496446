"""The errors that counterprobe raises beside ``ValueError`` for a bad argument."""


class CounterprobeError(Exception):
    """Root of every error that is specific to this library."""


class OracleError(CounterprobeError):
    """An oracle broke its contract, or was asked for something it cannot answer."""


class ImpossibleState(OracleError):
    """An oracle was asked to condition on values that have probability zero together.

    Rules that verify drafts submit states before they know whether their values can occur
    together. An oracle that raises this for them lets such a rule go on; one that answers them
    with any rows does too, since nobody looks at those.
    """


class BudgetExceeded(CounterprobeError):
    """An evaluation would pass the budget that the caller set."""


class NotAForestError(CounterprobeError, ValueError):
    """A graph that must be a forest contains a cycle; also a ``ValueError``, as bad edges are."""


class Infeasible(CounterprobeError):
    """A rule cannot start or go on; it becomes a result's stop, not a crash."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a search; what was found until then is kept.

    Attributes
    ----------
    found : object
        Of ``discover``, a structure of which nothing is certified; of a screen, its findings.
    """

    def __init__(self, message: str, found: object) -> None:
        # Both, so that a process may hand it to another.
        super().__init__(message, found)
        self.found = found

    def __str__(self) -> str:
        """Return the message alone."""
        return str(self.args[0])


class InfeasibleWarning(UserWarning):
    """A run made evaluations and drew nothing: the text says why, and what to try."""


class UnmodelledWarning(UserWarning):
    """A structure file lacks backbone atoms of residues, which are therefore not designed."""


class CostWarning(UserWarning):
    """A rule takes more evaluations than one position at a time would, or is about to."""


class StructureError(CounterprobeError):
    """A saved structure is damaged, or belongs to another oracle."""


class CacheError(CounterprobeError):
    """A reply cache is damaged, cannot be used, or belongs to another model."""


class ZeroProbabilityWarning(UserWarning):
    """An oracle gave a token probability zero; the guarantees ask for positive rows."""
