"""The networks of the package ``frame2seq``, without the packages that it asks for.

It needs three packages that its networks use next to nothing of: a base class of lightning, one
function of dm-tree, and Biopython's reader of files, which is not used here at all. Small
stand-ins take their places while it is imported, and go again.
"""

import importlib
import importlib.machinery
import importlib.util
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from counterprobe.models import Backbone

STOOD_IN_FOR = ("pytorch_lightning", "tree", "Bio")


class _Lightning(torch.nn.Module):
    """What is used of a lightning module."""

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def save_hyperparameters(self) -> None:
        caller = sys._getframe(1)
        self.hparams = types.SimpleNamespace(config=caller.f_locals["config"])


def _mapped(function, nested):
    if isinstance(nested, (list, tuple)):
        return [_mapped(function, part) for part in nested]
    return function(nested)


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Let the package's modules be imported, and nothing of it stay behind."""

    def module(name: str, **contents: Any) -> types.ModuleType:
        made = types.ModuleType(name)
        made.__spec__ = importlib.machinery.ModuleSpec(name, None)
        made.__dict__.update(contents)
        sys.modules[name] = made
        return made

    before = dict(sys.modules)
    module("pytorch_lightning", LightningModule=_Lightning)
    module("tree", map_structure=_mapped)
    module("Bio")
    module("Bio.PDB", PDBParser=object)
    found = importlib.util.find_spec("frame2seq")
    assert found is not None and found.submodule_search_locations is not None
    folder = found.submodule_search_locations[0]
    # Without the code at its top, which imports much more.
    module("frame2seq").__path__ = [folder]
    module("frame2seq.openfold").__path__ = [f"{folder}/openfold"]
    try:
        yield
    finally:
        for name in set(sys.modules) - set(before):
            if name.partition(".")[0] in ("frame2seq", *STOOD_IN_FOR):
                del sys.modules[name]


class Package:
    """The package's own three networks, and how it reads a backbone."""

    def __init__(self) -> None:
        with _stand_ins(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            networks = importlib.import_module("frame2seq.model.Frame2seq")
            self._ideal = importlib.import_module("frame2seq.utils.place_ideal_atoms")
            folder = sys.modules["frame2seq"].__path__[0]
        # It saves memory of a gradient that nobody takes.
        networks.checkpoint = lambda function, *parts: function(*parts)
        self.networks = []
        for name in ("model1", "model2", "model3"):
            file = f"{folder}/trained_models/{name}.ckpt"
            checkpoint = torch.load(file, map_location="cpu", weights_only=True)
            network = networks.frame2seq(checkpoint["hyper_parameters"]["config"])
            network.load_state_dict(checkpoint["state_dict"])
            self.networks.append(network.eval())

    def inputs(self, backbone: Backbone) -> tuple[torch.Tensor, torch.Tensor]:
        """Return atoms N, CA, C, CB, O and which residues have a frame, as its reader does."""
        atoms = np.zeros((len(backbone), 5, 3))
        atoms[:, :3] = np.nan_to_num(backbone.coordinates[:, :3])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it takes cross products without naming the axis
            placed = self._ideal.place_missing_cb(torch.from_numpy(atoms))
            placed = self._ideal.place_missing_o(placed)
        known = np.isfinite(backbone.coordinates[:, :3]).all(axis=(1, 2))
        return torch.from_numpy(placed.numpy().round(4))[None], torch.from_numpy(known)[None]

    @torch.no_grad()
    def logits(self, backbone: Backbone, ids: torch.Tensor) -> list[torch.Tensor]:
        """Return the logits of each network, shape (B, L, 21)."""
        atoms, known = self.inputs(backbone)
        shown = torch.nn.functional.one_hot(ids, 21).float()
        count = len(ids)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it asks for a precision by an old name
            return [
                network(atoms.expand(count, -1, -1, -1), known.expand(count, -1), shown)
                for network in self.networks
            ]
