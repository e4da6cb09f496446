"""Questions through a door, asked at once."""

import counterprobe as cp
from counterprobe.rows import Rows
from counterprobe.run import Probe
from counterprobe.run.door import Door, Stage
from counterprobe.run.driver import drive


def probe(door: Door, states, readouts) -> Rows:
    """Ask as one stage of probes."""
    return cp.run.Run(door.oracle, door=door).do(Probe(states, readouts)).rows


def rows(stage: Stage, states, readouts) -> Rows:
    """Ask inside an open stage."""
    return drive(stage._door.oracle, stage.ask(cp.Query(states, readouts))).rows
