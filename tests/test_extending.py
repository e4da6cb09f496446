"""docs/extending.md: its code runs under pytest, and its sampler is as short as it says."""

import re
import subprocess
import sys
from pathlib import Path

from counterprobe import testing

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_page_runs_and_its_sampler_conforms(tmp_path):
    page = tmp_path / "test_page.py"
    page.write_text("\n\n".join(BLOCKS), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(page)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(testing.SAMPLER_CHECKS)} passed" in run.stdout


def test_a_sampler_takes_under_thirty_lines():
    assert len(BLOCKS[0].strip().splitlines()) < 30  # imports included
    assert "class SurerShare(Sampler)" in BLOCKS[0]
