"""docs/planning.md: its code runs as printed."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")


def test_the_page_runs(capsys) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(block, "docs/planning.md", "exec"), {"__name__": "page"})
    *said, curve = capsys.readouterr().out.splitlines()
    four, target, budget, at_random = ("\n".join(said[k : k + 2]) for k in range(0, 8, 2))
    assert four.startswith("4 batches for 64 positions") and "about 0.03" in four
    assert target.startswith("5 batches for 64 positions")
    assert budget.startswith("4 batches for 64 positions")
    assert "by random" in at_random
    assert curve.startswith("[") and curve.endswith("]")
