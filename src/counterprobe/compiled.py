"""How hot loops are compiled.

``kernel`` compiles a function that allocates nothing. Turning off Numba's reference counting for
it (``_nrt=False``) matters: in a loop with branches every array it touches would otherwise be
counted up and down at each step, which made message passing five times slower. ``inlined`` is for
the small steps that kernels share, each compiled once and made part of what calls it; ``spliced``
for a step that has one caller, compiled only there. A kernel is compiled anew for every type of
integer and every constant that another kernel calls it with.

Numba takes longer to import than all else together, so that it waits for the first kernel that is
called: until then a decorated function stands for its kernel (:class:`Waiting`), also where other
kernels name it.

Compiled kernels are kept on disk. Numba compiles one anew when its own file changes; here also
when a file changes that it takes steps from, or the old arithmetic would stay.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

__all__ = ["allocating_kernel", "inlined", "kernel", "on_compilation", "spliced"]

F = TypeVar("F", bound=Callable[..., Any])

# Kernels that wait are compiled one at a time, whichever threads call them.
_lock = threading.RLock()


def kernel(function: F) -> F:
    """Compile a function that writes into arrays it is given."""
    return cast("F", Waiting(function, cache=True, nogil=True, error_model="numpy", _nrt=False))


def allocating_kernel(function: F) -> F:
    """Compile a function that returns new arrays."""
    return cast("F", Waiting(function, cache=True, nogil=True, error_model="numpy"))


def inlined(function: F) -> F:
    """Compile a small step that becomes part of the kernels that call it."""
    return cast("F", Waiting(function, forceinline=True, error_model="numpy", _nrt=False))


def spliced(function: F) -> F:
    """Compile a step into the one kernel that calls it."""
    return cast("F", Waiting(function, inline="always", error_model="numpy", _nrt=False))


class Waiting:
    """A function that is compiled when it is first called, or asked for what Numba knows of it.

    Parameters
    ----------
    function : function
    **options
        Of ``numba.njit``.

    Attributes
    ----------
    py_func : function
        The function as it was written.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        functools.update_wrapper(self, function)
        self.py_func: Any = function
        self.__name__: str = function.__name__
        self._options = options

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks of any object
            raise AttributeError(name)
        return getattr(self.compiled, name)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        """Pickle by name: another process finds its own, compiled or not."""
        return _named, (self.py_func.__module__, self.__name__)

    @functools.cached_property
    def compiled(self) -> Any:
        """What Numba makes of it; from now on its module has that in its place."""
        try:
            return self._compile()
        except AttributeError as problem:  # or it would be taken for want of this one
            raise RuntimeError(f"Numba cannot compile {self.__name__}: {problem}") from problem

    def _compile(self) -> Any:
        import numba

        with _lock:
            if "compiled" in self.__dict__:  # by another thread, meanwhile
                return self.__dict__["compiled"]
            scope = self.py_func.__globals__
            for name in _names_in(self.py_func.__code__):
                if isinstance(scope.get(name), Waiting):
                    scope[name] = scope[name].compiled
            made = cast("Any", numba.njit)(**self._options)(self.py_func)
            if self._options.get("cache"):
                _keep(made, self.py_func)
            if scope.get(self.py_func.__name__) is self:
                scope[self.py_func.__name__] = made
            return made


def _named(module: str, name: str) -> Any:
    """Return the kernel that a module has under a name."""
    return getattr(import_module(module), name)


@contextmanager
def on_compilation(say: Callable[[], object]) -> Iterator[None]:
    """Call something once, before the first kernel that is compiled inside, if any is."""
    from numba.core import event

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


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the names that a function asks its module for, those in comprehensions too."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names_in(inner)


def _keep(compiled: Any, function: FunctionType) -> None:
    """Keep a kernel on disk until a file that it is made of changes."""
    # Numba's stamp is of the one file; a stamp that differs makes it compile anew. Without
    # compilation (NUMBA_DISABLE_JIT) nothing is kept.
    kept = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if kept is not None:
        kept._source_stamp = (kept._source_stamp, *_stamps(function))
        kept._load_index = _readable(kept._load_index)


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
            compiled = (getattr(value, "py_func", None) for value in scope.__globals__.values())
            waiting += [inner for inner in compiled if isinstance(inner, FunctionType)]
    files = [os.stat(file) for file in sorted(seen) if os.path.exists(file)]
    return [(file.st_mtime_ns, file.st_size) for file in files]
