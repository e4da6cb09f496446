"""docs/faults.md: its code runs as printed, and what it lists is there."""

import re
from pathlib import Path

from counterprobe.oracles.rechecking import MOST_STATES

PAGE = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")


def test_the_page_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(block, "docs/faults.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.splitlines() == ["True True", "200 0"]


def test_bounds_on_the_page_are_the_code_s():
    assert f"{MOST_STATES:,} at most" in PAGE
