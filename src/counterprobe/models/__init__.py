"""Models that answer masked states: any torch model, Hugging Face, antibodies, proteins.

A model reads a text with masks into a :class:`Template` and makes an oracle of it:

>>> from counterprobe import models
>>> model = models.load("sapiens-heavy", device="cpu")
>>> template = model.template("EVQLVXXSGG")
>>> oracle = model.oracle(template)

Importing this package imports neither torch nor transformers; what needs them is imported when it
is first named.
"""

from __future__ import annotations

import importlib
from typing import Any

from counterprobe.models.letters import Letters as Letters
from counterprobe.models.letters import SequenceModel as SequenceModel
from counterprobe.models.proteins.backbones import Backbone as Backbone
from counterprobe.models.registry import MaskedModel as MaskedModel
from counterprobe.models.registry import ModelEntry as ModelEntry
from counterprobe.models.registry import all_models as all_models
from counterprobe.models.registry import load as load
from counterprobe.models.template import Template as Template

_LAZY = {
    "LanguageModel": "counterprobe.models.transformers",
    "TorchOracle": "counterprobe.models.torch",
    "load_small_model": "counterprobe.models.small",
}


def __getattr__(name: str) -> Any:
    """Import what needs torch, or is seldom needed, when it is first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'counterprobe.models' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """List everything, imported or not yet."""
    return sorted({*globals(), *_LAZY})
