"""What is to be filled in, and by what: every way of naming model and text becomes one task."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.digests import digest_of
from counterprobe.models import MaskedModel, Template, load
from counterprobe.models.repeatability import oracle_measured_once
from counterprobe.models.template import Allowed
from counterprobe.oracles import Oracle, OracleInfo, Query, Reply, as_oracle
from counterprobe.states import MASK, all_masked, as_states
from counterprobe.streams import Streams
from counterprobe.trace import About, Recorder

__all__ = [
    "ModelOracle", "Task", "about_task", "as_model", "as_template", "make_task", "recorder_for",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """An oracle, the context it starts from, and how its tokens are spelled.

    Attributes
    ----------
    oracle : Oracle
    given : ndarray of int, shape (N,)
        Context, ``MASK`` where something is to be filled in.
    template : Template, optional
        What spells the sequences; a plain oracle has none.
    num_measured : int
        States that were evaluated to build the oracle.
    temperature : float
        What is left to do when tokens are drawn: 1 where the oracle's law has it already.
    model : MaskedModel, optional
        What made the oracle; a plain oracle has none.
    native : tuple of str, optional
        The letter of every residue, tied ones apart, before any was to be designed: that of the
        structure file or of the text; empty where it is unknown.
    occurrence : int
        How many equal inputs came before it in one call; each draws with noise of its own.
    """

    oracle: Oracle
    given: StateArray
    template: Template | None
    num_measured: int
    temperature: float
    model: MaskedModel | None = None
    native: tuple[str, ...] | None = None
    occurrence: int = 0

    @property
    def probed(self) -> Oracle:
        """The oracle that can be asked about any state; the same one unless orders matter."""
        return self.oracle.by_index()

    @property
    def labels(self) -> tuple[str, ...] | None:
        """What people call every position, where the model has a backbone; of tied ones the first.

        Without the chain where there is but one.
        """
        backbone = getattr(self.model, "backbone", None)
        if backbone is None:
            return None
        return tuple(backbone.short_labels[k] for k in self._firsts(len(backbone)))

    @property
    def stretches(self) -> tuple[tuple[int, str], ...] | None:
        """Where pieces of chains begin among the positions, as ``Backbone.stretches`` says it."""
        backbone = getattr(self.model, "backbone", None)
        if backbone is None:
            return None
        pieces: tuple[tuple[int, str], ...] = backbone.part(self._firsts(len(backbone))).stretches
        return pieces

    @property
    def coordinates(self) -> FloatArray | None:
        """Where the alpha carbon of every position is, shape (N, 3); of tied ones the first."""
        backbone = getattr(self.model, "backbone", None)
        if backbone is None:
            return None
        places: FloatArray = backbone.alpha_carbons[self._firsts(len(backbone))]
        return places

    @property
    def distances(self) -> FloatArray | None:
        """Angstroms between positions, shape (N, N), where there is a backbone."""
        return self.oracle.distances

    def _firsts(self, count: int) -> IntArray:
        """Return the first residue of every position."""
        if self.template is None or self.template.tied is None:
            return np.arange(count)
        return np.unique(self.template.tied, return_index=True)[1]

    def streams(self, seed: int | Streams) -> Streams:
        """Return the streams that designs of this input are drawn with."""
        streams = seed if isinstance(seed, Streams) else Streams.from_seed(seed)
        return streams.of_input(input_digest(self.given, self.template), self.occurrence)

    def texts(self, states: StateArray) -> tuple[str, ...] | None:
        """Spell states, masks included; None where nothing can spell."""
        return None if self.template is None else tuple(self.template.texts(states))


def input_digest(given: StateArray, template: Template | None) -> bytes:
    """Return what tells one input from others: its ids with their masks, and its backbone.

    Parameters
    ----------
    given : ndarray of int, shape (N,)
        Tokens, ``MASK`` where something is to be filled in.
    template : Template, optional
        What stands around them.
    """
    if template is None:
        return digest_of(given.astype("<i8"))
    places = template.coordinates
    ids = template.fill(given).astype("<i8")
    return digest_of(ids, None if places is None else places.astype("<f4"))


class _Unasked(Oracle):
    """Stands for a model that has nothing to do: nothing is masked, so it is never built."""

    def __init__(self, name: str, template: Template) -> None:
        self.template = template
        self._info = OracleInfo(name, template.length, template.vocab_size, trusted=True)

    @property
    def info(self) -> OracleInfo:
        return self._info

    def ask(self, query: Query) -> Reply:
        raise AssertionError("nothing is masked, so nothing is asked")


def make_task(
    model: Any,
    template: Template | str | ArrayLike | None = None,
    *,
    allowed: Allowed | None = None,
    temperature: float = 1.0,
    template_options: Mapping[str, Any] | None = None,
    model_options: Mapping[str, Any] | None = None,
    oracle_options: Mapping[str, Any] | None = None,
) -> Task:
    """Join a model and a text.

    Parameters
    ----------
    model
        A name that ``counterprobe models`` lists, the folder of a Hugging Face model or its name
        on the hub, a pair of such a model and its tokenizer, what ``models.load`` returns, or an
        oracle; also a task, which is returned as it is.
    template : Template, str or array_like of int, optional
        The text with masks. Without one, an oracle's own, or everything masked where a model
        knows its length.
    allowed
        See :meth:`Template.allow`.
    temperature : float
        Of a model's logits; an oracle's law is its own.
    template_options : mapping, optional
        For ``model.template``: which residues are designed, ``design``, ``fixed``, ``tied``,
        ``symmetric``, and what may stand where, ``omit``, ``rules``.
    model_options, oracle_options : mapping, optional
        For loading a model by name, and for ``model.oracle``.
    """
    if isinstance(model, Task):
        return model
    known = as_model(model, model_options)
    if known is None:
        if oracle_options:
            raise ValueError(
                f"{', '.join(sorted(oracle_options))} must be settled where the oracle is made"
            )
        return _task_of_oracle(model, template, allowed, temperature, template_options)
    native = _native(known, template, template_options or {})
    if not isinstance(template, Template):
        template = as_template(known, template, allowed, template_options or {})
    elif template_options:
        raise ValueError(
            f"{', '.join(sorted(template_options))} must be settled where the template is made"
        )
    elif allowed is not None:
        template = template.allow(allowed)
    if template.is_complete:
        unasked = _Unasked(known.name, template)
        return Task(unasked, template.given, template, 0, temperature, known, native)
    options = dict(oracle_options or {})
    left = temperature
    if temperature > 0:  # 0 is no law of a model: it is how tokens are drawn
        options, left = {"temperature": temperature, **options}, 1.0
    oracle = oracle_measured_once(known, template, options)
    num_measured = int(getattr(oracle, "num_evaluated", 0))
    return Task(oracle, template.given, template, num_measured, left, known, native)


def as_model(model: Any, options: Mapping[str, Any] | None = None) -> MaskedModel | None:
    """Return the model that is meant; None for an oracle, which has no texts to read.

    Parameters
    ----------
    model
        See :func:`make_task`.
    options : mapping, optional
        What its loader takes.
    """
    if isinstance(model, (str, Path)):
        return load(model, **dict(options or {}))
    if isinstance(model, tuple) and len(model) == 2:
        from counterprobe.models.transformers import LanguageModel  # torch, when it is needed

        return LanguageModel(*model, **dict(options or {}))
    if options:
        raise ValueError(
            f"model options go with a model's name; {type(model).__name__} is loaded already, so "
            f"put {', '.join(sorted(options))} there"
        )
    if callable(getattr(model, "template", None)) and callable(getattr(model, "oracle", None)):
        checked: MaskedModel = model
        return checked
    if callable(model) and not hasattr(model, "rows"):
        raise ValueError(
            f"model must be a name, a model with a tokenizer or an oracle, got "
            f"{type(model).__name__}; wrap a network in models.TorchOracle(network, length=..., "
            "mask_id=...), or pass the pair (network, tokenizer)"
        )
    as_oracle(model)
    return None


def as_template(
    model: MaskedModel, text: Any, allowed: Allowed | None, chosen: Mapping[str, Any]
) -> Template:
    """Let a model read a text."""
    reads = inspect.signature(model.template).parameters.values()
    if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in reads):
        unread = sorted(set(chosen) - {one.name for one in reads})
        if unread:
            raise ValueError(f"model {model.name!r} cannot be told {', '.join(unread)}")
    if text is None and next(iter(reads)).default is inspect.Parameter.empty:
        raise ValueError(
            f"template must be a text with masks, such as 'EVQL[MASK][MASK]S', for {model.name!r} "
            "(--sequence on the command line)"
        )
    given = () if text is None else (text,)
    return model.template(*given, allowed=allowed, **chosen)


def _native(model: MaskedModel, text: Any, chosen: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the letters that there were before any was chosen to be designed."""
    backbone = getattr(model, "backbone", None)
    if backbone is not None:
        return tuple(backbone.sequence)
    if not isinstance(text, str) or not chosen:
        return None
    plain = model.template(text)
    letters = [plain.spell(plain.vocabulary[k : k + 1]) for k in range(plain.vocab_size)]
    return tuple("" if token == MASK else letters[token] for token in plain.given)


