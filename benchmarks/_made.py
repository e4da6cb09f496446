"""What made a file of results: the command, the commit, the machine and the date.

Files that are measured in several goes have one entry for each, the earliest first. A file from
before this was kept has the commit and the date that last wrote it, which git knows, and a machine
that was not recorded.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["FIELDS", "UNKNOWN", "Made", "adopt", "made_again", "made_now"]

Made = dict[str, str]

ROOT = Path(__file__).parents[1]
FIELDS = ("command", "commit", "machine", "date")
UNKNOWN = "not recorded"


@functools.cache
def made_now() -> Made:
    """Describe this run of this program; the same however often it writes."""
    return {
        "command": _command(),
        "commit": _commit(),
        "machine": _machine(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
    }


def made_again(file: Path, taken: Sequence[Made] = ()) -> list[Made]:
    """Return the entries of a file that is being continued, with this run as the last.

    What made the files that it takes measurements from stands before.
    """
    before: list[Made] = []
    if file.is_file():
        before = json.loads(file.read_text(encoding="utf-8")).get("made", [])
    others = [entry for entry in [*before, *taken] if entry != made_now()]
    return [*(entry for k, entry in enumerate(others) if entry not in others[:k]), made_now()]


def adopt(file: Path) -> bool:
    """Give a file that does not say what made it what git can tell; whether that was needed."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if content.get("made"):
        return False
    told = _git("log", "-1", "--format=%h %ad", "--date=format:%Y-%m-%d", "--", str(file)).split()
    commit, date = told if len(told) == 2 else (UNKNOWN, UNKNOWN)
    entry = {"command": UNKNOWN, "commit": commit, "machine": UNKNOWN, "date": date}
    file.write_text(json.dumps({"made": [entry], **content}, indent=1) + "\n", encoding="utf-8")
    return True


def _command() -> str:
    """Return how the program was called, without the folders of the machine that it ran on."""
    below = [word.removeprefix(f"{ROOT}{os.sep}") for word in sys.argv]
    words = [Path(word).name if os.path.isabs(word) else word for word in below]
    return shlex.join(["python", *words])


def _commit() -> str:
    """Return the commit that is checked out, and whether tracked files differ from it.

    ``COUNTERPROBE_COMMIT`` wins: a machine that was sent files alone has no history of them.
    """
    if told := os.environ.get("COUNTERPROBE_COMMIT"):
        return told
    commit = _git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return UNKNOWN
    # Results themselves change while they are measured.
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/*.py")
    return f"{commit} with changes" if changed else commit


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _machine() -> str:
    """Return the processor, how many of it, and the accelerator if torch is loaded and has one."""
    name = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.is_file():
        lines = described.read_text(encoding="utf-8", errors="replace").splitlines()
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        name = models[0] if models else name
    parts = [f"{name} x {os.cpu_count()}"]
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name())
    return ", ".join(parts)
