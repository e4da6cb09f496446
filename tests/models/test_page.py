"""docs/models.md: its code runs as printed."""

import re
from pathlib import Path

from counterprobe.models.registry import BUILT_IN

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def test_the_page_runs(capsys):
    known: dict[str, object] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(block, "docs/models.md", "exec"), known)
    assert (
        "Template(3 of 13 positions masked, 20 tokens: 'EVQLVESGGGXXX')" in capsys.readouterr().out
    )


def test_every_model_is_named_with_its_command_licence_and_size():
    for entry in BUILT_IN:
        assert f"`{entry.name}`" in PAGE
        assert (entry.install.partition(" && ")[2] or entry.install) in PAGE
        assert f"{entry.size.partition(',')[0]}, {entry.licence}" in PAGE
