"""Give functions that stand in memory other code, and note which of them are called.

Whoever holds such a function, a class, a cache or another module, then calls the other code.
"""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType

from numba import config
from numba.core.registry import CPUDispatcher

# The name under which a module's functions find the set that they add their own names to.
NOTED = "_functions_called"


def functions_of(code: CodeType) -> dict[str, CodeType]:
    """Return the functions and methods of a module's code by their qualified names."""
    found: dict[str, CodeType] = {}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & 0x2:  # CO_NEWLOCALS: a function, where a class body has none
                found[inner.co_qualname] = inner
            else:
                found |= functions_of(inner)
    return found


def names_changed(before: str, after: str) -> set[str]:
    """Return the functions whose code is another in a changed source."""
    old, new = (functions_of(compile(source, "source", "exec")) for source in (before, after))
    return {
        name for name, code in old.items()
        if without_lines(new.get(name, code)) != without_lines(code)
    }  # fmt: skip


def without_lines(code: CodeType) -> CodeType:
    """Return code as if it stood elsewhere in its file: a fault above it does not change it."""
    inner = tuple(
        without_lines(one) if isinstance(one, CodeType) else one for one in code.co_consts
    )
    return code.replace(co_firstlineno=1, co_linetable=b"", co_consts=inner)


class Noting(ast.NodeTransformer):
    """Puts a statement before the first of every function that notes its qualified name."""

    def __init__(self) -> None:
        self._outer = ""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Go on to the methods of a class."""
        before, self._outer = self._outer, f"{self._outer}{node.name}."
        self.generic_visit(node)
        self._outer = before
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Write the statement; functions within are part of the one around them."""
        note = ast.parse(f"{NOTED}.add({self._outer + node.name!r})").body[0]
        node.body.insert(0, ast.copy_location(note, node.body[0]))
        return node


class Living:
    """The functions of a module that stand in memory, and can be given other code.

    Parameters
    ----------
    place : Path
        The module's file.
    """

    def __init__(self, place: Path) -> None:
        self._place = str(place)
        self._source = place.read_text(encoding="utf-8")
        gc.unfreeze()  # what is frozen, as tests freeze what they import, is not listed
        objects = gc.get_objects()
        from counterprobe.compiled import Waiting  # not before it is settled whether to compile

        # Without compilation a kernel that waits for it is a function like any other.
        kinds = (CPUDispatcher,) if config.DISABLE_JIT else (CPUDispatcher, Waiting)
        compiled = {id(one.py_func) for one in objects if type(one) in kinds}
        self._functions = [
            one for one in objects
            if type(one) is FunctionType and one.__code__.co_filename == self._place
            and id(one) not in compiled
        ]  # fmt: skip
        self._caches = [
            one for one in objects
            if type(one) is functools._lru_cache_wrapper
            and str(getattr(one, "__module__", "")).startswith("counterprobe")
        ]  # fmt: skip

    def changed(self, source: str) -> list[tuple[FunctionType, CodeType]]:
        """Return the functions that are another with a changed source, each with its new code."""
        after = functions_of(compile(source, self._place, "exec"))
        names = names_changed(self._source, source)
        return [
            (one, after[one.__code__.co_qualname])
            for one in self._functions
            if one.__code__.co_qualname in names
        ]

    def exchange(self, changed: list[tuple[FunctionType, CodeType]]) -> None:
        """Give functions their new code, and forget what the old ones returned."""
        for function, code in changed:
            function.__code__ = code
        for cache in self._caches:
            cache.cache_clear()

    @contextmanager
    def noting(self, called: set[str]) -> Iterator[None]:
        """Let every function add its name to a set when it is called."""
        tree = ast.fix_missing_locations(Noting().visit(ast.parse(self._source)))
        noting = functions_of(compile(tree, self._place, "exec"))
        before = [(one, one.__code__) for one in self._functions
                  if one.__code__.co_qualname in noting]  # fmt: skip
        for one, _ in before:
            one.__globals__[NOTED] = called
        self.exchange([(one, noting[code.co_qualname]) for one, code in before])
        try:
            yield
        finally:
            self.exchange(before)
