"""Moved to :mod:`counterprobe.run.transcript`."""

from counterprobe.run.transcript import Event as Event
from counterprobe.run.transcript import Level as Level
from counterprobe.run.transcript import Note as Note
from counterprobe.run.transcript import Transcript as Transcript
