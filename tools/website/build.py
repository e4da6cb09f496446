"""Build the documentation site, strictly: a warning is an error, and nothing is fetched.

    .venv/bin/python tools/website/build.py --out site             # or: make docs

Pages come from docs/, the reference from docstrings and the command line. The site needs no server
and no network: open ``site/index.html``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "src")]

__all__ = ["build", "gather", "outside_resources"]

# Pages that stand at the root of the repository and are read on the site too.
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md")
# What a page loads by itself; a link that a reader may follow is none of these.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc\s*=\s*"""
    r"""["']?(?:https?:)?//[^"'> ]*"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*?\bhref\s*=\s*["']?(?:https?:)?//[^"'> ]*"""
    r"""|@import\s+[^;]*?//[^;]*|url\(\s*["']?(?:https?:)?//[^)]*"""
)


def gather(folder: Path) -> None:
    """Put everything that the site is made of into a folder."""
    from website.notebooks import write_notebooks
    from website.reference import write_reference

    shutil.copytree(ROOT / "docs", folder, dirs_exist_ok=True)
    write_notebooks(folder / "notebooks")
    for name in BESIDE:
        shutil.copy(ROOT / name, folder / name)
    for page in folder.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(_with_links(text, page, folder), encoding="utf-8")
    write_reference(folder / "reference")


def _with_links(text: str, page: Path, folder: Path) -> str:
    """Return a page whose links into the repository lead to copies that the site carries."""
    if page.name in BESIDE and page.parent == folder:
        text = text.replace("](docs/", "](")
    text = re.sub(r"\]\((notebooks/[^)]*)\.ipynb\)", r"](\1.md)", text)
    up = "../" * (len(page.relative_to(folder).parents) - 1)

    def to_copy(found: re.Match[str]) -> str:
        inside = found[1]
        if inside in BESIDE:
            return f"]({up}{inside})"
        copy = folder / "files" / inside
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / inside, copy)
        return f"]({up}files/{inside})"

    return re.sub(r"\]\((?:\.\./)+((?:src|benchmarks|tools|tests|[A-Z])[^)#]*)\)", to_copy, text)


def build(out: Path) -> int:
    """Build the site into a folder; 0 if nothing was wrong."""
    from sphinx.cmd.build import build_main

    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        gather(source)
        # ASCII warnings with the page's name; fresh environment, so that nothing stale stays.
        status = build_main([
            "-q", "-W", "--keep-going", "-E", "-b", "html", "-c", str(Path(__file__).parent),
            "-d", str(Path(scratch) / "trees"), str(source), str(out),
        ])  # fmt: skip
    if status == 0 and (found := outside_resources(out)):
        print("the site loads from elsewhere:", *found, sep="\n  ", file=sys.stderr)
        return 1
    return status


def outside_resources(site: Path) -> list[str]:
    """Return what pages and style sheets of a site would load over a network."""
    found = []
    for file in sorted(site.rglob("*")):
        if file.suffix in (".html", ".css"):
            text = file.read_text(encoding="utf-8")
            found += [f"{file.relative_to(site)}: {one[0]}" for one in LOADED.finditer(text)]
    return found


def main(words: list[str] | None = None) -> int:
    """Build, and say where it stands."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder to write")
    told = parser.parse_args(words)
    if told.out.exists() and not (told.out / "objects.inv").exists() and any(told.out.iterdir()):
        print(f"error: {told.out} holds something else; name another --out", file=sys.stderr)
        return 2
    shutil.rmtree(told.out, ignore_errors=True)
    status = build(told.out)
    if status == 0:
        print(f"built: open {told.out / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
