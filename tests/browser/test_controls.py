"""What a person can do on the page: play, step, scrub, zoom, point, search, switch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from counterprobe import trace
from watched_pages import Watched, ledgers

pytestmark = pytest.mark.browser


@pytest.fixture
def packed(recorded: Callable[[str, int], trace.Trace], tmp_path: Path) -> Path:
    """The page of a packed run on fifteen positions."""
    file = tmp_path / "packed.html"
    trace.write_page(recorded("packed", 15), file)
    return file


@pytest.fixture
def two_runs(recorded: Callable[[str, int], trace.Trace], tmp_path: Path) -> Path:
    """Packed beside random."""
    file = tmp_path / "two.html"
    trace.write_page(recorded("packed", 200), file, recorded("random-balanced", 200))
    return file


def test_play_moves_on_by_itself_and_pauses(packed: Path, watch: Callable[..., Watched]) -> None:
    watched = watch(packed)
    watched.page.get_by_label("Speed").select_option("8")
    watched.page.get_by_role("button", name="Play").click()
    watched.page.wait_for_function(
        "() => Number(document.querySelector('.scrub input').value) > 1"
    )
    watched.page.get_by_role("button", name="Pause").click()
    held = watched.step
    watched.page.wait_for_timeout(500)
    assert watched.step == held


def test_play_stops_at_the_end_and_starts_again(
    packed: Path, watch: Callable[..., Watched]
) -> None:
    watched = watch(packed)
    watched.go(watched.last_step - 1)
    watched.page.get_by_label("Speed").select_option("8")
    watched.press("Space")
    watched.page.wait_for_selector("button.play[aria-label=Play]")
    assert watched.step == watched.last_step
    watched.press("Space")
    assert watched.step < watched.last_step


def test_playing_shows_single_states_of_a_stage_unless_motion_is_reduced(
    packed: Path, watch: Callable[..., Watched]
) -> None:
    # One color varies in such a look; "All" colorings otherwise.
    seen = "() => /varies/.test(document.querySelector('.lens').textContent)"
    lively = watch(packed)
    lively.go(2)
    lively.press("Space")
    lively.page.wait_for_function(seen)
    calm = watch(packed, reduced_motion="reduce")
    calm.go(2)
    calm.press("Space")
    while calm.step == 2:
        assert not calm.page.evaluate(seen)


def test_keys_step_and_jump(packed: Path, watch: Callable[..., Watched]) -> None:
    watched = watch(packed)
    watched.press("End")
    assert watched.step == watched.last_step
    watched.press("ArrowLeft", "ArrowLeft")
    assert watched.step == watched.last_step - 2
    watched.press("Home", "ArrowLeft")
    assert watched.step == 0
    watched.press("ArrowRight")
    assert watched.step == 1


def test_step_buttons_move_by_one(packed: Path, watch: Callable[..., Watched]) -> None:
    watched = watch(packed)
    watched.page.get_by_role("button", name="Step forward").click()
    watched.page.get_by_role("button", name="Step forward").click()
    watched.page.get_by_role("button", name="Step back").click()
    assert watched.step == 1


def test_zoom_changes_the_graph_and_fit_restores_it(
    packed: Path, watch: Callable[..., Watched]
) -> None:
    watched = watch(packed)
    watched.go(3)
    whole = watched.drawing(".dependence")
    watched.page.get_by_role("button", name="Zoom in").click()
    watched.page.mouse.move(5, 5)
    watched.settle()
    near = watched.drawing(".dependence")
    assert near != whole
    watched.press("0")
    assert watched.drawing(".dependence") == whole
    watched.page.mouse.move(400, 350)
    watched.page.mouse.wheel(0, -400)
    watched.page.mouse.move(5, 5)
    watched.settle()
    assert watched.drawing(".dependence") != whole


def test_pointing_at_the_strip_shows_row_neighbours_and_votes(
    packed: Path, watch: Callable[..., Watched]
) -> None:
    watched = watch(packed)
    watched.go(4)
    box = watched.page.locator(".positions").bounding_box()
    assert box is not None
    watched.page.mouse.move(box["x"] + box["width"] * 2.5 / 15, box["y"] + 10)
    detail = watched.page.locator(".detail")
    detail.locator("[data-position='2']").wait_for()
    said = detail.inner_text()
    assert "Likeliest tokens" in said
    assert "2 neighbours" in said
    assert "Votes" in said
    watched.page.mouse.move(5, 5)
    detail.get_by_text("Point at a position").wait_for()


def test_tap_keeps_a_position_and_a_chip_leads_to_its_neighbour(
    packed: Path, watch: Callable[..., Watched]
) -> None:
    watched = watch(packed, viewport={"width": 390, "height": 844}, has_touch=True)
    watched.go(4)
    watched.page.locator(".positions").tap(position={"x": 12, "y": 12})
    detail = watched.page.locator(".detail")
    detail.locator("[data-position='0']").wait_for()
    detail.locator(".chips button").first.click()
    watched.settle()
    assert detail.locator("[data-position='0']").count() == 0
    assert detail.locator("[data-position]").count() == 1


def test_search_finds_a_position_and_says_when_there_is_none(
    packed: Path, watch: Callable[..., Watched]
) -> None:
    watched = watch(packed)
    watched.press("/")
    watched.page.keyboard.type("7")
    watched.page.locator(".detail [data-position='7']").wait_for()
    watched.page.keyboard.type("77")
    watched.page.get_by_text("No such position").wait_for(state="attached")
    assert watched.page.get_by_role("searchbox").get_attribute("aria-invalid") == "true"
    assert watched.step == 0  # typing steers the search alone


def test_states_of_a_stage_can_be_looked_at_one_by_one(
    packed: Path, watch: Callable[..., Watched]
) -> None:
    watched = watch(packed)
    watched.go(2)
    lens = watched.page.locator(".lens")
    assert "All" in lens.inner_text()
    whole = watched.drawing(".dependence")
    watched.press("]")
    assert "Coloring 1 " in lens.inner_text()
    assert watched.drawing(".dependence") != whole
    watched.press("[")
    assert "All" in lens.inner_text()
    assert watched.drawing(".dependence") == whole


def test_theme_follows_the_system_and_the_switch(
    packed: Path, watch: Callable[..., Watched]
) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light, dark = watch(packed, color_scheme="light"), watch(packed, color_scheme="dark")
    assert light.page.evaluate(ground) != dark.page.evaluate(ground)
    light.page.get_by_role("button", name="Switch to the dark theme").click()
    light.settle()
    assert light.page.evaluate(ground) == dark.page.evaluate(ground)
    assert light.picture() == dark.picture() or light.page.evaluate(
        "document.activeElement.tagName"
    )


@pytest.mark.parametrize("width", [320, 390, 800, 1280])
def test_nothing_is_wider_than_the_screen(
    width: int, packed: Path, two_runs: Path, watch: Callable[..., Watched]
) -> None:
    for file in (packed, two_runs):
        watched = watch(file, viewport={"width": width, "height": 800})
        for step in (0, 2, watched.last_step):
            watched.go(step)
            assert watched.page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_everything_that_can_be_used_has_a_name(
    packed: Path, watch: Callable[..., Watched]
) -> None:
    watched = watch(packed)
    unnamed = watched.page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, canvas, section, nav")]
          .filter(e => !(e.getAttribute("aria-label") || e.textContent.trim()
            || e.getAttribute("aria-hidden")))
          .map(e => e.outerHTML)"""
    )
    assert unnamed == []