def _task_of_oracle(
    oracle: Oracle,
    template: Any,
    allowed: Allowed | None,
    temperature: float,
    chosen: Mapping[str, Any] | None,
) -> Task:
    """Make the task of an oracle, which has a template of its own or works with numbers."""
    oracle = as_oracle(oracle)
    own = getattr(oracle, "template", None)
    settled = [*(() if allowed is None else ("allowed",)), *sorted(chosen or ())]
    if settled:
        raise ValueError(f"{', '.join(settled)} must be settled where the oracle is made")
    if isinstance(template, str):
        raise ValueError(
            "an oracle reads no text: make it of the text, as in model.oracle(text), or pass the "
            f"model; got {template[:40]!r}"
        )
    if isinstance(template, Template):
        if own is None or not _reads_alike(own, template):
            raise ValueError(
                "template must be the one that the oracle was made of: leave it out, or make the "
                "oracle of this one"
            )
        return Task(oracle, template.given, template, 0, temperature)
    if template is not None:
        given = as_states(template, oracle.length, oracle.vocab_size, name="template")
        if len(given) != 1:
            raise ValueError(f"template must be one sequence, got {len(given)}")
        return Task(oracle, given[0].copy(), own, 0, temperature)
    given = own.given if own is not None else all_masked(oracle.length)
    return Task(oracle, np.array(given, dtype=np.int32), own, 0, temperature)


