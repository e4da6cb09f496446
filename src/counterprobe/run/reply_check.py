"""Checks of replies, as the door makes them."""

from __future__ import annotations

from counterprobe.checks import check_rows, own_rows
from counterprobe.oracle import Oracle, Readouts
from counterprobe.rows import Rows
from counterprobe.wrapping import name_of

__all__ = ["ReplyCheck"]


class ReplyCheck:
    """Checks replies; a zero probability warns once for all who share the check.

    Parameters
    ----------
    oracle : Oracle
    trusted : bool, optional
        Check nothing; by default the oracle says whether it is to be trusted.
    """

    def __init__(self, oracle: Oracle, trusted: bool | None = None) -> None:
        self.name = name_of(oracle)
        self._vocab_size = oracle.vocab_size
        self._trusted = bool(oracle.trusted) if trusted is None else trusted
        self._zero_seen = False

    def __call__(self, rows: Rows, readouts: Readouts) -> Rows:
        """Return the rows, or raise ``OracleError``."""
        if not self._trusted:
            self._zero_seen |= check_rows(
                rows, readouts, self._vocab_size, self.name, warn_on_zero=not self._zero_seen
            )
            return own_rows(rows)  # a run keeps rows that the oracle may write over
        return rows
