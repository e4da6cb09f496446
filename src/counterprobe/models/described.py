"""What a model says of itself when it is printed: a few lines in place of its layers."""

from __future__ import annotations

from typing import Any

__all__ = ["Described", "letter_facts", "network_facts"]

# Tokens that are named one by one.
SHOWN = 24


class Described:
    """A model with a name that says what it reads and draws."""

    __slots__ = ()
    name: str

    def facts(self) -> list[str]:
        """Return a line each: what it takes, what it draws, how large it is."""
        return []

    def __repr__(self) -> str:
        """Say in one line what it is."""
        return f"{type(self).__name__}({self.name!r})"

    def __str__(self) -> str:
        """Say it in a few lines."""
        return "\n".join([f"{self.name}, a masked model", *self.facts()])


def network_facts(network: Any) -> list[str]:
    """Return how large a network is and where it stands, where it can say."""
    if not callable(getattr(network, "parameters", None)):
        return []
    parameters = list(network.parameters())
    if not parameters:
        return []
    count = sum(one.numel() for one in parameters)
    return [f"{count:,} parameters on {parameters[0].device}"]


def letter_facts(letters: Any, max_length: int | None) -> list[str]:
    """Return which letters are drawn, how a mask is spelled, and how long a text may be."""
    symbols = list(letters.symbols)
    shown = "".join(symbols) if all(len(one) == 1 for one in symbols) else " ".join(symbols)
    if len(symbols) > SHOWN:
        shown = f"{len(symbols)} letters"
    longest = "" if max_length is None else f", up to {max_length:,} letters"
    return [f"draws {shown}; masks are spelled {' or '.join(letters.masks[:2])}{longest}"]
