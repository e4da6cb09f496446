"""docs/symbols.md: every code name in its tables is one that the source defines."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "symbols.md"


@cache
def definitions() -> dict[str, set[str]]:
    """Return what the source defines: the members of each class, and under "" every name.

    Functions, classes, arguments, fields, attributes and constants count; a name that is only
    used, or a local variable, does not.
    """
    found: dict[str, set[str]] = {"": set()}
    for file in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                members = found.setdefault(node.name, set())
                for inside in ast.walk(node):
                    members |= _names(inside)
                found[""] |= {node.name} | members
            found[""] |= _names(node)
        for node in tree.body:
            if isinstance(node, ast.Assign):
                found[""] |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return found


def _names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    if isinstance(node, ast.arg):
        return {node.arg}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return {node.attr}
    return set()


def code_names() -> list[str]:
    """Return the code names of the tables, shapes and formulas left out."""
    names = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| paper |"):
            names += re.findall(r"`([A-Za-z_][\w.]*)`", line)
    return sorted(set(names) - {"None"})


def test_every_code_name_of_the_tables_exists():
    defined = definitions()
    names = [name.rpartition(".") for name in code_names()]
    assert [name for name in names if name[2] not in defined.get(name[0], set())] == []


def test_the_tables_are_read_and_a_name_that_is_not_defined_is_seen():
    assert len(code_names()) > 90
    defined = definitions()
    assert "no_such_name" not in defined[""]
    assert "sizes" in defined["Banks"]
