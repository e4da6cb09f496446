"""Other estimators of soft strengths, to compare with: single substitutions.

In one context, a state with some positions masked, every masked source shows each of its likeliest
tokens in turn, alone, and all other masked rows are read: the information between source and
readout follows at once, without a model of how effects add. It takes ``shown`` probes a source and
context, where a regression varies all sources in every probe; it is the yardstick for it. The one
context is everything masked, or several are partly revealed at random and averaged.

No order can be shuffled here. What chance reaches is read off the bulk of all pairs instead, an
empirical null (Efron, 2004): logs of strengths are taken as normal, with the centre and the lower
quartile of all pairs, most of which are unrelated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
from scipy import stats

from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.discovery import Structure
from counterprobe.discovery.discovering import soft_structure
from counterprobe.discovery.soft import SoftFindings, SoftSettings, soft_screen
from counterprobe.discovery.soft.movement import Movement
from counterprobe.discovery.soft.readings import Coordinates, Sources, shown_tokens
from counterprobe.discovery.soft.regression import NOISE_QUANTILE, Pairs, discoveries
from counterprobe.discovery.soft.screen import SoftScreen
from counterprobe.discovery.soft.selection import LEAST_MOVEMENT
from counterprobe.discovery.soft.strengths import divergence
from counterprobe.oracles import Oracle, Readouts
from counterprobe.rows import Rows
from counterprobe.run import Preprocess, Probe, Requests, Stream, View
from counterprobe.run.run import Run
from counterprobe.states import MASK
from counterprobe.streams import Decisions, Streams

__all__ = ["ESTIMATORS", "estimate", "find_by"]

ESTIMATORS = ("regression", "substitution", "contexts")

Watch = Callable[[StateArray, Readouts, Rows], None]
# Lower quartile of a standard normal variable, turned positive.
QUARTILE = 0.6745


@dataclass(frozen=True, slots=True)
class _Task:
    """Substitutions at sources that have equally many tokens to show, in one context."""

    positions: IntArray
    states: StateArray
    probability: FloatArray
    spread: FloatArray


def context_cost(num_masked: int, settings: SoftSettings, in_contexts: bool) -> int:
    """Return the probes that one context takes at most; a revealed one is itself read first."""
    return num_masked * settings.shown + in_contexts


def draw_contexts(
    state: StateArray,
    residual: IntArray,
    sources: Sources,
    count: int,
    num_masked: int,
    rng: np.random.Generator,
) -> StateArray:
    """Draw states that mask some residual positions and show a token at the others, (count, N)."""
    states = np.tile(state, (count, 1))
    for k in range(count):
        chosen = rng.permutation(len(residual))[num_masked:]
        ends = np.cumsum(sources.frequency[chosen], axis=1)
        level = (rng.random((len(chosen), 1)) > ends[:, :-1]).sum(axis=1)
        states[k, residual[chosen]] = sources.tokens[chosen, level]
    return states


class Substitutions:
    """What substitutions say about all pairs of positions, context by context.

    Parameters
    ----------
    view : View
    coordinates : Coordinates
    settings : SoftSettings
    states_at_once : int
        States of one probe.
    watch : callable
        Told of every reply: states, what was read from them, rows.
    """

    def __init__(
        self,
        view: View,
        coordinates: Coordinates,
        settings: SoftSettings,
        states_at_once: int,
        watch: Watch,
    ) -> None:
        self._view = view
        self._coordinates = coordinates
        self._settings = settings
        self._states_at_once = states_at_once
        self._watch = watch
        shape = (view.length, view.length)
        # Sums over contexts of a pair's strength, of its square, and of the ends' disagreement.
        self._sum = np.zeros(shape)
        self._squares = np.zeros(shape)
        self._apart = np.zeros(shape)
        self._count = np.zeros(shape, dtype=np.int64)
        self.num_probes = 0

    def read_contexts(self, states: StateArray) -> Requests[list[Rows]]:
        """Submit contexts and return the rows of what each masks."""
        replies: list[Rows] = []
        step = self._states_at_once

        def probes() -> Iterator[Probe]:
            for low in range(0, len(states), step):
                part = states[low : low + step]
                yield Probe(part, Readouts.every_masked(part))

        def consume(probe: Probe, rows: Rows) -> None:
            self._watch(probe.states, probe.readouts, rows)
            for k in range(len(probe.states)):
                replies.append(rows.take(np.flatnonzero(probe.readouts.state_index == k)))

        yield Stream(probes(), consume, purpose="contexts")
        self.num_probes += len(states)
        return replies

    def add(self, states: StateArray, rows: list[Rows]) -> Requests[None]:
        """Substitute at every masked position of some contexts, one stage.

        Parameters
        ----------
        states : ndarray of int, shape (count, N)
        rows : list of Rows
            What each context's masked positions have, in increasing order.
        """
        directed = np.zeros((len(states), self._view.length, self._view.length))

        def probes() -> Iterator[Probe]:
            for k, (state, known) in enumerate(zip(states, rows, strict=True)):
                for task in self._tasks(state, known):
                    yield Probe(task.states, Readouts.every_masked(task.states), (k, task))

        def consume(probe: Probe, replies: Rows) -> None:
            k, task = probe.label
            self._watch(probe.states, probe.readouts, replies)
            masses = self._coordinates.reduce(replies, probe.readouts.position)
            count, tokens = task.probability.shape
            masses = masses.reshape(count, tokens, -1, masses.shape[1])
            readouts = probe.readouts.position.reshape(count, tokens, -1)[:, 0]
            for s, source in enumerate(task.positions):
                tilted = masses[s].transpose(1, 0, 2)
                weight = np.broadcast_to(task.probability[s], tilted.shape[:2])
                directed[k, readouts[s], source] = task.spread[s] * divergence(tilted, weight)
            self.num_probes += len(probe.states)

        yield Stream(probes(), consume, purpose="substitute")
        for k, state in enumerate(states):
            self._account(state == MASK, directed[k])

    def _tasks(self, state: StateArray, rows: Rows) -> Iterator[_Task]:
        """List the substitutions of a context; positions with one token have none."""
        masked = np.flatnonzero(state == MASK)
        sources = shown_tokens(rows, self._settings.shown, self._settings.floor)
        num_tokens = (sources.probability > 0).sum(axis=1)
        for tokens in range(2, sources.tokens.shape[1] + 1):
            mine = np.flatnonzero(num_tokens == tokens)
            step = max(1, self._states_at_once // tokens)
            for low in range(0, len(mine), step):
                part = mine[low : low + step]
                states = np.tile(state, (len(part) * tokens, 1))
                where = np.repeat(masked[part], tokens)
                states[np.arange(len(states)), where] = sources.tokens[part, :tokens].ravel()
                probability = sources.probability[part, :tokens]
                yield _Task(masked[part], states, probability, sources.spread[part])

    def _account(self, masked: BoolArray, directed: FloatArray) -> None:
        both = masked[:, None] & masked[None, :]
        mean = (directed + directed.T) / 2
        self._sum += np.where(both, mean, 0.0)
        self._squares += np.where(both, mean**2, 0.0)
        self._apart += np.where(both, np.abs(directed - directed.T) / 2, 0.0)
        self._count += both

    def pairs(self, residual: IntArray) -> Pairs:
        """Return the estimates of all pairs of residual positions.

        The error of a pair is that of the mean over its contexts; with one context, half of what
        its two ends disagree by. A pair that no context masked together is put at zero, with the
        spread of all others as its error.
        """
        inside = np.ix_(residual, residual)
        count = self._count[inside]
        times = np.maximum(count, 1)
        strength = self._sum[inside] / times
        # Movement that is rounding is no strength.
        strength = np.where(strength > LEAST_MOVEMENT, strength, 0.0)
        np.fill_diagonal(strength, 0.0)
        variance = np.maximum(self._squares[inside] / times - strength**2, 0.0)
        error = np.where(
            count > 1,
            np.sqrt(variance / np.maximum(count - 1, 1)),
            self._apart[inside] / times,
        )
        upper = np.triu_indices(len(residual), 1)
        measured = count[upper] > 0
        if measured.any():
            error = np.where(count > 0, error, strength[upper][measured].std())
        np.fill_diagonal(error, 0.0)
        chance, floor = _bulk_chances(strength[upper], measured)
        is_found, rate = discoveries(chance, self._settings.false_discovery_rate)
        is_edge = np.zeros(strength.shape, dtype=np.bool_)
        is_edge[upper] = is_found
        return Pairs(strength, error, is_edge | is_edge.T, rate, floor)


def _bulk_chances(strength: FloatArray, measured: BoolArray) -> tuple[FloatArray, float]:
    """Return the chance that an unrelated pair is as strong, and the floor that few such pass."""
    moved = measured & (strength > 0)
    chance = np.ones(len(strength))
    if not moved.any():
        return chance, 0.0
    logs = np.log(strength[moved])
    low, centre = np.quantile(logs, [0.25, 0.5])
    # Pairs that did not move at all are unrelated too, below every quantile of those that did.
    share = float(moved.sum() / max(1, int(measured.sum())))
    if share < 0.5:
        chance[moved] = 0.0
        return chance, 0.0
    scale = max((centre - low) / QUARTILE, 1e-6)
    chance[moved] = stats.norm.sf((logs - centre) / scale)
    return chance, float(np.exp(centre + stats.norm.ppf(NOISE_QUANTILE) * scale))


# ----- Screens ------------------------------------------------------------------------------


class OneAtATime(SoftScreen):
    """A screen that varies one source at a time.

    Parameters
    ----------
    in_contexts : bool
        In partly revealed contexts, batches of which double the total; otherwise with everything
        else masked.
    """

    def __init__(
        self,
        view: View,
        rng: Decisions,
        settings: SoftSettings,
        rows: Rows,
        in_contexts: bool,
    ) -> None:
        super().__init__(view, rng, settings, rows)
        self.in_contexts = in_contexts

    def estimate(self, is_enough: Callable[[SoftFindings], bool] | None) -> Requests[SoftFindings]:
        """Substitute in one context, or in as many as the probes pay for."""
        settings, size = self.settings, len(self.residual)
        substitutions = Substitutions(
            self.view, self.coordinates, settings, self.states_at_once, self._watch
        )
        num_masked = max(2, round(settings.mask_rate * size)) if self.in_contexts else size
        cost = context_cost(num_masked, settings, self.in_contexts)
        most = settings.probes // cost
        if most < 1:
            raise ValueError(f"probes must be at least {cost} for this, got {settings.probes}")
        if not self.in_contexts:
            yield from substitutions.add(self.view.state[None, :], [self.rows])
            return self._found(substitutions)
        total = done = 0
        while True:
            total = min(max(1, settings.first // cost, 2 * total), most)
            rng = self.rng("soft contexts", len(self.batches))
            states = draw_contexts(
                self.view.state, self.residual, self.sources, total - done, num_masked, rng
            )
            rows = yield from substitutions.read_contexts(states)
            yield from substitutions.add(states, rows)
            done = total
            found = self._found(substitutions)
            if done == most or (is_enough is not None and is_enough(found)):
                return found

    def _found(self, substitutions: Substitutions) -> SoftFindings:
        unmeasured = Movement.unmeasured(len(self.residual))
        return self.findings(
            substitutions.pairs(self.residual), unmeasured, substitutions.num_probes
        )

    def _watch(self, states: StateArray, readouts: Readouts, rows: Rows) -> None:
        self.kept.open(states, None)
        self.kept.take(0, readouts, rows)


def estimate(
    run: Run, decisions: Decisions, settings: SoftSettings, estimator: str = "regression"
) -> SoftFindings:
    """Screen a run by one of ``ESTIMATORS``."""
    if estimator == "regression":
        return run.call(soft_screen, decisions, settings)
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}")
    return run.call(_one_at_a_time, decisions, settings, estimator == "contexts")


def _one_at_a_time(
    view: View, rng: Decisions, settings: SoftSettings, in_contexts: bool
) -> Requests[SoftFindings]:
    rows: Rows = yield Preprocess()
    return (yield from OneAtATime(view, rng, settings, rows, in_contexts).discover(None))


def find_by(oracle: Oracle, estimator: str, probes: int, seed: int = 0) -> Structure:
    """Return the structure that one estimator finds."""
    run, settings = Run(oracle), SoftSettings(probes=probes)
    found = estimate(run, Streams.from_seed(seed).decisions, settings, estimator)
    about = {"oracle": run.oracle_name, "settings": {**asdict(settings), "estimator": estimator}}
    return soft_structure(run, found, run.ledger, about)
