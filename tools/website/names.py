"""Names in code type become links to where the reference describes them."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.transforms import SphinxTransform

from website.places import name_of

__all__ = ["setup"]

NAME = re.compile(r"[A-Za-z_][\w.]*(\(\))?$")


class LinkNames(SphinxTransform):
    """Wrap every literal that names something public; nobody has to mark it."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        """Go through one document."""
        for literal in list(self.document.findall(nodes.literal)):
            if isinstance(literal.parent, pending_xref | nodes.reference | nodes.title):
                continue
            if target := _target(literal.astext()):
                link = pending_xref(
                    "", refdomain="py", reftype="obj", reftarget=target, refexplicit=True,
                    refwarn=False, refdoc=self.env.docname,
                )  # fmt: skip
                literal.replace_self(link)
                link += literal
        # Types and fields of docstrings come as links to whatever ends in that word.
        for link in list(self.document.findall(pending_xref)):
            if link.get("refdomain") == "py" and not link.get("refexplicit"):
                if target := _target(link["reftarget"]):
                    link["reftarget"] = target
                    link["refspecific"] = False
                else:
                    link.replace_self(link.children)


def _target(text: str) -> str | None:
    return name_of(text) if NAME.match(text) else None


def setup(app: Any) -> dict[str, Any]:
    """Register the transform."""
    app.add_transform(LinkNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
