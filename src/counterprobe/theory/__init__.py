"""The paper's public parameters, caps and bounds as functions."""

from counterprobe.theory import bounds
from counterprobe.theory.guarantees import Guarantee, guarantee
from counterprobe.theory.hypotheses import Hypothesis, check_hypotheses
from counterprobe.theory.parameters import (
    Calibration,
    calibrate,
    peel_phase_cap,
    probe_cap,
    round_cap,
)

__all__ = [
    "Calibration",
    "Guarantee",
    "Hypothesis",
    "bounds",
    "calibrate",
    "check_hypotheses",
    "guarantee",
    "peel_phase_cap",
    "probe_cap",
    "round_cap",
]
