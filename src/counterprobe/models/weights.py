"""Weights from files, read without running code from them.

A pickle can run anything when it is read; these files are read with ``weights_only``, which
builds tensors and plain containers and refuses everything else.
"""

from __future__ import annotations

import importlib.util
import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterprobe.extras import MissingExtra, load_extra

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["default_device", "fill_in", "package_folder", "read_checkpoint", "tensors_of"]


def default_device(device: Any = None) -> torch.device:
    """Return a GPU where there is one, unless something else is asked for."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        wanted = torch.device(device)
    except RuntimeError:
        raise ValueError(
            f"device must be one that torch knows, such as 'cpu' or 'cuda', got {device!r}"
        ) from None
    if wanted.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device must be there, got {str(device)!r} and no GPU; leave it out")
    if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device must be one of the {torch.cuda.device_count()} GPUs that can be seen, got "
            f"{str(device)!r}; a worker that asked for GPUs sees its own alone, as 'cuda'"
        )
    return wanted


def package_folder(package: str, install: str, purpose: str) -> Path:
    """Return where an installed package lies, without importing it.

    Parameters
    ----------
    package : str
    install : str
        The command that installs it.
    purpose : str
        What needs it, as the subject of a sentence.
    """
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise MissingExtra(f"{purpose} needs {package}: {install}")
    return Path(found.submodule_search_locations[0])


def read_checkpoint(file: Path, *, safe: Sequence[type] = ()) -> Mapping[str, Any]:
    """Read a checkpoint, a dictionary of tensors and plain values.

    Parameters
    ----------
    file : Path
    safe : sequence of type
        Further harmless classes that the file may hold.
    """
    if not file.is_file():
        raise ValueError(f"there are no weights at {file}; install the package again")
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(list(safe)):
            warnings.simplefilter("ignore")  # it hopes to read what it then refuses
            read = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as problem:
        said = str(problem).strip().partition("\n")[0]
        raise ValueError(f"{file} holds no weights that can be read safely: {said}") from problem
    if not isinstance(read, Mapping):
        raise ValueError(f"{file} must hold a dictionary of weights, got {type(read).__name__}")
    return read


def tensors_of(checkpoint: Mapping[str, Any], file: Path, key: str | None = None) -> Any:
    """Return the state dict in a checkpoint: names and tensors, and nothing else."""
    state = checkpoint if key is None else checkpoint.get(key)
    if not isinstance(state, Mapping) or not state:
        raise ValueError(f"{file} holds no state dict" + (f" under {key!r}" if key else ""))
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise ValueError(
                f"{file} holds no state dict: {name!r} is of type {type(value).__name__}, not a "
                "tensor"
            )
    return state


def fill_in(
    module: torch.nn.Module, state: Mapping[str, Any], file: Path, *, unused: Sequence[str] = ()
) -> None:
    """Load a state dict into a module and refuse weights that do not match.

    Parameters
    ----------
    module : Module
    state : mapping of str to Tensor
    file : Path
        For messages.
    unused : sequence of str
        Beginnings of names that the file may hold beside what the module needs.
    """
    try:
        found = module.load_state_dict(dict(state), strict=False)
    except RuntimeError as problem:
        said = " ".join(str(problem).split())
        raise ValueError(f"the weights in {file} do not match the model: {said}") from problem
    extra = [name for name in found.unexpected_keys if not name.startswith(tuple(unused))]
    for what, names in (("lacks", found.missing_keys), ("also has", extra)):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ValueError(
                f"the weights in {file} do not match the model: it {what} {names[0]}{more}"
            )
