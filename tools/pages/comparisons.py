"""Tables of ``counterprobe compare``: a loop of an antibody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rivals.published import marked

from pages.writing import markdown

__all__ = ["comparison_tables"]

Rows = Mapping[str, Mapping[str, Any]]

QUALITY = (
    "sequential order=random", "one-batch", "random-balanced batches=4", "threshold threshold=0.3",
    "punt",
)  # fmt: skip
GRAPHS = (
    "sequential order=random", "random-balanced batches=4", "threshold threshold=0.3", "punt",
    "dawn", "dawn low_threshold=0.3", "dapd", "dapd edge_threshold=0.03", "dapd graph=probes",
    "dapd graph=probes edge_threshold=0.05",
)  # fmt: skip


def comparison_tables(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by name."""
    loop = found["loop"]["rows"]
    return {
        "loop-graphs": _loop_graphs(loop),
        "loop-quality": _loop_quality(loop),
    }


def _loop_graphs(rows: Rows) -> str:
    lines = [
        [marked(name), f"{row['evaluations']:.1f}", f"{row['batch_kl']:.3f}",
         f"{row['batch_kl_se']:.3f}"]
        for name, row in ((name, rows[name]) for name in GRAPHS)
    ]  # fmt: skip
    return markdown(["sampler", "evaluations a sequence", "batch KL", "SE"], lines)


def _loop_quality(rows: Rows) -> str:
    lines = [
        [
            marked(name),
            f"{row['evaluations']:.1f}",
            f"{row['batch_kl']:.3f} ({row['batch_kl_se']:.3f})",
            f"{row['log_likelihood_per_token']:.3f} ({row['log_likelihood_per_token_se']:.3f})",
            f"{row['order_disagreement']:.2f}",
            f"{row['p_value']['hamming']:.2f}",
            f"{row['mean_distance']:.1f}",
        ]
        for name, row in ((name, rows[name]) for name in QUALITY)
    ]
    heading = [
        "sampler", "evaluations a sequence", "batch KL (SE), nats", "log-likelihood a token (SE)",
        "orders apart, nats", "MMD p", "mean distance",
    ]  # fmt: skip
    return markdown(heading, lines)
