"""The documentation site in a browser: wide and narrow, light and dark, without a network."""

import itertools

import pytest

from printed_pages import build_site

pytestmark = pytest.mark.browser
PAGES = ("index.html", "choose.html", "concepts.html", "theory.html", "start/protein.html",
         "symbols.html", "learned.html", "samplers.html", "reference/commands.html",
         "reference/counterprobe.samplers.html")  # fmt: skip
LOADED = "[...document.images].every(one => one.complete && one.naturalWidth > 0)"


def test_pages_fit_any_width_complain_of_nothing_and_are_searched(tmp_path, watch):
    """One test, so that the site is built once; ``watch`` sees to complaints and requests."""
    site = build_site(tmp_path / "site")
    for name, width, scheme in itertools.product(PAGES, (1280, 390), ("light", "dark")):
        view = {"width": width, "height": 820}
        page = watch(site / name, viewport=view, color_scheme=scheme).page
        page.evaluate("document.querySelectorAll('img').forEach(one => one.loading = 'eager')")
        page.wait_for_function(LOADED)
        shown = page.evaluate("document.documentElement.scrollWidth")
        assert shown <= width, f"{name} is {shown} wide in {width}"
    page = watch(site / "index.html").page
    page.goto((site / "search.html").as_uri() + "?q=batch_kl")
    page.wait_for_selector("ul.search li a")
    assert page.locator("ul.search li a").count() > 3
