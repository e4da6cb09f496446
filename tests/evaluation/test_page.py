"""docs/quality.md: its code runs as printed."""

import re
from pathlib import Path

from counterprobe import evaluation

PAGE = (Path(__file__).parents[2] / "docs" / "quality.md").read_text(encoding="utf-8")


def test_the_page_runs(capsys):
    known: dict[str, object] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(block, "docs/quality.md", "exec"), known)
    assert "nats (SE" in capsys.readouterr().out


def test_every_measure_on_the_page_exists():
    names = re.findall(r"^\| [^|`]*`(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert len(names) == 6
    for name in names:
        assert hasattr(evaluation, name), name
