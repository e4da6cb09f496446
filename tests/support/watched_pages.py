"""A page of a run in a browser, and what it must count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterprobe import trace

if TYPE_CHECKING:
    from playwright.sync_api import Page

COUNTERS = ("preprocessing", "probes", "commits", "stages")


def ledgers(run: trace.Trace) -> list[dict[str, int]]:
    """Return the account that each step must show, the start included."""
    now = dict.fromkeys(COUNTERS, 0)
    shown = [now]
    for event in run.events:
        told: Any = event.get("ledger")
        if isinstance(told, list):
            now = dict(zip(COUNTERS, told, strict=False))
        elif isinstance(told, dict):
            now = {name: told[name] for name in COUNTERS}
        if event["type"] != "message":
            shown.append(now)
    return [{**one, "total": sum(one[name] for name in COUNTERS[:3])} for one in shown]


@dataclass
class Watched:
    """A page, and everything it complained about or asked for."""

    page: Page
    complaints: list[str]
    requests: list[str]

    @property
    def last_step(self) -> int:
        return int(self.page.get_by_label("Step of the run").get_attribute("max") or 0)

    @property
    def step(self) -> int:
        self.settle()  # a click is shown with the next picture
        return int(self.page.get_by_label("Step of the run").input_value())

    @property
    def headline(self) -> str:
        return self.page.locator(".caption h1").inner_text()

    def go(self, step: int) -> None:
        """Scrub to a step."""
        self.page.get_by_label("Step of the run").fill(str(step))
        self.settle()

    def press(self, *keys: str) -> None:
        """Press keys, one after another, and let the page draw."""
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def counters(self, run: int = 0) -> dict[str, int]:
        """Return the numbers of a run's ledger as shown."""
        shown = self.page.locator("article.run").nth(run).locator("[data-counter]")
        return {
            str(shown.nth(k).get_attribute("data-counter")): int(
                shown.nth(k).inner_text().replace(",", "")
            )
            for k in range(shown.count())
        }

    def picture(self) -> bytes:
        """Return what the page looks like."""
        return self.page.screenshot(animations="disabled")

    def drawing(self, selector: str) -> str:
        """Return what is drawn on a canvas, without what lies over it."""
        return str(self.page.locator(selector).first.evaluate("canvas => canvas.toDataURL()"))
