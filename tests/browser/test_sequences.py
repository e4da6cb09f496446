"""The page of a text that a model fills in: its line, letters and ties, and a phone's width."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import trace
from counterprobe.trace.arrays import unpack
from watched_pages import Watched

pytestmark = pytest.mark.browser

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
# A heavy chain with eight residues of its third loop masked: positions 99 to 106 as people count.
CHAIN = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVSAISGSGGSTYYADSVKGRFTISRDNSKNTLYLQMNSLRAED"
    "TAVYYCAKXXXXXXXXDYWGQGTLVTVSS"
)
LOOP = slice(98, 106)


@pytest.fixture(scope="session")
def antibody(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, trace.Trace, str]:
    """The page of a loop that Sapiens fills in by a structure, its trace and the design."""
    folder = tmp_path_factory.mktemp("antibody")
    task = cp.infilling.task.make_task("sapiens-heavy", CHAIN, model_options={"device": "cpu"})
    structure = cp.discover(task.oracle, mode="soft", given=task.given, probes=64)
    options = {"structure": structure, "batches": 4, "seed": 1, "progress": False}
    drawn = cp.infill(task, trace=folder / "run.json", **options)
    run = trace.load_trace(folder / "run.json")
    trace.write_page(run, folder / "run.html")
    assert drawn.texts is not None
    return folder / "run.html", run, drawn.texts[0]


def page_of_example(name: str, folder: Path) -> Path:
    trace.write_page(trace.load_example(name), folder / "run.html")
    return folder / "run.html"


def line(watched: Watched) -> str:
    """Return the picture of the chain in words."""
    return watched.page.locator("canvas.chain").get_attribute("aria-label") or ""


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_masks_stand_in_the_middle_and_letters_come_onto_them(
    viewport: dict[str, int],
    antibody: tuple[Path, trace.Trace, str],
    watch: Callable[..., Watched],
) -> None:
    page, run, design = antibody
    watched = watch(page, viewport=viewport)
    box = watched.page.locator("canvas.chain").bounding_box()
    assert box is not None
    pointed = set()
    for height in np.arange(0.3, 0.9, 0.03):  # wherever the line is, its middle is the loop
        watched.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + height * box["height"])
        watched.settle()
        found = watched.page.locator(".detail [data-position]")
        if found.count():
            pointed.add(int(found.get_attribute("data-position") or -1))
    assert pointed and pointed <= set(range(LOOP.start, LOOP.stop))
    watched.page.mouse.move(1, 1)
    state = ["·"] * len(design)
    drawings = []
    for step, event in enumerate(run.events, start=1):
        watched.go(step)
        if event["type"] == "commit":
            for position in unpack(event["positions"]):
                state[position] = design[position]
            drawings.append(watched.drawing("canvas.chain"))
        assert line(watched).startswith(f"The chain, positions 99 to 106: {''.join(state[LOOP])};")
    assert len(set(drawings)) == len(drawings) == 4


def test_page_opens_on_ties_and_counts_their_discovery_beside(
    antibody: tuple[Path, trace.Trace, str], watch: Callable[..., Watched]
) -> None:
    page, run, _ = antibody
    watched = watch(page)
    graph = run.events[0]
    strength = unpack(graph["strength"])
    strongest = [str(v + 1) for v in unpack(graph["pairs"])[np.argmax(strength)]]
    assert watched.headline.endswith(f"tied, {' and '.join(strongest)} most strongly")
    assert line(watched).endswith(f"{len(strength)} ties of up to {strength.max():.2f} nats")
    beside = watched.page.locator(".beside").inner_text()
    assert f"{run.header['beside']['discovery']} for discovery" in beside
    assert watched.counters()["total"] == 0
    watched.page.get_by_role("searchbox").fill(strongest[0])
    listed = watched.page.locator(".detail .chips button")
    listed.first.wait_for()
    chips = listed.all_inner_texts()
    assert chips[0].startswith(f"{strongest[1]}: ")
    nats = [float(chip.split(": ")[1]) for chip in chips]
    assert nats == sorted(nats, reverse=True)
    watched.go(watched.last_step)
    assert "Broken dependence: not measured" in watched.page.locator(".caption").inner_text()


def test_a_measured_price_is_said(
    antibody: tuple[Path, trace.Trace, str],
    page_of: Callable[..., Path],
    watch: Callable[..., Watched],
) -> None:
    document = antibody[1].document()
    *events, end = document["events"]
    watched = watch(page_of({**document, "events": [*events, {**end, "batch_kl": 0.25}]}))
    watched.go(watched.last_step)
    said = watched.page.locator(".caption").inner_text()
    assert "Broken dependence, measured: 0.25 nats" in said and "not measured" not in said


def test_backbone_is_one_button_away(watch: Callable[..., Watched], tmp_path: Path) -> None:
    watched = watch(page_of_example("protein", tmp_path))
    canvases = watched.page.locator("canvas.chain"), watched.page.locator("canvas.backbone")
    assert [canvas.is_visible() for canvas in canvases] == [True, False]
    watched.page.get_by_role("button", name="Show the protein's backbone").click()
    watched.settle()
    assert [canvas.is_visible() for canvas in canvases] == [False, True]


@pytest.mark.parametrize("name", trace.EXAMPLES)
def test_no_control_is_covered_on_a_phone(
    name: str, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    watched = watch(page_of_example(name, tmp_path), viewport=PHONE)
    covered = """() => [...document.querySelectorAll("button, input, select, summary")]
      .filter(e => e.checkVisibility())
      .filter(e => {
        e.scrollIntoView({ block: "center" });
        const box = e.getBoundingClientRect();
        return [[0.5, 0.5], [0.1, 0.5], [0.9, 0.5]].some(([across, down]) => {
          const top = document.elementFromPoint(
            box.x + across * box.width, box.y + down * box.height);
          return top !== e && !e.contains(top);
        });
      })
      .map(e => e.outerHTML)"""
    for step in range(watched.last_step + 1):
        watched.go(step)
        assert watched.page.evaluate(covered) == []
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
