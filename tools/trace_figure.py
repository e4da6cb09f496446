"""Make docs/figures/trace.png: the page of a run, as Chromium shows it.

    make test-browser                                  # once: Chromium and Playwright
    .venv/bin/python tools/trace_figure.py             # writes docs/figures/trace.png

A binary tree of 255 positions, drawn by the compressed sampler. Shown is the fifth of eight
commits, with the first position of its batch pointed at.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import counterprobe as cp
from counterprobe.trace import About, Recorder, Trace, load_trace, write_page
from counterprobe.trace.arrays import unpack

FIGURE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "trace.png"
CHROMIUM = "/usr/bin/chromium"
LENGTH = 255
COMMIT = 5


def record(file: Path) -> Trace:
    """Run the compressed sampler on the tree and return the trace."""
    law = cp.families.binary_tree(length=LENGTH, target_seed=196)
    about = About(title="compressed on a binary tree", family="binary-tree", true_edges=law.edges)
    with Recorder(file, about) as recorder:
        cp.sample(law.oracle(), "compressed", seed=1, listener=recorder, progress=False)
    return load_trace(file)


def find_commit(trace: Trace, number: int) -> tuple[int, int]:
    """Return the step of the page at which a commit happens, and a position of its batch."""
    shown = [event for event in trace.events if event["type"] != "message"]
    commits = [step for step, event in enumerate(shown, start=1) if event["type"] == "commit"]
    step = commits[number - 1]
    return step, int(unpack(shown[step - 1]["positions"])[0])


def main() -> None:
    """Open the page, go to the commit, point at a position, and keep what is seen."""
    parser = argparse.ArgumentParser(description="Make the figure of the page of a run.")
    parser.add_argument("--out", type=Path, default=FIGURE)
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        trace = record(Path(folder, "run.json"))
        file = Path(folder, "run.html")
        write_page(trace, file)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": 1280, "height": 800},
            device_scale_factor=1.5,
            color_scheme=options.theme,
        )
        page.goto(file.resolve().as_uri())
        step, position = find_commit(trace, COMMIT)
        page.get_by_label("Step of the run").fill(str(step))
        page.get_by_role("searchbox").fill(str(position))
        page.get_by_role("button", name="Show the whole picture").click()
        page.get_by_role("searchbox").evaluate("box => { box.value = ''; box.blur(); }")
        page.mouse.move(5, 5)
        page.wait_for_timeout(500)
        page.screenshot(path=options.out)
        browser.close()


if __name__ == "__main__":
    main()
