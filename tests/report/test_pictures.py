"""Figures within a page: their own names, the page's colors, texts that stay texts."""

import re
import xml.etree.ElementTree as ElementTree

from counterprobe.report.pictures import empty_figure, literal, svg_of


def drawn(text: str, name: str = "a plot") -> str:
    figure = empty_figure(3, 2)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#d95f02", label=literal(text))
    axes.set_title(literal(text))
    axes.legend()
    return svg_of(figure, name)


def test_texts_stay_texts_whatever_they_say():
    for text in ("<script>alert(1)</script>", r"$\frac{1", 'a"b', "50% & more"):
        root = ElementTree.fromstring(drawn(text))
        assert text in ["".join(one.itertext()).strip() for one in root.iter()]
        assert not [one for one in root.iter() if one.tag.endswith("script")]


def test_greys_follow_the_page_and_colors_stay():
    svg = drawn("x")
    assert "var(--ink)" in svg and "#d95f02" in svg
    assert not re.search(r'style="[^"]*#(000000|ffffff)', svg)


def test_names_of_two_figures_stay_apart_and_lead_somewhere():
    one, other = drawn("x", "first"), drawn("x", "second")
    names = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (one, other)]
    assert names[0] and not names[0] & names[1]
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', one))
    assert used and used <= names[0]


def test_the_size_comes_from_the_page():
    head = drawn("x").split(">")[0]
    assert "viewBox" in head and "width" not in head and "height" not in head
    assert "metadata" not in drawn("x")
