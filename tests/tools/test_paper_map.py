"""docs/theory.md: every statement of the paper has a row, and every name in it exists."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from paper_labels import statements, steps
from website.places import object_named

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
LABELS = json.loads((ROOT / "docs/data/paper-labels.json").read_text(encoding="utf-8"))
KNOWN = {one["label"]: one for one in LABELS["statements"]}


def rows() -> dict[str, list[str]]:
    """Return the cells of every row of the map, by label."""
    found = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        label = cells[-1].strip("`")
        if line.startswith("| ") and re.fullmatch(r"`[\w.-]+:[\w:.-]+`", cells[-1]):
            assert label not in found, f"{label} stands twice"
            found[label] = cells
    return found


@cache
def known_tests() -> set[str]:
    """Return the names of all tests."""
    files = (ROOT / "tests").rglob("test_*.py")
    return {
        name for file in files
        for name in re.findall(r"^ *def (test_\w+)", file.read_text(encoding="utf-8"), re.M)
    }  # fmt: skip


def test_every_statement_of_the_paper_has_one_row():
    assert len(KNOWN) > 70
    assert sorted(rows()) == sorted(KNOWN)


@pytest.mark.parametrize("label", sorted(KNOWN))
def test_a_row_names_the_statement_a_function_that_exists_and_a_test(label):
    cells = rows()[label]
    title = re.sub(r"^[\d.]+, | \(appendix\)$", "", cells[0])
    assert KNOWN[label]["title"].startswith(title)
    names = re.findall(r"`([A-Za-z_][\w.]*)`", " ".join(cells[1:-1]))
    checks = [name for name in names if name.startswith("test_")]
    assert checks
    assert [name for name in checks if name not in known_tests()] == []
    functions = [name for name in names if not name.startswith("test_")]
    assert functions or label.startswith("ex:")
    for name in functions:
        assert (
            object_named(name) is not None
        )  # raises LookupError, with the name, if there is none


def test_labels_and_steps_are_read_from_a_source():
    source = r"""
\DeclareAlgoBlock{peel}{4}{Claim \& peel}
\begin{lemma}[\textcolor{red}{A fact}; \AlgoBlockRef{peel}]
\label{app:lem:fact} words
\end{lemma}
\begin{remark} without a label \end{remark}
"""
    assert steps(source) == [{"kind": "step", "label": "step:4", "title": "Claim and peel"}]
    assert statements(source) == [{"kind": "lemma", "label": "app:lem:fact", "title": "A fact"}]


def test_a_name_that_leads_nowhere_is_an_error():
    with pytest.raises(LookupError, match=r"theory\.no_such"):
        object_named("theory.no_such")