def _reads_alike(one: Template, other: Template) -> bool:
    """Whether two templates differ at most in what is given."""
    arrays = [
        (
            t.slots,
            t.vocabulary,
            np.delete(t.frame, t.slots),
            t.kind,
            t.permitted,
            t.bias,
            t.tied,
            t.shares,
        )
        for t in (one, other)
    ]
    return all(
        (a is None and b is None) or (a is not None and b is not None and np.array_equal(a, b))
        for a, b in zip(*arrays, strict=True)
    )


# ----- A task that is made where it is used ------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelOracle:
    """Makes the oracle of a model and a text; each call loads the model anew.

    Parameters
    ----------
    model : str
        A name that ``counterprobe models`` lists, or a folder that every worker can read.
    text : str, optional
        With masks.
    allowed, temperature, template_options, model_options, oracle_options
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
    template_options: Mapping[str, Any] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)
    oracle_options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Oracle:
        """Load the model, read the text and return the oracle."""
        return make_task(
            self.model,
            self.text,
            allowed=self.allowed,
            temperature=self.temperature,
            template_options=self.template_options,
            model_options=self.model_options,
            oracle_options=self.oracle_options,
        ).oracle


# ----- What its trace says -----------------------------------------------------------------


def about_task(
    task: Task,
    command: str | None = None,
    count: int | None = None,
    beside: Mapping[str, int] | None = None,
) -> About:
    """Return what is known of a task that a viewer wants to see.

    Positions are counted from 1, or by the numbers of a backbone's residues.

    Parameters
    ----------
    task : Task
    command : str, optional
        The command that makes the trace.
    count : int, optional
        Sequences that are drawn.
    beside : mapping from str to int, optional
        Evaluations that were spent beside the run; those that measured the oracle are added.
    """
    template, model = task.template, task.model
    tokens = None
    if template is not None:
        ids = template.vocabulary
        tokens = [template.spell(ids[k : k + 1]) for k in range(len(ids))]
    positions = task.labels
    if positions is None and template is not None:
        positions = tuple(str(k + 1) for k in range(len(task.given)))
    return About(
        model=None if model is None else model.name,
        tokens=tokens,
        positions=positions,
        stretches=task.stretches,
        coordinates=task.coordinates,
        command=command,
        count=count,
        beside={**(beside or {}), "measuring": task.num_measured},
    )


@contextmanager
def recorder_for(
    file: str | os.PathLike[str] | None,
    task: Task,
    max_bytes: int,
    command: str | None,
    count: int,
    beside: Mapping[str, int],
    sequence: int,
) -> Iterator[Recorder | None]:
    """Give the recorder of a task; none where no trace is wanted."""
    if file is None:
        yield None
        return
    about = about_task(task, command, count, beside)
    with Recorder(file, about, sequence=sequence, max_bytes=max_bytes) as recorder:
        yield recorder
