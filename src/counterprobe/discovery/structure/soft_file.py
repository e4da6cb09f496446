"""Files of soft structures: which arrays they hold, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.discovery.structure.file import (
    FileKind,
    Layout,
    check_sample,
    checked_ledger,
    refuse,
    require_amounts,
    require_count,
    require_share,
)
from counterprobe.states import MASK

__all__ = ["ARRAYS", "SOFT_KIND", "SOFT_KINDS"]

LAYOUT: Layout = {
    "given": (np.int32, "N"),
    "edges": (np.int64, "E2"),
    "pairs": (np.int64, "P2"),
    "pair_strength": (np.float64, "P"),
    "pair_strength_se": (np.float64, "P"),
    "moved": (np.float64, "N"),
    "most_moved": (np.float64, "N"),
    "explained": (np.float64, "N"),
    "sample_states": (np.int32, "SN"),
    "sample_index": (np.int64, "R"),
    "sample_position": (np.int64, "R"),
    "sample_rows": (np.float64, "RW"),
}
# What either half of the probes says of all pairs; files of the format before had none of it.
HALVES: Layout = {
    "half_strength": (np.float32, "2H"),
    "half_variance": (np.float32, "2H"),
    "half_selected": (np.bool_, "2H"),
}
# Files of the format before had none of it.
NEARNESS: Layout = {"nearness": (np.float32, "CC")}
ARRAYS: Layout = {**LAYOUT, **HALVES, **NEARNESS}
VALUES = (
    "vocab_size",
    "false_discovery_rate",
    "noise_floor",
    "num_probes",
    "ledger",
    "row_width",
    "row_error",
    "precision",
    "about",
)


def _finished(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Check a header and arrays, and return the fields of a soft structure."""
    for name in ("vocab_size", "row_width"):
        require_count(name, header[name], 1)
    require_count("num_probes", header["num_probes"], 0)
    for name in ("false_discovery_rate", "row_error", "precision"):
        require_share(name, header[name])
    floor = header["noise_floor"]
    if type(floor) not in (int, float) or not 0 <= floor < math.inf:
        refuse(f"noise_floor must be a number of nats, got {floor!r}")
    check_sample(arrays, header["vocab_size"], header["row_width"])
    for name in ("pair_strength", "pair_strength_se"):
        require_amounts(name, arrays[name])
    is_missing = np.isnan(arrays["moved"])
    for name in ("moved", "most_moved", "explained"):
        require_amounts(name, arrays[name], is_missing)
    if (arrays["explained"] > 1).any():
        refuse(f"explained must be at most 1, got {np.nanmax(arrays['explained'])}")
    _check_pairs(arrays)
    _check_halves(arrays)
    _check_nearness(arrays)
    found_at = header["about"].get("temperature", 1.0) if type(header["about"]) is dict else 1.0
    if type(found_at) not in (int, float) or not 0 < found_at < math.inf:
        refuse(f"about.temperature must be positive, got {found_at!r}")
    values: Mapping[str, Any] = {name: header[name] for name in VALUES}
    return {**arrays, **values, "ledger": checked_ledger(header)}


def _check_pairs(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse pairs that are out of range, twice there, or of given positions."""
    given, pairs = arrays["given"], arrays["pairs"]
    length = len(given)
    if pairs.size and not (pairs.min() >= 0 and pairs.max() < length):
        refuse(f"pairs must lie in 0..{length - 1}, got {pairs.min()}..{pairs.max()}")
    if (pairs[:, 0] >= pairs[:, 1]).any():
        refuse("pairs must have the smaller position first")
    keys = pairs[:, 0] * length + pairs[:, 1]
    if len(np.unique(keys)) != len(keys):
        refuse("a pair is there twice")
    if (given[pairs] != MASK).any():
        refuse("a pair names a position that was given")


def _check_halves(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse halves that are not of all pairs of masked positions, or hold no numbers."""
    if "half_strength" not in arrays:
        return
    masked = int((arrays["given"] == MASK).sum())
    count, expected = arrays["half_strength"].shape[1], masked * (masked - 1) // 2
    if count not in (0, expected):
        refuse(f"half_strength must have {expected} pairs of {masked} positions, got {count}")
    if not np.isfinite(arrays["half_strength"]).all():
        refuse("half_strength must be finite")
    variance = arrays["half_variance"]
    require_amounts("half_variance", variance, np.isnan(variance))  # NaN: nobody knows the pair


def _check_nearness(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse nearness that is not of all positions, or no shares."""
    near, length = arrays.get("nearness", np.zeros((0, 0))), len(arrays["given"])
    if len(near) not in (0, length):
        refuse(f"nearness must be of {length} positions, got {len(near)}")
    require_amounts("nearness", near)
    if (near.sum(axis=1) > 1 + 1e-3).any():
        refuse(f"nearness must sum to at most 1, got {near.sum(axis=1).max()}")


SOFT_KIND = FileKind("counterprobe soft structure 4", ARRAYS, VALUES, _finished)
# The others are read, never written.
SOFT_KINDS = (
    SOFT_KIND,
    FileKind("counterprobe soft structure 3", {**LAYOUT, **HALVES}, VALUES, _finished),
    FileKind("counterprobe soft structure 2", LAYOUT, VALUES, _finished),
)
