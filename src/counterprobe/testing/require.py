"""How a check fails."""

from __future__ import annotations

__all__ = ["ConformanceError", "require"]


class ConformanceError(AssertionError):
    """A sampler or an oracle broke its contract."""


def require(holds: bool, who: str, problem: str) -> None:
    """Raise unless a claim holds; unlike ``assert`` also under ``python -O``."""
    if not holds:
        raise ConformanceError(f"{who}: {problem}")
