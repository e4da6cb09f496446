"""The soft screen: which positions of a learned model depend on each other, and how strongly.

A learned model's rows agree with no law exactly, so nothing is certified here: every pair gets a
strength in nats with its error, and pairs are listed at a false discovery rate. All-mask rows are
read once. Then every probe masks a random share of the positions, shows at every other one of its
likeliest tokens, and reads all masked rows; ``regression.py`` says what moved them. Probes come in
batches that double the total until the caller has enough.

Below temperature 1 rows are all but decided, and the logs of what they rule out say nothing. There
the rows of temperature 1 are read, which come with them, and strengths are divided by the
temperature: on the models measured (docs/planning.md) that is near what batches break, and plans
searched so break less than those searched with the cold rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.discovery.compressed.keeping import ProbeSample
from counterprobe.discovery.soft.estimates import deal_halves, half_strengths
from counterprobe.discovery.soft.findings import (
    SoftBatch,
    SoftFindings,
    SoftSettings,
    nothing_to_screen,
)
from counterprobe.discovery.soft.movement import Movement, held_out_movement
from counterprobe.discovery.soft.readings import Coordinates, Readings, draw_levels, shown_tokens
from counterprobe.discovery.soft.regression import Pairs, regress
from counterprobe.errors import Interrupted
from counterprobe.oracles import Readouts
from counterprobe.planning import Halves, Plan, make_plan, price_of_batches
from counterprobe.rows import Rows
from counterprobe.run.events import Standing
from counterprobe.run.requests import Preprocess, Probe, Requests, Stream
from counterprobe.run.view import View
from counterprobe.states import MASK
from counterprobe.streams import Decisions
from counterprobe.tempered import TemperedRows

__all__ = ["EnoughForPlans", "SoftScreen", "soft_screen"]

# Numbers in the rows of one probe, about.
NUMBERS_AT_ONCE = 1 << 25
MOST_STATES_AT_ONCE = 256

# A batch of probes must make plans this much cheaper to be followed by another.
WORTH_MORE = 0.1
# The plans that decide whether more probes are worth it: their number of batches, and of plans.
JUDGED_BATCHES = 8
JUDGED_PLANS = 4
# Nats that are not worth more probes.
CHEAP = 0.01
IsEnough = Callable[[SoftFindings], bool]


def soft_screen(
    view: View,
    rng: Decisions,
    settings: SoftSettings,
    *,
    is_enough: IsEnough | None = None,
) -> Requests[SoftFindings]:
    """Estimate how strongly the residual positions depend on each other; nothing is committed.

    Parameters
    ----------
    view : View
        Of a run before its first commit; given context stays shown in every probe.
    rng : Decisions
    settings : SoftSettings
    is_enough : callable, optional
        Asked after each batch of probes whether its findings will do; by default all probes of
        the settings are spent.
    """
    if len(view.residual) < 2 or view.vocab_size == 1:
        return nothing_to_screen(view.length)
    rows: Rows = yield Preprocess()
    return (yield from SoftScreen(view, rng, settings, rows).discover(is_enough))


class SoftScreen:
    """One soft screen of a run: what it shows, what it has read, and what that says."""

    def __init__(self, view: View, rng: Decisions, settings: SoftSettings, rows: Rows) -> None:
        self.view = view
        self.rng = rng
        self.settings = settings
        self.residual = view.residual
        self.temperature = rows.temperature if isinstance(rows, TemperedRows) else 1.0
        self.rows = self._read(rows)
        self.sources = shown_tokens(self.rows, settings.shown, settings.floor)
        self.coordinates = Coordinates(self.rows, self.residual, view.length)
        self.kept = ProbeSample(view.length, self.residual, rows, rng("soft sample"))
        width = int(self.rows.masses.shape[1])
        at_once = NUMBERS_AT_ONCE // (width * len(self.residual))
        self.states_at_once = min(max(1, at_once), MOST_STATES_AT_ONCE)
        self.batches: list[SoftBatch] = []
        self._began = time.perf_counter()

    def discover(self, is_enough: IsEnough | None) -> Requests[SoftFindings]:
        """Probe until enough is known or everything is spent."""
        if not self.sources.varies.any():
            return nothing_to_screen(self.view.length)
        return (yield from self.estimate(is_enough))

    def estimate(self, is_enough: IsEnough | None) -> Requests[SoftFindings]:
        """Probe in batches, each doubling the total, in which all sources vary at once."""
        settings = self.settings
        readings = Readings(self.coordinates, self.residual, self.sources.num_levels)
        total = min(settings.first, settings.probes)
        while True:
            try:
                yield from self._submit(readings, total - readings.num_probes)
            except KeyboardInterrupt:
                self._cut_short(readings)
                raise
            is_last = total >= settings.probes
            if is_last or is_enough is not None:
                found = self._estimated(readings)
                if is_last or (is_enough is not None and is_enough(found)):
                    return replace(found, halves=self._halves(readings))
            total = min(2 * total, settings.probes)

    def _estimated(self, readings: Readings) -> SoftFindings:
        """Return what the batches so far say."""
        batch = readings.num_batches
        rng = self.rng("soft shuffles", batch)
        pairs = regress(readings, self.sources, self.settings, rng)
        rng = self.rng("soft held out", batch)
        movement = held_out_movement(readings, self.settings, rng)
        return self.findings(pairs, movement, readings.num_probes)

    def _cut_short(self, readings: Readings) -> None:
        """Raise what the batches that were read to their end say, if there are any."""
        readings.drop_last()
        if readings.num_probes:
            found = replace(self._estimated(readings), halves=self._halves(readings))
            said = f"interrupted: {found.num_probes:,} of {self.settings.probes:,} probes count"
            raise Interrupted(said, found) from None

    def _submit(self, readings: Readings, num_probes: int) -> Requests[None]:
        """Submit a batch of probes, one stage."""
        rng = self.rng("soft levels", readings.num_batches)
        levels, masked = draw_levels(self.sources, num_probes, self.settings.mask_rate, rng)
        states = self._states(levels)
        first = readings.open(levels, masked)
        self.kept.open(states, None)
        step = self.states_at_once

        def probes() -> Iterator[Probe]:
            for low in range(0, num_probes, step):
                part = states[low : low + step]
                readouts = Readouts.every_masked(part)
                yield Probe(part, readouts, label=(low, readouts))

        def consume(probe: Probe, rows: Rows) -> None:
            low, readouts = probe.label
            readings.take(first + low, readouts, self._read(rows))
            self.kept.take(low, readouts, rows)

        self._tell()
        yield Stream(probes(), consume, purpose="soft")

    def _tell(self) -> None:
        """Say how long the probes that are left would take at most, at the pace so far."""
        made, left = self.view.ledger.probes, None
        if made:
            pace = (time.perf_counter() - self._began) / made
            left = max(0, self.settings.probes - made) * pace
        self.view.stand(Standing("soft", None, left))

    def _read(self, rows: Rows) -> Rows:
        """Return the rows that are read: those of temperature 1 where the law is colder."""
        return rows.own if self.temperature < 1 else rows

    def _states(self, levels: IntArray) -> StateArray:
        """Return the states that show some levels, beside what is given."""
        tokens = np.concatenate(
            [self.sources.tokens, np.full((len(self.residual), 1), MASK)], axis=1
        )
        states = np.tile(self.view.state, (len(levels), 1))
        states[:, self.residual] = tokens[np.arange(len(self.residual)), levels]
        return states

    # ----- Findings ------------------------------------------------------------------------

    def findings(self, pairs: Pairs, movement: Movement, num_probes: int) -> SoftFindings:
        """Put together what was found so far."""
        scale = self._scale
        pairs = replace(
            pairs,
            strength=pairs.strength * scale,
            strength_se=pairs.strength_se * scale,
            noise_floor=pairs.noise_floor * scale,
        )
        edges = self._edges(pairs)
        total = float(pairs.strength.sum() / 2)
        self.batches.append(SoftBatch(num_probes, len(edges), pairs.noise_floor, total))
        strength = self._spread_out(pairs.strength)
        told = {"probes": num_probes, "edges": edges, "strength": strength[tuple(edges.T)]}
        self.view.note("soft", **told)
        by_position = np.zeros((3, self.view.length))
        moves = movement.moved * scale, movement.most_moved * scale
        by_position[:, self.residual] = *moves, movement.explained
        moved, most_moved, explained = by_position
        return SoftFindings(
            strength=strength,
            strength_se=self._spread_out(pairs.strength_se),
            edges=edges,
            false_discovery_rate=pairs.false_discovery_rate,
            moved=moved,
            most_moved=most_moved,
            explained=explained,
            noise_floor=pairs.noise_floor,
            num_probes=num_probes,
            sample=self.kept.sample(),
            batches=tuple(self.batches),
            temperature=self.temperature,
        )

    @property
    def _scale(self) -> float:
        """What strengths of the rows read are multiplied by."""
        return 1 / self.temperature if self.temperature < 1 else 1.0

    def _halves(self, readings: Readings) -> Halves | None:
        """Estimate all pairs by either half of the probes."""
        rng = self.rng("soft halves", readings.num_batches)
        is_first = deal_halves(readings, rng)
        if is_first is None:
            return None
        found = half_strengths(readings, self.sources, self.settings, is_first, self.view.length)
        scale = self._scale
        return replace(
            found,
            strength=found.strength * scale,
            variance=found.variance * scale**2,
            temperature=1 / scale,
        )

    def _spread_out(self, values: FloatArray) -> FloatArray:
        """Return values of pairs of residual positions as values of all pairs."""
        whole = np.zeros((self.view.length, self.view.length))
        whole[np.ix_(self.residual, self.residual)] = values
        return whole

    def _edges(self, pairs: Pairs) -> IntArray:
        """List the discoveries, strongest first."""
        i, j = np.nonzero(np.triu(pairs.is_edge, 1))
        by_strength = np.argsort(-pairs.strength[i, j], kind="stable")
        i, j = i[by_strength], j[by_strength]
        return np.stack([self.residual[i], self.residual[j]], axis=1)


# ----- When to stop --------------------------------------------------------------------------


class EnoughForPlans:
    """Says whether more probes would make plans cheaper.

    Plans of earlier batches of probes are priced by the newest strengths, by which they were not
    chosen: a plan looks cheaper than it is by the strengths that it was searched with. When the
    last doubling of probes hardly made such plans cheaper, the next one will not either.
    """

    def __init__(self, view: View, rng: Decisions) -> None:
        self._positions = view.residual
        self._rng = rng
        self._plans: list[list[Plan]] = []

    def __call__(self, found: SoftFindings) -> bool:
        """Return True when enough is known."""
        prices = [
            float(np.mean([price_of_batches(found.strength, plan.batches) for plan in plans]))
            for plans in self._plans
        ]
        self._plans.append(self._made(found))
        if prices and prices[-1] <= CHEAP:
            return True
        if len(prices) < 2:
            return False
        return prices[-2] - prices[-1] <= max(CHEAP, WORTH_MORE * prices[-2])

    def _made(self, found: SoftFindings) -> list[Plan]:
        count = min(JUDGED_BATCHES, max(1, len(self._positions) // 2))
        rng = self._rng("judged plan", found.num_probes)
        return [
            make_plan(found.strength, positions=self._positions, batches=count, rng=rng)
            for _ in range(JUDGED_PLANS)
        ]
