"""Moved to :mod:`counterprobe.run.ledger`."""

from counterprobe.run.ledger import Ledger as Ledger
from counterprobe.run.ledger import Right as Right
