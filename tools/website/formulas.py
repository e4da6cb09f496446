"""Formulas as MathML, which browsers draw by themselves: nothing is fetched."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

__all__ = ["setup"]

VARIANT = re.compile(r'<mi mathvariant="(script|fraktur|sans-serif|normal)">([^<]+)</mi>')


def formula(tex: str, *, display: bool = False) -> str:
    """Return the MathML of a formula; letters of an alphabet become that alphabet's own."""

    def letter(found: re.Match[str]) -> str:
        alphabet, text = found.groups()
        if alphabet in ("script", "fraktur") and text.isascii() and text.isalpha():
            return f"<mi>{_in_alphabet(alphabet, text)}</mi>"
        return f'<mi mathvariant="normal">{text}</mi>'

    # One word of several letters, not a product of them.
    made = VARIANT.sub(letter, convert(tex, display="block" if display else "inline"))
    return re.sub(
        r'(<mi mathvariant="normal">\w</mi>){2,}',
        lambda run: f"<mtext>{re.sub('<[^>]+>', '', run[0])}</mtext>",
        made,
    )


def _in_alphabet(alphabet: str, letter: str) -> str:
    kind = alphabet.upper()
    size = "CAPITAL" if letter.isupper() else "SMALL"
    for name in (f"MATHEMATICAL {kind} {size} {letter}", f"{kind} {size} {letter}",
                 f"BLACK-LETTER {size} {letter}"):  # fmt: skip
        try:
            return unicodedata.lookup(name)
        except KeyError:
            continue
    return letter


def _visit_math(self: Any, node: nodes.math) -> None:
    self.body.append(formula(node.astext()))
    raise nodes.SkipNode


def _visit_math_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(formula(node.astext(), display=True))
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    """Register the renderer for HTML."""
    app.add_html_math_renderer("mathml", (_visit_math, None), (_visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
