"""How hot loops are compiled.

``kernel`` compiles a function that allocates nothing. Turning off Numba's reference counting for
it (``_nrt=False``) matters: in a loop with branches every array it touches would otherwise be
counted up and down at each step, which made message passing five times slower. ``inlined`` is for
the small steps that kernels share.

Compiled kernels are kept on disk. Numba compiles one anew when its own file changes; here also
when a file changes that it takes steps from, or the old arithmetic would stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeVar

import numba
from numba.core import event

__all__ = ["allocating_kernel", "inlined", "kernel", "on_compilation"]

F = TypeVar("F", bound=Callable[..., Any])

# Numba's annotations leave out `_nrt`.
njit: Any = numba.njit


def kernel(function: F) -> F:
    """Compile a function that writes into arrays it is given."""
    return _kept(function, njit(cache=True, nogil=True, error_model="numpy", _nrt=False))


def allocating_kernel(function: F) -> F:
    """Compile a function that returns new arrays."""
    return _kept(function, njit(cache=True, nogil=True, error_model="numpy"))


def inlined(function: F) -> F:
    """Compile a small step into the kernels that call it."""
    compiled: F = njit(inline="always", error_model="numpy", _nrt=False)(function)
    return compiled


@contextmanager
def on_compilation(say: Callable[[], object]) -> Iterator[None]:
    """Call something once, before the first kernel that is compiled inside, if any is."""

    class Listener(event.Listener):
        spoken = False

        def on_start(self, event: object) -> None:
            if not self.spoken:
                self.spoken = True
                say()

        def on_end(self, event: object) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield


def _kept(function: F, compiler: Callable[[Any], Any]) -> F:
    """Compile a function that is kept on disk until a file that it is made of changes."""
    compiled = compiler(function)
    # Numba's stamp is of the one file; a stamp that differs makes it compile anew. Without
    # compilation (NUMBA_DISABLE_JIT) nothing is kept.
    kept = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if kept is not None:
        kept._source_stamp = (kept._source_stamp, *_stamps(function))
        kept._load_index = _readable(kept._load_index)
    result: F = compiled
    return result


def _readable(load: Callable[[], dict[Any, Any]]) -> Callable[[], dict[Any, Any]]:
    """Take what is kept for nothing if it names a record that stands somewhere else by now."""

    def load_index() -> dict[Any, Any]:
        try:
            return load()
        except (ImportError, AttributeError):
            return {}

    return load_index


def _stamps(function: Any) -> list[tuple[int, int]]:
    """Return date and size of every file whose compiled functions a function can reach."""
    seen: set[str] = set()
    waiting: list[FunctionType] = [function]
    while waiting:
        scope = waiting.pop()
        if scope.__code__.co_filename not in seen:
            seen.add(scope.__code__.co_filename)
            # What a module imports stands in its globals before its first kernel is decorated.
            compiled = (getattr(value, "py_func", None) for value in scope.__globals__.values())
            waiting += [inner for inner in compiled if isinstance(inner, FunctionType)]
    files = [os.stat(file) for file in sorted(seen) if os.path.exists(file)]
    return [(file.st_mtime_ns, file.st_size) for file in files]
