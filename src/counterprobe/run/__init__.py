"""Runs: how oracles are asked and charged, one sequence at a time, in lockstep or gathered.

``door.py`` asks, checks and charges. An ``Unmasking`` is one run through it; ``Lockstep`` commits
the same positions in many sequences; ``gathered.py`` lets any runs meet at the oracle.
"""

from counterprobe.run.drawing import Candidates as Candidates
from counterprobe.run.lockstep import Lockstep as Lockstep
from counterprobe.run.transcript import Level as Level
from counterprobe.run.unmasking import Progress as Progress
from counterprobe.run.unmasking import Request as Request
from counterprobe.run.unmasking import Standing as Standing
