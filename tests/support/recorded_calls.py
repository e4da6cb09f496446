"""How the recorded runs ask for logs, repeats, second replies, shards and draws from a structure.

Everything else that they call is plain. Where such a call changes its shape, this file follows and
the record stays.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import counterprobe as cp
from counterprobe.infilling.task import make_task

# What a text is joined to its model with; the rest of a request is for drawing.
OF_TASK = ("allowed", "temperature", "model_options", "oracle_options")


def draw(oracle, rule, count, *, log=None, attempts=None, recheck=0.0, **options):
    """Draw sequences; log replies in a file, repeat calls that fail, recheck a share of states."""
    return cp.sample(
        around(oracle, log, attempts, recheck), rule, count, progress=False, **options
    )


def fill_in(model, text, *, log=None, attempts=None, recheck=0.0, **options):
    """Fill in the masks of a text."""
    task = make_task(model, text, **{k: options.pop(k) for k in OF_TASK if k in options})
    task = replace(task, oracle=around(task.oracle, log, attempts, recheck))
    return cp.infill(task, progress=False, **options)


def find(oracle, seed, *, log=None, attempts=None, recheck=0.0, **options):
    """Discover the structure of an oracle."""
    streams = cp.Streams.from_seed(seed)
    return cp.discover(around(oracle, log, attempts, recheck), streams, **options)


def around(oracle, log, attempts, recheck):
    """Put around an oracle what is asked for."""
    oracle = cp.oracles.as_oracle(oracle)
    if attempts is not None:
        oracle = oracle.retrying(attempts, backoff=0.0)
    if recheck:
        oracle = oracle.rechecking(recheck)
    return oracle if log is None else oracle.cached(log)


def draw_by(structure, oracle, count, seed, **request):
    """Draw sequences by a structure, which recognises its oracle first."""
    streams = cp.Streams.from_seed(seed)
    return cp.sample(oracle, structure, count, seed=streams, progress=False, **request)


@contextmanager
def sharded(oracle, piece):
    """Give an oracle that is asked in another thread: the very oracle, which counts its calls."""
    _asked[id(oracle)] = oracle
    with ThreadPoolExecutor(1) as executor:
        yield oracle.sharded(executor, build=partial(_asked_by, id(oracle)), piece=piece)
    del _asked[id(oracle)]


def _asked_by(key):
    return _asked[key]


_asked = {}
