"""Moved to :mod:`counterprobe.run.unmasking`."""

from counterprobe.run.unmasking import Progress as Progress
from counterprobe.run.unmasking import Request as Request
from counterprobe.run.unmasking import Unmasking as Unmasking
