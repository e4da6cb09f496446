"""What tells a model's oracle from others of its name and size: a digest of what makes its rows.

Weights are read bit for bit, wherever they are, together with what else a row depends on: which
ids stand around the positions, which tokens may stand where, the temperature, a backbone. What is
given at a position is no part of it, nor is anything that moves rows by rounding alone (device,
batch size). The code of a network is not read: two that compute other things from equal weights
are told apart only by their rows.

A digest takes one pass over the weights, at about a gigabyte a second on one core, and is made
when somebody asks for it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.extras import load_extra
from counterprobe.models.template import Template
from counterprobe.wrapping import DIGEST_SIZE

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["rows_digest", "weights_digest"]


def weights_digest(model: Any) -> bytes | None:
    """Return what a module's parameters and buffers determine; None for what has none to read.

    Parameters
    ----------
    model : Module
        For anything else, and for weights that are not there, nothing is known.
    """
    if not isinstance(model, torch.nn.Module):
        return None
    whole = hashlib.blake2b(type(model).__name__.encode(), digest_size=DIGEST_SIZE)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        try:  # as bytes: NumPy does not have every type that weights come in
            plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        except (RuntimeError, TypeError):  # sparse, packed, or without numbers
            return None
        whole.update(plain.data)
    return whole.digest()


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
    whole = hashlib.blake2b(weights, digest_size=DIGEST_SIZE)
    allowed = None
    if template.has_restrictions and template.permitted is not None:
        allowed = template.permitted[template.kind]
    frame = np.delete(template.frame, template.slots)
    for part in (frame, template.slots, template.vocabulary, template.mask_id, allowed, *others):
        if isinstance(part, np.ndarray):
            whole.update(f"{part.dtype.str} {part.shape}\n".encode())
            whole.update(np.ascontiguousarray(part).tobytes())
        else:
            whole.update(f"{part!r}\n".encode())
    return whole.hexdigest()
