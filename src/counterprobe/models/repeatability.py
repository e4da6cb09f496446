"""How far a model's rows move when the same state is asked in other company.

A network in single or half precision rounds differently in a batch of another size, so one state
has slightly different rows each time. An oracle must be frozen, and probes compare rows: whatever
such rounding does is declared as the oracle's row error, so that it never becomes a vote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import array_api_compat
import numpy as np

from counterprobe.arrays import StateArray
from counterprobe.digests import digest_of
from counterprobe.errors import OracleError
from counterprobe.oracles import NUMERICAL_FLOOR, Oracle, Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.states import MASK

__all__ = ["Repeatability", "measure_repeatability", "oracle_measured_once"]

if TYPE_CHECKING:
    from counterprobe.models.registry import MaskedModel
    from counterprobe.models.template import Template

Ask = Callable[[StateArray, Readouts], Rows]

# The largest of a few dozen gaps is not the largest there is.
MARGIN = 4.0
# Rows that move this far are random, or mix the states of a batch: no rounding does that.
LARGEST = 0.2
# A network rounds in every layer, differently for every shape of its input: whatever was measured,
# rows may move by as many units in the last place.
ROUNDINGS = 128
NUM_STATES = 3


@dataclass(frozen=True, slots=True)
class Repeatability:
    """What was seen.

    Attributes
    ----------
    gap : float
        The largest total variation between rows of one state in different batches.
    row_error : float
        What to declare: the gap with a margin, and never less than the precision itself.
    num_states : int
        States evaluated to find out.
    """

    gap: float
    row_error: float
    num_states: int


def measure_repeatability(
    ask: Ask,
    given: StateArray,
    vocab_size: int,
    *,
    largest_batch: int,
    name: str,
) -> Repeatability:
    """Ask for a few states alone, together, and in a larger batch, and compare.

    Parameters
    ----------
    ask : callable
        Rows of states, as an oracle gives them.
    given : ndarray of int, shape (N,)
        The template's context; its masked positions are filled more and more.
    vocab_size : int
    largest_batch : int
        About as many states are asked at once, at most.
    name : str
        The oracle's name, for errors.
    """
    states = _some_states(given, vocab_size)
    readouts = Readouts.every_masked(states)
    together = ask(states, readouts)
    asked = len(states)
    gap = 0.0
    for k in range(len(states)):
        mine = np.flatnonzero(readouts.state_index == k)
        same = Readouts.same(1, readouts.position[mine])
        alone = ask(states[k : k + 1], same)
        gap = max(gap, _gap(together.take(mine), alone))
        # Some models compute only what is read.
        one = Readouts.same(1, readouts.position[mine[:1]])
        gap = max(gap, _gap(together.take(mine[:1]), ask(states[k : k + 1], one)))
    moved = _gap(alone, ask(states[-1:], same))
    asked += 2 * len(states) + 1
    if moved > LARGEST:
        raise OracleError(
            f"oracle {name!r} gave another row the second time (total variation {moved:.2g}): "
            "switch off dropout with model.eval(), and fix any other randomness"
        )
    copies = -(-largest_batch // len(states))
    if copies > 1:
        many = np.tile(states[::-1], (copies, 1))
        mine = np.flatnonzero(readouts.state_index == 0)
        # The first state stands last in every copy.
        last = Readouts.pairs(np.full(len(mine), len(many) - 1), readouts.position[mine])
        gap = max(gap, moved, _gap(together.take(mine), ask(many, last)))
        asked += len(many)
    if gap > LARGEST:
        raise OracleError(
            f"oracle {name!r}: rows move by {gap:.2g} in total variation when the same state is "
            "asked in another batch: the model must not mix the states of a batch (batch "
            "normalisation does; call model.eval())"
        )
    masses = together.masses
    epsilon = float(array_api_compat.array_namespace(masses).finfo(masses.dtype).eps)
    return Repeatability(gap, max(NUMERICAL_FLOOR, ROUNDINGS * epsilon, MARGIN * gap), asked)


# By network: which weights they were measured with, and row errors by the shape of the input.
_row_errors: WeakKeyDictionary[Any, tuple[Any, dict[Any, float]]] = WeakKeyDictionary()


def oracle_measured_once(
    model: MaskedModel, template: Template, options: dict[str, Any]
) -> Oracle:
    """Return the oracle of a template; its row error is measured once per network and shape.

    A network whose weights were written to, moved or cast since is measured again.

    Parameters
    ----------
    model : MaskedModel
    template : Template
    options : dict
        As for ``model.oracle``; nothing is measured where a ``row_error`` is among them.
    """
    from counterprobe.models.digests import weights_stamp  # torch, when it is needed

    network: Any = getattr(model, "decoder", model)
    network = getattr(network, "network", getattr(network, "model", None))
    stamp = weights_stamp(network)
    if "row_error" in options or stamp is None:
        return model.oracle(template, **options)
    places = template.coordinates
    shape = (
        type(model), network.training, len(template.frame), template.length, template.vocab_size,
        template.tied is None, None if places is None else digest_of(places),
        repr(sorted(options.items())),
    )  # fmt: skip
    if network not in _row_errors or _row_errors[network][0] != stamp:
        _row_errors[network] = stamp, {}
    known = _row_errors[network][1]
    if shape in known:
        return model.oracle(template, **options, row_error=known[shape])
    oracle = model.oracle(template, **options)
    known[shape] = oracle.row_error
    return oracle


def _some_states(given: StateArray, vocab_size: int) -> StateArray:
    """Return states with all, then fewer of the masked positions masked."""
    draw = np.random.default_rng(0)
    masked = np.flatnonzero(given == MASK)
    if len(masked) == 0:
        masked = np.arange(len(given))
    states = np.tile(given, (NUM_STATES, 1))
    for k in range(NUM_STATES):
        shown = len(masked) * k // NUM_STATES
        order = draw.permutation(masked)
        states[k, order[:shown]] = draw.integers(0, vocab_size, size=shown)
        states[k, order[shown:]] = MASK
    return states.astype(np.int32)


def _gap(one: Rows, other: Rows) -> float:
    return float(to_numpy(one.total_variation(other)).max(initial=0.0))
