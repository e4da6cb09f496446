"""List the numbered statements of the paper and the steps of its algorithms, from its source.

    .venv/bin/python tools/paper_labels.py PAPER.tex --json docs/data/paper-labels.json

The source is not part of the repository; the list is, and docs/theory.md is held against it: every
statement has a row there that says which function implements or checks it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_again

KINDS = ("theorem", "lemma", "proposition", "corollary", "definition", "assumption", "remark",
         "example", "algorithm")  # fmt: skip


def statements(source: str) -> list[dict[str, str]]:
    """Return kind, label and title of every statement, in the order of the paper."""
    found = []
    begin = re.compile(rf"\\begin\{{({'|'.join(KINDS)})\}}")
    for start in begin.finditer(source):
        body = source[start.end() : source.index(rf"\end{{{start[1]}}}", start.end())]
        if label := re.search(r"\\label(?:\[\w+\])?\{([^}]+)\}", body):
            found.append({"kind": start[1], "label": label[1], "title": _title(start[1], body)})
    return found


def steps(source: str) -> list[dict[str, str]]:
    """Return the steps that the paper names in its algorithms."""
    declared = re.findall(r"(?m)^\\DeclareAlgoBlock\{(\w+)\}\{([\d.]+)\}\{([^}]+)\}", source)
    return [
        {"kind": "step", "label": f"step:{number}", "title": name.replace(r"\&", "and")}
        for _, number, name in sorted(declared, key=lambda one: one[1])
    ]


def _title(kind: str, body: str) -> str:
    marker = r"\caption{" if kind == "algorithm" else "["
    if marker not in body:
        return ""
    inside = body[body.index(marker) + len(marker) :]
    depth, text = 0, ""
    for letter in inside:
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(letter, 0)
        if depth < 0:
            break
        text += letter
    return _plain(text)


def _plain(text: str) -> str:
    text = text.replace(r"\HellingerCaseTitle", "Case (i)").replace(r"\KLCaseTitle", "Case (ii)")
    text = text.replace(r"\HellingerCase", "case (i)").replace("--", "-").replace("~", " ")
    text = re.sub(r"\\AlgoBlockRef\{(\w+)\}", r"\1", text)
    text = re.sub(
        r"\\citealp\[[^\]]*\]\{[^}]*\}|\(cf\.|\\textcolor\{red\}|\\[a-zA-Z]+|\\", "", text
    )
    return " ".join(re.sub(r"[{}]", "", text).partition(";")[0].split()).removesuffix(" )")


def main(words: list[str] | None = None) -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path, help="the paper's LaTeX")
    parser.add_argument("--json", type=Path, required=True, help="file to write")
    told = parser.parse_args(words)
    source = told.source.read_text(encoding="utf-8")
    made = made_again(told.json)
    found: dict[str, Any] = {"made": made, "statements": [*steps(source), *statements(source)]}
    told.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
