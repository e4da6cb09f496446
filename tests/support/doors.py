"""Questions through a door, asked at once."""

import counterprobe as cp
from counterprobe.rows import Rows
from counterprobe.run import Probe, Run
from counterprobe.run.door import Stage


def probe(run: Run, states, readouts) -> Rows:
    """Ask as one stage of probes."""
    return run.do(Probe(states, readouts)).rows


def rows(run: Run, stage: Stage, states, readouts) -> Rows:
    """Ask inside an open stage."""
    return run.alone(stage.ask(cp.Query(states, readouts))).rows
