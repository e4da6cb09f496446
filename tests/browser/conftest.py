"""Pages of runs, opened in Debian's Chromium; ``make test-browser`` runs these."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import counterprobe as cp
from counterprobe import trace
from counterprobe.samplers import SAMPLERS
from watched_pages import Watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = "/usr/bin/chromium"
# Nothing of the browser's own may go over the network either.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
]
TEMPLATE = Path(trace.__file__).parent / "page.html"
PLACE = re.compile(r'(<script type="application/json" id="trace-data">)(</script>)')


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def watch(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Return a function that opens a file; afterwards, no page may have complained."""
    opened: list[Watched] = []

    def watch(file: Path, *, script: str = "", **options: Any) -> Watched:
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 820}, **options})
        watched = Watched(page, [], [])
        opened.append(watched)
        page.on("console", lambda message: watched.complaints.append(message.text))
        page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        page.on("dialog", lambda dialog: watched.complaints.append(dialog.message))
        page.on("request", lambda request: watched.requests.append(request.url))
        if script:
            page.add_init_script(script)
        page.goto(file.resolve().as_uri())
        page.wait_for_selector("h1")
        watched.settle()
        return watched

    yield watch
    for watched in opened:
        watched.page.close()
        assert watched.complaints == []
        assert all(url.startswith("file:") for url in watched.requests)


@pytest.fixture
def page_with(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a page which carries any text in place of traces."""

    def page_with(text: str) -> Path:
        filled, places = PLACE.subn(lambda m: m[1] + text + m[2], TEMPLATE.read_text("utf-8"))
        assert places == 1
        file = tmp_path / "page.html"
        file.write_text(filled, encoding="utf-8")
        return file

    return page_with


@pytest.fixture
def page_of(page_with: Callable[[str], Path]) -> Callable[..., Path]:
    """Return a function that writes a page of documents, checked or not."""

    def page_of(*documents: Any, names: tuple[str, ...] = ("a.json", "b.json")) -> Path:
        traces = [
            {"name": name, "trace": document}
            for name, document in zip(names, documents, strict=False)
        ]
        content = json.dumps({"format": "counterprobe page", "version": 1, "traces": traces})
        return page_with(content.replace("<", "\\u003c"))

    return page_of


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], trace.Trace]:
    """Return a function that records one run of a sampler on a path of some length."""

    @functools.cache
    def recorded(name: str, length: int) -> trace.Trace:
        law = cp.families.path(length=length, target_seed=196)
        settings = {"shared_by": 1000} if name == "packed" else {}  # screen at any size
        sampler = SAMPLERS[name](**settings).informed_by(law)
        file = tmp_path_factory.mktemp("traces") / "run.json"
        about = trace.About(family="path", true_edges=law.edges)
        with trace.Recorder(file, about) as recorder:
            cp.sample(law.oracle(), sampler, seed=1, on_event=recorder, progress=False)
        return trace.load_trace(file)

    return recorded
