"""Write every table and every quoted number of the pages from the committed files of results.

    .venv/bin/python tools/tables.py             # or: make tables
    .venv/bin/python tools/tables.py --check     # change nothing; 1 if a page differs

Also draws the figures that come from these files (``--no-figures`` leaves them), writes
``docs/study/tables.md``, and gives files that do not say what made them what git can tell. The
measurements themselves have commands of their own, which the pages and the files name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pages  # noqa: F401 - first: it says where the benchmarks are
from _made import adopt
from pages.antibodies import antibody_tables
from pages.attack import attack_tables, forest_tables
from pages.backbones import backbone_tables, backbone_values
from pages.carried import carried_tables
from pages.comparisons import comparison_tables
from pages.denoisers import denoiser_tables, denoiser_values
from pages.exact_laws import law_tables, law_values
from pages.filling import fill
from pages.judged import judged_tables, judged_values
from pages.language import language_tables
from pages.proteins import protein_tables, protein_values
from pages.scale import large_tables, scale_state, scale_tables, scale_values
from pages.sources import ROOT, read_sources, result_files
from pages.strengths import (
    message_tables,
    nearness_tables,
    planning_tables,
    price_tables,
    soft_tables,
)
from pages.study import draw_studies, full_tables, read_studies, study_tables, study_values
from pages.two_sample import two_sample_tables
from rivals.report import tables as peer_tables

DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("start/*.md")))


def contents() -> tuple[dict[str, str], dict[str, Any]]:
    """Return every table and every value there is."""
    sources, studies = read_sources(), read_studies(DOCS / "study")
    laws = sources["denoiser"]["laws"]
    mixtures = sources.get("denoiser_mixture", {}).get("laws", {})
    pretrained = sources["antibodies"]["tasks"] | sources["proteins"]["tasks"]
    tables = {
        **peer_tables(sources["peers"]["cells"], laws, pretrained),
        **study_tables(studies),
        **law_tables(sources),
        **scale_tables(sources["scale"]),
        **large_tables(sources["large"]),
        **denoiser_tables(laws, mixtures),
        **protein_tables(sources["protein_speed"]["tasks"], sources["proteins"]["tasks"]),
        **backbone_tables(sources["backbones"]["tasks"]),
        **antibody_tables(sources["antibodies"]["tasks"]),
        **carried_tables(sources),
        **attack_tables(sources["attack"]),
        **forest_tables(sources["attack-forests"]),
        **comparison_tables(sources["comparisons"]["comparisons"]),
        **two_sample_tables(sources["two-sample"]),
        **planning_tables(sources["planning-prices"]),
        **price_tables(sources["plan_prices"]["prices"]),
        **nearness_tables(sources["nearness"]["claims"]),
        **soft_tables(sources["soft"]["figures"]),
        **message_tables(sources["soft_messages"]),
        **language_tables(sources["language"]),
        **judged_tables(
            sources["judged"]["tasks"],
            sources["judged_antibodies"]["tasks"],
            sources["judged_singly"]["tasks"],
        ),
    }
    values = {
        **sources,
        **law_values(sources),
        "sizes": scale_values(sources["scale"]),
        "scale_state": scale_state(sources["scale"]),
        "study": study_values(studies),
        "denoisers": denoiser_values(laws),
        "twelve": backbone_values(sources["backbones"]["tasks"]),
        "designs": protein_values(sources["protein_speed"]["tasks"]),
        "judges": judged_values(sources["judged"]["tasks"]),
    }
    return tables, values


def written() -> dict[Path, str]:
    """Return what every page should be."""
    tables, values = contents()
    made = {}
    for page in PAGES:
        try:
            made[page] = fill(page.read_text(encoding="utf-8"), tables, values)
        except ValueError as problem:
            raise ValueError(f"{page.relative_to(ROOT)}: {problem}") from None
    studies = read_studies(DOCS / "study")
    return {**made, DOCS / "study" / "tables.md": full_tables(studies)}


def draw_figures() -> None:
    """Draw what comes from the files alone."""
    from denoisers.report import draw_figure as draw_denoisers
    from designs.drawing import draw_backbones, draw_proteins
    from designs.judged_drawing import draw_judged
    from pages.scale import draw_scale
    from rivals.drawing import draw_figure as draw_peers
    from rivals.drawing import draw_learned

    sources, figures = read_sources(), DOCS / "figures"
    draw_peers(sources["peers"]["cells"], figures / "peers.png")
    draw_learned(sources["denoiser"]["laws"], figures / "peers-learned.png")
    draw_denoisers(sources["denoiser"]["laws"], figures / "denoiser.png")
    prices = {task: {"prices": p["prices"]} for task, p in sources["proteins"]["tasks"].items()}
    timed = {task: {"speed": p["speed"]} for task, p in sources["protein_speed"]["tasks"].items()}
    draw_proteins({t: prices.get(t, {}) | timed.get(t, {}) for t in prices | timed},
                  figures / "proteins.png")  # fmt: skip
    draw_backbones(sources["backbones"]["tasks"], figures / "backbones.png")
    draw_scale(sources["scale"], figures / "scale.svg")
    draw_judged(sources["judged"]["tasks"], figures / "judged.png")
    draw_studies(read_studies(DOCS / "study"), DOCS / "study")


def differing(made: Mapping[Path, str]) -> list[Path]:
    """Return the pages that are not what they should be."""
    return [page for page, text in made.items() if page.read_text(encoding="utf-8") != text]


def main(words: list[str] | None = None) -> int:
    """Write, or only look; a mark that leads nowhere ends with one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--no-figures", action="store_true", help="only pages")
    told = parser.parse_args(words)
    try:
        if not told.check:
            for file in result_files():
                if adopt(file):
                    print(f"{file.relative_to(ROOT)}: added what git knows of it")
        made = written()
    except ValueError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    changed = differing(made)
    for page in changed:
        print(f"{page.relative_to(ROOT)}: {'differs' if told.check else 'written'}")
        if not told.check:
            page.write_text(made[page], encoding="utf-8")
    if not told.check and not told.no_figures:
        draw_figures()
    return 1 if told.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
