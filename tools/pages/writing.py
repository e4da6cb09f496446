"""Tables in Markdown, and numbers as they are shown in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["broken", "count", "markdown", "with_error"]

# What is left of zero after a sum of logarithms.
ROUNDING = 1e-12


def markdown(heading: Sequence[str], lines: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Write a table; the first columns to the left, numbers to the right."""
    rule = ["---" if k < left else "---:" for k in range(len(heading))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [heading, rule, *lines])


def count(value: float) -> str:
    """Write a number of evaluations: whole ones and large ones without a fraction."""
    return f"{value:,.0f}" if value >= 1000 or value == round(value) else f"{value:.1f}"


def broken(kl: float, error: float = 0.0) -> str:
    """Write a batch KL; zero within two standard errors is zero, with the error."""
    if abs(kl) <= max(2 * error, ROUNDING):
        return f"0 (SE {error:.1g})" if error > ROUNDING else "0"
    shown = f"{kl:,.0f}" if kl >= 100 else f"{kl:.2g}"
    return shown + (f" (SE {error:.1g})" if error > ROUNDING else "")


def with_error(value: float, error: float, digits: int = 3) -> str:
    """Write a mean with its standard error."""
    return f"{value:.{digits}f} ± {error:.{digits}f}"
