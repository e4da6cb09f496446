"""A model's oracle that is made where it is used: what travels is its name, not its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from counterprobe.infilling.task import make_task
from counterprobe.models.template import Allowed
from counterprobe.oracles import Oracle

__all__ = ["ModelOracle"]


@dataclass(frozen=True, slots=True)
class ModelOracle:
    """Makes the oracle of a model and a text; each call loads the model anew.

    Parameters
    ----------
    model : str
        A name that ``counterprobe models`` lists, or a folder that every worker can read.
    text : str, optional
        With masks.
    allowed, temperature, model_options, oracle_options
        As in :func:`counterprobe.infilling.task.make_task`; at temperature 0 the oracle's law is
        the model's own.

    Examples
    --------
    >>> make = ModelOracle("sapiens-heavy", "EVQLXES", model_options={"device": "cpu"})
    >>> make().length
    7
    """

    model: str
    text: str | None = None
    allowed: Allowed | None = None
    temperature: float = 1.0
    model_options: Mapping[str, Any] = field(default_factory=dict)
    oracle_options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Oracle:
        """Load the model, read the text and return the oracle."""
        return make_task(
            self.model,
            self.text,
            allowed=self.allowed,
            temperature=self.temperature,
            model_options=self.model_options,
            oracle_options=self.oracle_options,
        ).oracle
