"""Moved to :mod:`counterprobe.run.candidates`."""

from counterprobe.run.candidates import Candidates as Draft

__all__ = ["Draft"]
