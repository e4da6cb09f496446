"""What tells a model's oracle from others of its name and size: a digest of what makes its rows.

Weights are read bit for bit, wherever they are, together with what else a row depends on: which
ids stand around the positions, which tokens may stand where, the temperature, a backbone. What is
given at a position is no part of it, nor is anything that moves rows by rounding alone (device,
batch size). The code of a network is not read: two that compute other things from equal weights
are told apart only by their rows.

A digest takes one pass over the weights, at about a gigabyte per second on one core. It is made
when somebody asks for it, and again when weights were changed in place since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.digests import digest_of
from counterprobe.extras import load_extra
from counterprobe.models.template import Template

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["LastDigest", "rows_digest", "weights_digest", "weights_stamp"]


def weights_digest(model: Any) -> bytes | None:
    """Return what a module's parameters and buffers determine; None for what has none to read.

    Parameters
    ----------
    model : Module
        For anything else, and for weights that are not there, nothing is known. Compiled, or
        spread over devices, it is the same module.
    """
    if not isinstance(model, torch.nn.Module):
        return None
    model = _unwrapped(model)
    try:
        return digest_of(type(model).__name__.encode(), _bits(model))
    except (RuntimeError, TypeError):  # sparse, packed, without numbers or not yet made
        return None


def _bits(model: torch.nn.Module) -> Iterator[bytes | memoryview]:
    """Give each tensor as bytes: NumPy does not have every type that weights come in."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode()
        yield tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def rows_digest(model: Any, template: Template, *others: Any) -> str | None:
    """Return a string that everything a row depends on determines; None if weights are unknown.

    Parameters
    ----------
    model : Module
    template : Template
    *others
        What else rows depend on: arrays, and plain values.
    """
    weights = weights_digest(model)
    if weights is None:
        return None
    allowed = None
    if template.has_restrictions and template.permitted is not None:
        allowed = template.permitted[template.kind]
    frame = np.delete(template.frame, template.slots)
    parts = frame, template.slots, template.vocabulary, template.mask_id, allowed, *others
    if template.bias is not None:
        parts = *parts, template.bias
    return digest_of(
        weights, *(x if isinstance(x, np.ndarray) else f"{x!r}\n".encode() for x in parts)
    ).hex()


class LastDigest:
    """Keeps a model's digest while its weights are those that it was made of.

    PyTorch counts writes into a tensor; what is written past it, into ``tensor.data``, it does not
    see. Where nothing is counted, a digest is made each time.
    """

    def __init__(self) -> None:
        self._stamp: list[tuple[int, int]] | None = None
        self._digest: str | None = None

    def of(self, model: Any, make: Callable[[], str | None]) -> str | None:
        """Return the digest, made by ``make`` if weights may have changed."""
        stamp = weights_stamp(model)
        if stamp is None or stamp != self._stamp:
            self._digest, self._stamp = make(), stamp
        return self._digest


def weights_stamp(model: Any) -> list[tuple[int, int]] | None:
    """Return which tensors a module has and how often each was written to; None if unknown."""
    if not isinstance(model, torch.nn.Module):
        return None
    try:
        tensors = (*model.parameters(), *model.buffers())
        return [(tensor.data_ptr(), tensor._version) for tensor in tensors]
    except RuntimeError:  # made for inference, or not yet made
        return None


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Return the network itself, without what compiles it or spreads it over devices."""
    spread = torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel
    inner: Any = getattr(model, "_orig_mod", model.module if isinstance(model, spread) else None)
    return _unwrapped(inner) if isinstance(inner, torch.nn.Module) else model
