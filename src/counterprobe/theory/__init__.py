"""The paper's public parameters, caps and bounds as functions."""

from counterprobe.theory import bounds as bounds
from counterprobe.theory.hypotheses import Hypothesis as Hypothesis
from counterprobe.theory.hypotheses import check_hypotheses as check_hypotheses
from counterprobe.theory.parameters import Calibration as Calibration
from counterprobe.theory.parameters import calibrate as calibrate
from counterprobe.theory.parameters import peel_phase_cap as peel_phase_cap
from counterprobe.theory.parameters import probe_cap as probe_cap
from counterprobe.theory.parameters import round_cap as round_cap
