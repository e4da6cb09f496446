"""docs/planning.md: its code runs as printed."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")


def test_the_page_runs(capsys) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(block, "docs/planning.md", "exec"), {"__name__": "page"})
    four, target, budget, at_random, curve = capsys.readouterr().out.splitlines()
    assert four.startswith("Plan(4 batches for 64 of 64 positions, search, about 0.03")
    assert target.startswith("Plan(5 batches")
    assert budget.startswith("Plan(4 batches")
    assert "random, about" in at_random
    assert curve.startswith("[") and curve.endswith("]")
