"""How the recorded runs ask for logs, repeats, second replies, shards and draws from a structure.

Everything else that they call is plain. Where such a call changes its shape, this file follows and
the record stays.
"""

import counterprobe as cp
from counterprobe.engines import InProcess, ShardedOracle


def draw(oracle, rule, count, *, log=None, attempts=None, recheck=0.0, **options):
    """Draw sequences; log replies in a file, repeat calls that fail, recheck a share of states."""
    return cp.sample(
        _retried(oracle, attempts),
        rule,
        count,
        progress=False,
        paranoid=recheck,
        checkpoint=log,
        **options,
    )


def fill_in(model, text, *, log=None, attempts=None, recheck=0.0, **options):
    """Fill in the masks of a text."""
    retries = 0 if attempts is None else attempts - 1
    return cp.infill(
        model, text, progress=False, checkpoint=log, retries=retries, paranoid=recheck, **options
    )


def find(oracle, seed, *, log=None, attempts=None, recheck=0.0, **options):
    """Discover the structure of an oracle."""
    streams = cp.Streams.from_seed(seed)
    asked = _retried(oracle, attempts)
    return cp.discover(asked, streams, checkpoint=log, paranoid=recheck, **options)


def draw_by(structure, oracle, count, seed, **request):
    """Draw sequences by a structure, which recognises its oracle first."""
    return structure.sample(oracle, count, cp.Streams.from_seed(seed), **request)


def sharded(oracle, batch_size):
    """Return an oracle with a replica, in this process; close it."""
    return ShardedOracle.copies_of(oracle, InProcess(), batch_size=batch_size)


def _retried(oracle, attempts):
    if attempts is None:
        return oracle
    return cp.RetryingOracle(oracle, attempts=attempts, backoff=0.0)
