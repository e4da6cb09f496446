"""Pages and displays: what was found, as sections that become HTML, all texts escaped.

Results, structures, plans and rows show themselves in notebooks by their sections;
``result.report("run.html")`` writes them as a page of their own, and ``write_report`` any list of
sections. Commands write theirs with ``--report``.
"""

from counterprobe.report.page import render, write_report
from counterprobe.report.sections import Code, Facts, Note, Picture, Report, Section, Table
from counterprobe.report.shown import Shown

__all__ = [
    "Code",
    "Facts",
    "Note",
    "Picture",
    "Report",
    "Section",
    "Shown",
    "Table",
    "render",
    "write_report",
]
