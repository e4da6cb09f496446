"""ColabDesign's ProteinMPNN: the same weights, one residue at a time, compiled whole by JAX.

An optional rival, no dependency: ``tools/carry_weights.py FOLDER colabdesign`` puts what it needs
into a folder that goes on ``PYTHONPATH``; JAX must be installed. Without it nothing of it is
timed. What runs is the function behind its ``sample_parallel``: many sequences by ``vmap``, each
in a random order of its own, the backbone encoded once a call, decoder states kept. Letters and
scores, which ``sample_parallel`` makes on the host afterwards, are left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from counterprobe.models.proteins.proteinmpnn import UNKNOWN, InverseFolding

__all__ = ["ColabDesign", "is_there"]

CONFIG = {
    "num_letters": 21,
    "node_features": 128,
    "edge_features": 128,
    "hidden_dim": 128,
    "num_encoder_layers": 3,
    "num_decoder_layers": 3,
    "augment_eps": 0.0,
    "dropout": 0.0,
}
WEIGHTS = "v_48_020.npz"
# Where haiku looks for what JAX's core has.
KNOWN = {
    "jax.core": ("Atom", "Trace", "Tracer"),
    "jax.extend.core": (
        "DropVar",
        "get_opaque_trace_state",
        "set_current_trace",
        "take_current_trace",
    ),
}


def is_there() -> bool:
    """Whether ColabDesign was carried here, and JAX is installed."""
    found = importlib.util.find_spec("colabdesign")
    if found is None or not found.submodule_search_locations:
        return False
    folder = Path(found.submodule_search_locations[0])
    return (folder / WEIGHTS).is_file() and importlib.util.find_spec("jax") is not None


def _modules() -> tuple[Any, Any, Path]:
    """Import JAX, and ColabDesign's network on it."""
    # Beside torch on one device: JAX would take most of its memory at once.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = importlib.import_module("jax")
    # Names that ColabDesign 1.1.1 and haiku 0.0.17 know, and that newer versions of JAX may move.
    if not hasattr(jax, "tree_map"):
        jax.tree_map = jax.tree_util.tree_map
    inner = importlib.import_module("jax._src.core")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for place, names in KNOWN.items():
            module = importlib.import_module(place)
            for name in names:
                if not hasattr(module, name):
                    setattr(module, name, getattr(inner, name))
        if importlib.util.find_spec("jax.extend.linear_util") is None:
            moved = importlib.import_module("jax._src.linear_util")
            sys.modules["jax.extend.linear_util"] = moved
            importlib.import_module("jax.extend").linear_util = moved
        # It reads weights, which are carried as plain arrays.
        sys.modules.setdefault("joblib", types.ModuleType("joblib"))
        modules = importlib.import_module("colabdesign.mpnn.modules")
    return jax, modules, Path(modules.__file__).parents[1]


class ColabDesign:
    """Its sampler on the backbone of a model.

    Parameters
    ----------
    model : InverseFolding
    """

    def __init__(self, model: InverseFolding) -> None:
        self.jax, modules, folder = _modules()
        jnp = self.jax.numpy
        params: dict[str, dict[str, np.ndarray]] = {}
        with np.load(folder / WEIGHTS) as arrays:
            num_neighbours = int(arrays["num_edges"])
            for name in arrays.files:
                if name != "num_edges":
                    module, _, parameter = name.rpartition("|")
                    params.setdefault(module, {})[parameter] = arrays[name].astype(np.float32)
        network = modules.RunModel({**CONFIG, "k_neighbors": num_neighbours})
        backbone, length = model.backbone, len(model.backbone)
        inputs = {
            "X": jnp.asarray(backbone.coordinates, dtype=jnp.float32),
            "mask": jnp.ones(length),
            "residue_idx": jnp.asarray(np.asarray(backbone.residue_index)),
            "chain_idx": jnp.asarray(np.asarray(backbone.chain)),
            "temperature": 1.0,
        }

        def one(key: Any) -> tuple[Any, Any, Any]:
            of_order, of_values = self.jax.random.split(key)
            order = self.jax.random.uniform(of_order, (length,)).argsort()
            out = network.sample(params, of_values, {**inputs, "decoding_order": order[:, None]})
            return out["S"].argmax(-1).astype(jnp.int8), out["logits"], order

        self._every = self.jax.jit(self.jax.vmap(one))
        self._tokens = self.jax.jit(self.jax.vmap(lambda key: one(key)[0]))
        self._compiled: dict[int, Any] = {}
        self.seconds_to_compile: dict[int, float] = {}

    @property
    def device(self) -> str:
        """What JAX runs on."""
        return str(self.jax.devices()[0])

    def lowered(self, count: int) -> Callable[[], None]:
        """Trace the sampler of so many sequences; what is returned compiles it, on any thread."""
        traced = self._tokens.lower(self._keys(count, 0))

        def compile_it() -> None:
            self._compiled[count] = traced.compile()

        return compile_it

    def designs(self, count: int, seed: int) -> np.ndarray:
        """Draw sequences at temperature 1, shape (count, N); a count's first call compiles."""
        if count not in self._compiled:
            started = time.perf_counter()
            self.lowered(count)()
            self.seconds_to_compile[count] = time.perf_counter() - started
        return np.asarray(self._compiled[count](self._keys(count, seed)))

    def in_full(self, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return tokens, rows of the amino acids they were drawn from, and the orders."""
        tokens, logits, orders = (
            np.asarray(part) for part in self._every(self._keys(count, seed))
        )
        scores = np.exp(logits[..., :UNKNOWN] - logits[..., :UNKNOWN].max(axis=-1, keepdims=True))
        return tokens, scores / scores.sum(axis=-1, keepdims=True), orders

    def _keys(self, count: int, seed: int) -> Any:
        return self.jax.random.split(self.jax.random.PRNGKey(seed), count)
