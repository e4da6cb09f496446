"""The page of a run at N = 16,384: how soon it paints, and how long a step takes.

Opens pages of three samplers in Debian's Chromium (``make test-browser`` installs it) and reads
the browser's own clock: first paint and first whole picture after navigation, then the time from a
key press to the frame that shows the next step, over every step or sixty of them.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from _timing import arguments, report
from playwright.sync_api import Browser, Page, sync_playwright

import counterprobe as cp
from counterprobe.trace import About, Recorder

CHROMIUM = "/usr/bin/chromium"
SAMPLERS = ("packed", "compressed", "random-balanced")
STEPS = 60
# Two frames later the picture of a step is on the screen.
STEP = """() => new Promise(done => {
  const pressed = performance.now();
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - pressed)));
})"""


def write_run(name: str, length: int, file: Path) -> None:
    """Write the page of one run on a path."""
    law = cp.families.path(length=length, target_seed=196)
    about = About(family="path", true_edges=law.edges)
    with Recorder(file, about) as recorder:
        cp.sample(law.oracle(), name, seed=1, on_event=recorder, progress=False)


def moment(page: Page, name: str) -> float:
    """Return milliseconds from navigation to a moment of the browser's, once it has come."""
    page.wait_for_function("name => performance.getEntriesByName(name).length", arg=name)
    found: float = page.evaluate("name => performance.getEntriesByName(name)[0].startTime", name)
    return found


def measure(browser: Browser, file: Path, repeats: int) -> dict[str, float]:
    """Open a page several times, and step through it once."""
    paints, pictures = [], []
    for _ in range(repeats):
        page = browser.new_page(viewport={"width": 1280, "height": 820})
        page.goto(file.resolve().as_uri())
        paints.append(moment(page, "first-contentful-paint"))
        pictures.append(moment(page, "first picture"))
        if len(paints) < repeats:
            page.close()
    last = int(page.get_by_label("Step of the run").get_attribute("max") or 0)
    steps = [page.evaluate(STEP) for _ in range(min(STEPS, last))]
    page.close()
    return {
        "megabytes": file.stat().st_size / 1e6,
        "first_paint_ms": min(paints),
        "first_picture_ms": min(pictures),
        "step_median_ms": statistics.median(steps),
        "step_slowest_ms": max(steps),
    }


def main() -> None:
    """Measure the three samplers."""
    options = arguments(__doc__)
    length = 2_048 if options.quick else 16_384
    figures = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name in SAMPLERS:
            file = Path(folder, f"{name}.html")
            write_run(name, length, file)
            for key, value in measure(browser, file, 1 if options.quick else 3).items():
                figures[f"{name}.{key}"] = value
        browser.close()
    report(figures, options.json)


if __name__ == "__main__":
    main()
