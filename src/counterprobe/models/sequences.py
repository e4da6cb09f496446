"""Models of sequences of letters: a network, its alphabet, and the longest sequence it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from counterprobe.models.letters import Letters
from counterprobe.models.template import Allowed, Template
from counterprobe.models.torch import TorchOracle

__all__ = ["SequenceModel"]


@dataclass(frozen=True, slots=True)
class SequenceModel:
    """A network over letters.

    Attributes
    ----------
    name : str
    network : callable
        Takes ids and returns logits, as :class:`TorchOracle` wants it.
    letters : Letters
    max_length : int
        The most letters in a sequence.
    """

    name: str
    network: Callable[..., Any]
    letters: Letters
    max_length: int

    def template(self, text: str, *, allowed: Allowed | None = None) -> Template:
        """Read a sequence, with ``X`` or ``[MASK]`` where a letter is to be filled in."""
        return self.letters.template(text, allowed=allowed, max_length=self.max_length)

    def oracle(self, template: Template | str, **options: Any) -> TorchOracle:
        """Return the oracle of one template; options as for :class:`TorchOracle`."""
        if isinstance(template, str):
            template = self.template(template)
        return TorchOracle(self.network, template, **{"name": self.name, **options})
