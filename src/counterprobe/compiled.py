"""How hot loops are compiled.

``kernel`` compiles a function that allocates nothing. Turning off Numba's reference counting for
it (``_nrt=False``) matters: in a loop with branches every array it touches would otherwise be
counted up and down at each step, which made message passing five times slower. ``inlined`` is for
the small steps that kernels share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

__all__ = ["allocating_kernel", "inlined", "kernel"]

F = TypeVar("F", bound=Callable[..., Any])

# Numba's annotations leave out `_nrt`.
njit: Any = numba.njit


def kernel(function: F) -> F:
    """Compile a function that writes into arrays it is given."""
    compiled: F = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)(function)
    return compiled


def allocating_kernel(function: F) -> F:
    """Compile a function that returns new arrays."""
    compiled: F = njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled


def inlined(function: F) -> F:
    """Compile a small step into the kernels that call it."""
    compiled: F = njit(inline="always", error_model="numpy", _nrt=False)(function)
    return compiled