def test_two_runs_stand_after_the_same_number_of_evaluations(
    two_runs: Path, recorded: Callable[[str, int], trace.Trace], watch: Callable[..., Watched]
) -> None:
    watched = watch(two_runs)
    runs = [recorded(name, 200) for name in ("packed", "random-balanced")]
    totals = [[ledger["total"] for ledger in ledgers(run)] for run in runs]
    last = watched.last_step
    assert last == sum(len(spent) - 1 for spent in totals)
    for step in (0, 5, last // 2, last - 1):
        watched.go(step)
        shown = [watched.counters(run)["total"] for run in (0, 1)]
        for run, spent in enumerate(totals):
            # Whatever a run spends next, it passes what the other has spent.
            assert all(total >= max(shown) for total in spent if total > shown[run])
    watched.go(last)
    assert [watched.counters(run)["total"] for run in (0, 1)] == [t[-1] for t in totals]


def test_true_ties_can_be_shown(packed: Path, watch: Callable[..., Watched]) -> None:
    watched = watch(packed)
    button = watched.page.get_by_role("button", name="Show the ties of the hidden law")
    hidden = watched.drawing(".dependence")
    button.click()
    watched.page.mouse.move(5, 5)
    watched.settle()
    assert button.get_attribute("aria-pressed") == "true"
    assert watched.drawing(".dependence") != hidden


def test_two_runs_stand_side_by_side_whatever_their_captions_say(
    recorded: Callable[[str, int], trace.Trace], watch: Callable[..., Watched], tmp_path: Path
) -> None:
    file = tmp_path / "two.html"
    # In the end the first has more lines to say than the second.
    trace.write_page(recorded("compressed", 15), file, recorded("random-balanced", 15))
    watched = watch(file)
    for step in (0, 2, watched.last_step):
        watched.go(step)
        for part in (".ledger", ".graph", ".strip"):
            boxes = [watched.page.locator(part).nth(k).bounding_box() for k in (0, 1)]
            assert boxes[0] is not None and boxes[1] is not None
            assert boxes[0]["y"] == boxes[1]["y"]
            assert boxes[0]["x"] < boxes[1]["x"]
    narrow = watch(file, viewport={"width": 390, "height": 844})
    pictures = [narrow.page.locator(".graph").nth(k).bounding_box() for k in (0, 1)]
    assert pictures[0] is not None and pictures[1] is not None
    assert pictures[0]["x"] == pictures[1]["x"]
    assert pictures[0]["y"] + pictures[0]["height"] < pictures[1]["y"]
