"""Traces that come with the library; ``tools/make_traces.py`` makes them."""

from __future__ import annotations

import gzip
from importlib import resources

from counterprobe.trace.document import Trace, parse_trace

__all__ = ["EXAMPLES", "load_example"]

EXAMPLES = {
    "paper": "the paper's 15-vertex example: one peel, then two centroid batches",
    "antibody": "an antibody's missing letters, filled in by a masked language model",
    "protein": "ubiquitin's sequence on its backbone, by a plan with a price",
}


def load_example(name: str) -> Trace:
    """Return a shipped trace.

    Parameters
    ----------
    name : str
        One of ``EXAMPLES``.
    """
    if name not in EXAMPLES:
        raise ValueError(f"example must be one of {', '.join(EXAMPLES)}; got {name!r}")
    file = resources.files("counterprobe.trace.examples") / f"{name}.json.gz"
    return parse_trace(gzip.decompress(file.read_bytes()).decode("utf-8"), name)
