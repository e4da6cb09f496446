"""Traces: what a run did, kept in a file, and the page that shows it (``docs/trace.md``)."""

from counterprobe.trace.about import About
from counterprobe.trace.document import Trace, load_trace, thin, write_trace
from counterprobe.trace.examples import EXAMPLES, load_example
from counterprobe.trace.page import write_page
from counterprobe.trace.recorder import Recorder
from counterprobe.trace.replay import Replay, replay, summary

__all__ = [
    "EXAMPLES",
    "About",
    "Recorder",
    "Replay",
    "Trace",
    "load_example",
    "load_trace",
    "replay",
    "summary",
    "thin",
    "write_page",
    "write_trace",
]
