"""Make docs/figures/trace.png and trace-infill.png: pages of runs, as Chromium shows them.

    make test-browser                                  # once: Chromium and Playwright
    .venv/bin/python tools/trace_figure.py law         # writes docs/figures/trace.png
    .venv/bin/python tools/trace_figure.py infill      # writes docs/figures/trace-infill.png

``law``: a binary tree of 255 positions, drawn by the compressed sampler. Shown is the fifth of
eight commits, with the first position of its batch pointed at. ``infill``: eight residues of an
antibody's loop, filled in by Sapiens in four batches of a plan. Shown is the second of them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import counterprobe as cp
from counterprobe.infilling.task import make_task
from counterprobe.trace import About, Recorder, Trace, load_trace, write_page
from counterprobe.trace.arrays import unpack

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
CHROMIUM = "/usr/bin/chromium"
LENGTH = 255
# A heavy chain with eight residues of its third loop masked.
CHAIN = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVSAISGSGGSTYYADSVKGRFTISRDNSKNTLYLQMNSLRAED"
    "TAVYYCAKXXXXXXXXDYWGQGTLVTVSS"
)


def record_law(file: Path) -> Trace:
    """Run the compressed sampler on the tree and return the trace."""
    law = cp.families.binary_tree(length=LENGTH, target_seed=196)
    about = About(title="compressed on a binary tree", family="binary-tree", true_edges=law.edges)
    with Recorder(file, about) as recorder:
        cp.sample(law.oracle(), "compressed", seed=1, on_event=recorder, progress=False)
    return load_trace(file)


def record_infill(file: Path) -> Trace:
    """Find the soft structure of the loop, fill it in by a plan and return the trace."""
    task = make_task("sapiens-heavy", CHAIN, model_options={"device": "cpu"})
    structure = cp.discover(task.oracle, mode="soft", given=task.given, probes=128)
    cp.infill(task, structure=structure, batches=4, seed=1, progress=False, trace=file)
    return load_trace(file)


# How each is recorded, the commit that is shown, whether a position is pointed at, and its file.
PAGES = {
    "law": (record_law, 5, True, "trace.png"),
    "infill": (record_infill, 2, False, "trace-infill.png"),
}


def find_commit(trace: Trace, number: int) -> tuple[int, int]:
    """Return the step of the page at which a commit happens, and a position of its batch."""
    shown = [event for event in trace.events if event["type"] != "message"]
    commits = [step for step, event in enumerate(shown, start=1) if event["type"] == "commit"]
    step = commits[number - 1]
    return step, int(unpack(shown[step - 1]["positions"])[0])


def main() -> None:
    """Open the page, go to the commit, point at a position where asked, keep what is seen."""
    parser = argparse.ArgumentParser(description="Make the figure of the page of a run.")
    parser.add_argument("name", choices=list(PAGES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    options = parser.parse_args()
    record, commit, is_pointed, figure = PAGES[options.name]
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
        step, position = find_commit(trace, commit)
        page.get_by_label("Step of the run").fill(str(step))
        if is_pointed:
            page.get_by_role("searchbox").fill(str(position))
            page.get_by_role("button", name="Show the whole picture").click()
        page.get_by_role("searchbox").evaluate("box => { box.value = ''; box.blur(); }")
        page.get_by_label("Step of the run").evaluate("slider => slider.blur()")
        page.mouse.move(5, 5)
        page.wait_for_timeout(500)
        page.screenshot(path=options.out or FIGURES / figure)
        browser.close()


if __name__ == "__main__":
    main()
