"""Things that show themselves: in a notebook as a small display, and as a page of their own."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence

from counterprobe.report.page import part, write_report
from counterprobe.report.sections import Report, Section

__all__ = ["Shown", "display"]


class Shown(ABC):
    """What has sections, and is displayed by them."""

    __slots__ = ()

    @abstractmethod
    def sections(self) -> list[Section]:
        """Return what a display or a page of it shows, texts and tables first."""

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return display(self.sections())

    def report(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Write a page that shows it, one file that needs no network.

        Parameters
        ----------
        path : path
            ``.html``; a file that is there is replaced.
        title : str
            By default, what it is.
        """
        write_report(Report(title or type(self).__name__, sections=self.sections()), path)


def display(sections: Sequence[Section]) -> str:
    """Return sections for a notebook: their style comes with them and touches nothing else."""
    shown = "".join(f"<section>{section.html}</section>" for section in sections)
    return f'<div class="counterprobe"><style>{part("display.css")}</style>{shown}</div>'
