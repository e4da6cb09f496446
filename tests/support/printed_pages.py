"""Pages as their tests read them: blocks of code, what they print, commands, links, headings."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Every page that is written by hand, wherever it is read.
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *ROOT.glob("docs/**/*.md"),
    ]
)
FENCE = re.compile(r"^ *```(\S*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def name_of_page(page: Path) -> str:
    """Return a page's name from the root of the repository."""
    return str(page.relative_to(ROOT))


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which ``counterprobe`` is this checkout's program."""
    program = folder / "bin" / "counterprobe"
    program.parent.mkdir()
    lines = [f"#!{sys.executable}", "from counterprobe.cli.main import main"]
    lines += ["if __name__ == '__main__':", "    main()", ""]  # workers import it again
    program.write_text("\n".join(lines), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": source}


def build_site(folder: Path) -> Path:
    """Build the documentation site as ``make docs`` does, and return its folder."""
    command = [sys.executable, str(ROOT / "tools/website/build.py"), "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@dataclass(frozen=True)
class Page:
    """One page, read once."""

    text: str

    @classmethod
    def read(cls, name: str) -> Page:
        """Read a page by its name from the root of the repository."""
        return cls((ROOT / name).read_text(encoding="utf-8"))

    def blocks(self, language: str) -> list[str]:
        """Return the fenced blocks of a language, in order."""
        return [text for marked, text in FENCE.findall(self.text) if marked == language]

    @property
    def python(self) -> str:
        """All blocks marked ``python``, as one program."""
        return "\n\n".join(self.blocks("python"))

    @property
    def printed(self) -> str:
        """What the page says that its program prints, block after block."""
        shown = re.findall(r"prints[^\n]*(?:\n[^\n]+)*\n\n```\n(.*?)```", self.text, re.DOTALL)
        return "".join(shown)

    @property
    def prose(self) -> str:
        """The page without fenced blocks and comments."""
        return re.sub(r"<!--.*?-->", "", FENCE.sub("", self.text), flags=re.DOTALL)

    @property
    def links(self) -> list[str]:
        """Where links and pictures lead, without those into the web."""
        found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", self.prose))
        return [link for link in found if not link.startswith(("http:", "https:", "mailto:"))]

    @property
    def anchors(self) -> set[str]:
        """The anchors of its headings, as GitHub and the site make them."""
        found: set[str] = set()
        for heading in re.findall(r"^#+ +(.+?) *$", self.prose, re.MULTILINE):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
            anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            number = sum(one == anchor or one.startswith(f"{anchor}-") for one in found)
            found.add(f"{anchor}-{number}" if anchor in found else anchor)
        return found

    @property
    def commands(self) -> list[str]:
        """The lines of ``counterprobe`` in blocks of commands, without comments."""
        lines = []
        for language, block in FENCE.findall(self.text):
            if language in ("", "sh", "console", "text"):
                joined = re.sub(r"\\\n\s*", "", block)
                lines += [re.split(r"\s#", line)[0].strip() for line in joined.splitlines()]
        return [line for line in lines if line.startswith("counterprobe ")]
