"""What a command is to work on when it is named at once: FASTA records, or several backbones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from counterprobe.arrays import StateArray
from counterprobe.cli.options import Text, read_records, read_sequence
from counterprobe.executors import Executors
from counterprobe.infilling.task import Task, as_model, input_digest, make_task
from counterprobe.infilling.writing import DesignFile
from counterprobe.models import MaskedModel, Template

__all__ = ["Input", "Tasks", "inputs_of"]

# Its name, and the text with everything that goes with it.
Input = tuple[str | None, Text]


def inputs_of(text: Text) -> list[Input]:
    """Return every input with its name: each FASTA record, or each of several backbones.

    A text that was given as it is has no name of its own.
    """
    backbones = _split_names(text.backbone)
    if text.sequence is None or not text.sequence.startswith("@"):
        if len(backbones) > 1 and text.sequence is not None:
            raise ValueError(
                f"--sequence must come with one backbone, got {len(backbones)}; without it "
                "every backbone is designed whole"
            )
        names = [Path(one).name.split(".")[0] for one in backbones]
        _check_names(names, "--backbone")
        each = (replace(text, backbone=one) for one in backbones)
        return [*zip(names, each, strict=True)] or [(None, text)]
    if len(backbones) > 1:
        raise ValueError(
            f"--sequence {text.sequence} must come with one backbone, got {len(backbones)}"
        )
    records = read_records(text.sequence)
    return [(one.name, replace(text, sequence=one.sequence)) for one in records]


def _split_names(backbone: str | None) -> list[str]:
    """Split what was named with commas; a file whose own name has one is a single one."""
    if backbone is None:
        return []
    if "," not in backbone or Path(backbone).exists():
        return [backbone]
    return [one.strip() for one in backbone.split(",") if one.strip()]


def _check_names(names: Sequence[str], option: str) -> None:
    """Refuse two inputs of one name: their designs could not be told apart."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{option} must name inputs that can be told apart, two are {name!r}")


@dataclass(slots=True)
class Tasks:
    """Makes the task of one input after another; a model is loaded once for a backbone.

    Attributes
    ----------
    model : str
    executor : executor, optional
    timeout : float, optional
        Seconds that a worker may take over its share of a query.
    order : str, optional
        That of ProteinMPNN.
    file : DesignFile, optional
        What designs are written to: designs there of the same name must be of the same input.
    wanted : int, optional
        An input of which the file has so many designs is left out.
    terms : callable
        Returns what determines the designs of a task.
    cache : str, optional
        A cache of the model's replies.
    """

    model: str
    executor: Executors | None
    timeout: float | None
    order: str | None
    file: DesignFile | None
    wanted: int | None
    terms: Callable[[Task], Mapping[str, str]]
    cache: str | None = None
    _loaded: MaskedModel | None = None
    _backbone: str | None = None
    _seen: Counter[bytes] = field(default_factory=Counter)

    def of(self, name: str | None, text: Text) -> tuple[str, Task] | None:
        """Return what designs of an input are called, and its task; None if all are there."""
        if text.backbone != self._backbone:
            self._loaded, self._backbone = None, text.backbone
        if self._are_there(name, text):
            return None
        task = text.task(
            self.model,
            self.executor,
            timeout=self.timeout,
            order=self.order,
            like=self._loaded,
            cache=self.cache,
        )
        self._loaded = task.model
        task = replace(task, occurrence=self._count(task.given, task.template))
        called, file, template = _called(name, task.model), self.file, task.template
        if file is not None:
            file.begin(called, self.terms(task))
            if self.wanted is not None and file.has(called, self.wanted):
                return None
            if template is not None:
                file.check_spelling(partial(template.spell, template.vocabulary))
        return called, task

    def _are_there(self, name: str | None, text: Text) -> bool:
        """Whether the file has all designs of an input, as far as no evaluation can tell."""
        if self.file is None or self.wanted is None or not self.file.goes_on:
            return False
        named = text.named(self.model, self.order)
        loading = named.pop("model_options")
        loaded = self._loaded or as_model(self.model, loading)
        assert loaded is not None  # a name is never an oracle's
        if self._loaded is None:
            text.tell_notes(loaded)
            self._loaded = loaded
        called = _called(name, loaded)
        if not self.file.has(called, self.wanted):
            return False
        named["oracle_options"]["row_error"] = 0.0  # for a measured one the model is evaluated
        sequence = read_sequence(text.sequence)
        task = make_task(loaded, sequence, temperature=text.temperature, **named)
        task = replace(task, occurrence=self._count(task.given, task.template))
        self.file.begin(called, self.terms(task))
        return True

    def _count(self, given: StateArray, template: Template | None) -> int:
        """Return how many equal inputs came before one, drawn or not."""
        digest = input_digest(given, template)
        self._seen[digest] += 1
        return self._seen[digest] - 1


def _called(name: str | None, model: MaskedModel | None) -> str:
    """Return what designs of an input are called: by its name, or by that of its backbone."""
    return str(name or getattr(getattr(model, "backbone", None), "name", "design"))
