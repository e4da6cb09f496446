"""The tree's own rules: imports point downwards, and the public names are those listed."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest

import counterprobe as cp

SOURCE = Path(cp.__file__).parent

# Everything may import what stands in an earlier line, or beside it in its own folder or file;
# what is imported inside a function counts as much as what stands on top of a module. Plans are
# arithmetic on strengths and know no structure, so that discovery can judge by them whether more
# probes pay.
LAYERS = [
    "version errors arrays arguments",
    "files extras compiled threads digests cells",
    "archives plain philox report executors",
    "states classes",
    "graph rows",
    "streams tempered",
    "oracles",
    "radii",
    "run",
    "progress theory",
    "targets",
    "planning",
    "discovery",
    "samplers",
    "sampling evaluation",
    "plots",
    "study testing models trace",
    "infilling",
    "integrations",
    "cli",
]
LEVEL = {name: level for level, line in enumerate(LAYERS) for name in line.split()}


def modules() -> list[tuple[Path, str]]:
    """Every module with the first part of its name below the package."""
    files = sorted(SOURCE.rglob("*.py"))
    return [(f, f.relative_to(SOURCE).with_suffix("").parts[0]) for f in files]


def imported_parts(file: Path) -> set[str]:
    """First parts of what a module imports, anywhere in it."""
    parts: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            package, _, rest = name.partition(".")
            if package == "counterprobe":
                parts.add(rest.partition(".")[0])
    return parts


def imports() -> list[tuple[str, str, Path]]:
    """Every import between parts: who, what, and the file it stands in."""
    return [
        (part, other, file)
        for file, part in modules()
        if part not in ("__init__", "__main__")
        for other in sorted(imported_parts(file) - {part, ""})
        # The package's own names, which commands may use, are no part.
        if not (part == "cli" and other not in LEVEL and hasattr(cp, other))
    ]


def test_imports_point_downwards() -> None:
    for part, other, file in imports():
        for name in (part, other):
            assert name in LEVEL, f"say where {name} stands, in LAYERS"
        assert LEVEL[other] < LEVEL[part], f"{file} imports {other}, which stands above"


def test_no_cycle_of_imports_between_parts() -> None:
    graph: dict[str, set[str]] = {}
    for part, other, _ in imports():
        graph.setdefault(part, set()).add(other)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


def test_the_front_door_has_few_names_and_named_places() -> None:
    assert set(dir(cp)) == set(cp.__all__)
    places = [name for name in cp.__all__ if isinstance(getattr(cp, name), ModuleType)]
    assert len(cp.__all__) - len(places) <= 35
    assert all(getattr(cp, name).__doc__ for name in cp.__all__ if name not in ("MASK",))


@pytest.mark.parametrize(("file", "part"), modules(), ids=lambda value: str(value)[-60:])
def test_files_and_functions_fit_a_reader(file: Path, part: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") < 1000, "two ideas? split on the noun"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert lines < 90, f"{node.name} has {lines} lines below its docstring"
