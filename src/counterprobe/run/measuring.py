"""Measurements: generators of requests that nothing is committed by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from counterprobe.oracles import Oracle, as_oracle
from counterprobe.oracles.checks import ReplyCheck
from counterprobe.run.door import Door
from counterprobe.run.ledger import Ledger
from counterprobe.run.requests import Requests
from counterprobe.run.run import Run
from counterprobe.run.transcript import Whole

__all__ = ["measure"]

T = TypeVar("T")


def measure(oracle: Oracle, parts: Iterable[Requests[T]]) -> tuple[list[T], Ledger]:
    """Answer generators of requests one after another.

    Parameters
    ----------
    oracle : Oracle
    parts : iterable of Requests
        Parts of one measurement, split to fit into memory. No part depends on another.

    Returns
    -------
    values : list
        Return value of each part.
    ledger : Ledger
        Charges of all parts, with stage k of every part counted as one stage.
    """
    oracle = as_oracle(oracle)
    check, whole = ReplyCheck(oracle.info), Whole()
    values = []
    for requests in parts:
        run = Run(oracle, door=Door(oracle, check=check, whole=whole))
        values.append(run.alone(run.follow(requests)))
    return values, whole.ledger
