"""``discover``: certified structure where rows are exact, strengths where they were learned."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.discovery.compressed import CompressedSettings, Findings, compressed_screen
from counterprobe.discovery.constraints import arbitrary_tokens
from counterprobe.discovery.soft import SoftFindings, SoftSettings, soft_screen
from counterprobe.discovery.structure import file
from counterprobe.discovery.structure.fields import no_terms
from counterprobe.discovery.structure.recognition import no_sample
from counterprobe.discovery.structure.soft import SOFT_KIND, SoftStructure
from counterprobe.discovery.structure.structure import READ_KINDS, Structure, refuse_empty
from counterprobe.discovery.structure.telling import Telling
from counterprobe.errors import Infeasible
from counterprobe.oracles import Oracle, as_oracle
from counterprobe.planning import Plan, make_plan, price_of_batches
from counterprobe.run.listening import Listener
from counterprobe.run.results import versions
from counterprobe.run.unmasking import Progress, Unmasking
from counterprobe.streams import Decisions, Streams

__all__ = ["Mode", "discover", "load_structure"]

Mode = Literal["auto", "exact", "soft"]

# Rows that are off by more than this, in total variation, explain nothing to rounding.
EXACT_ROWS = 1e-3
# A batch of probes must make plans this much cheaper to be followed by another.
WORTH_MORE = 0.1
# The plans that decide whether more probes are worth it: their number of batches, and of plans.
JUDGED_BATCHES = 8
JUDGED_PLANS = 4
# Nats that are not worth more probes.
CHEAP = 0.01
IN_VAIN = (
    "No position could be certified: these rows are not those of a few neighbours each. A screen "
    "that estimates strengths starts anew; what was spent stays on the account."
)


@overload
def discover(
    oracle: Oracle,
    streams: Streams | None = None,
    *,
    mode: Literal["exact"],
    given: ArrayLike | None = None,
    settings: CompressedSettings | None = None,
    fallback: bool = False,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> Structure: ...


@overload
def discover(
    oracle: Oracle,
    streams: Streams | None = None,
    *,
    mode: Literal["soft"],
    given: ArrayLike | None = None,
    settings: SoftSettings | None = None,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
    **soft: Any,
) -> SoftStructure: ...


@overload
def discover(
    oracle: Oracle,
    streams: Streams | None = None,
    *,
    mode: Literal["auto"] = ...,
    given: ArrayLike | None = None,
    settings: CompressedSettings | SoftSettings | None = None,
    fallback: bool = False,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
    **soft: Any,
) -> Structure | SoftStructure: ...


def discover(
    oracle: Oracle,
    streams: Streams | None = None,
    *,
    mode: Mode = "auto",
    given: ArrayLike | None = None,
    settings: CompressedSettings | SoftSettings | None = None,
    fallback: bool = False,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
    **soft: Any,
) -> Structure | SoftStructure:
    """Find which positions of an oracle depend on each other.

    Parameters
    ----------
    oracle : Oracle
        ``oracle.logged("found.log")`` writes every reply down, so that the same call, made again
        after an interruption, goes on where it was.
    streams : Streams, optional
        Only the decision seed matters; seed 0 by default.
    mode : {"auto", "exact", "soft"}
        ``exact``: neighbourhoods that explain rows to rounding, certified. ``soft``: strengths in
        nats with errors, for rows that a model has learned; it never fails. ``auto``: soft where
        the declared row error is large or soft settings are given, exact where its settings are;
        otherwise exact, and soft if that resolves nothing, with both charged.
    given : array_like of int, shape (N,), optional
        Context; the structure is that of the other positions.
    settings : CompressedSettings or SoftSettings, optional
        Of the mode.
    fallback : bool
        Exact mode: return a structure even if nothing was resolved.
    progress : callable, optional
        As in ``Unmasking``.
    listener : Listener, optional
        Told of everything as it happens, such as a ``trace.Recorder``.
    **soft
        Soft mode: settings by name, such as ``probes=128``. Without a number of ``probes`` or
        whole settings, more are submitted while they make plans cheaper, 512 at most.

    Examples
    --------
    >>> import counterprobe as cp
    >>> law = cp.families.path(length=300, target_seed=196)
    >>> structure = cp.discover(law.oracle())
    >>> len(structure.edges), len(structure.unresolved)
    (299, 0)
    >>> many = structure.sample(law.oracle(), 100, cp.Streams(1, 2))
    >>> many.sequences.shape, many.ledger.depth
    ((100, 300), 12)
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}; got {mode!r}")
    seeds = streams or Streams.from_seed(0)
    wants_soft = isinstance(settings, SoftSettings) or bool(soft)
    if mode == "exact" and wants_soft:
        raise ValueError("soft settings go with mode='soft'; leave them out, or change the mode")
    if mode == "soft" and (isinstance(settings, CompressedSettings) or fallback):
        raise ValueError("mode='soft' takes SoftSettings, and needs no fallback")
    oracle = as_oracle(oracle)
    about = {
        "mode": mode,
        "settings": settings,
        "soft": soft,
        "fallback": fallback,
        "decision_seed": seeds.decision_seed,
        "given": None if given is None else np.asarray(given),
        "recheck": oracle.info.recheck,
    }
    with oracle.running(about):
        return _discovered(
            oracle, seeds, mode, given, settings, fallback, progress, listener, soft
        )


def _discovered(
    oracle: Oracle,
    seeds: Streams,
    mode: Mode,
    given: ArrayLike | None,
    settings: CompressedSettings | SoftSettings | None,
    fallback: bool,
    progress: Callable[[Progress], None] | None,
    listener: Listener | None,
    soft: dict[str, Any],
) -> Structure | SoftStructure:
    """Find the structure; see :func:`discover`."""
    wants_soft = isinstance(settings, SoftSettings) or bool(soft)
    if mode == "auto" and isinstance(settings, CompressedSettings):
        mode = "exact"

    def new_run(hears: Listener | None) -> Unmasking:
        return Unmasking(oracle, given=given, progress=progress, listener=hears)

    asked = {"mode": mode, **(soft if settings is None else asdict(settings))}
    telling = Telling(listener, new_run, seeds, asked)
    run = telling.run
    if mode == "exact" or (mode == "auto" and not wants_soft and run.row_error <= EXACT_ROWS):
        assert not isinstance(settings, SoftSettings)
        chosen = settings or CompressedSettings()
        try:
            findings = compressed_screen(run, seeds.decisions, chosen)
        except Infeasible as outcome:
            telling.close("infeasible", str(outcome))
            raise
        resolved = findings.is_resolved[run.residual].any() or len(run.residual) < 2
        if mode == "exact" or resolved or fallback:
            if not fallback:
                _require_something(findings, telling)
            return _exact(telling, findings, chosen, seeds)
        telling.start_again(IN_VAIN)
    is_fixed = "probes" in soft or isinstance(settings, SoftSettings)
    return _soft(telling, _soft_settings(settings, soft), is_fixed, seeds)


def load_structure(path: str | os.PathLike[str]) -> Structure | SoftStructure:
    """Read a structure of either kind; raise ``StructureError`` if it is damaged."""
    kind, values = file.read(path, [*READ_KINDS, SOFT_KIND])
    return SoftStructure(**values) if kind is SOFT_KIND else Structure(**values)


# ----- Exact --------------------------------------------------------------------------------


def _require_something(findings: Findings, telling: Telling) -> None:
    """Refuse findings that certify nothing; whoever listens hears why."""
    try:
        refuse_empty(findings, telling.run.residual)
    except Infeasible as outcome:
        telling.close("infeasible", str(outcome))
        raise


def _exact(
    telling: Telling, findings: Findings, settings: CompressedSettings, seeds: Streams
) -> Structure:
    """Return what a compressed screen certified."""
    run = telling.run
    run.transcript.note("terminal", edges=findings.edges, is_resolved=findings.is_resolved)
    num_open = len(run.residual) - int(findings.is_resolved[run.residual].sum())
    reason = f"edges certified: {len(findings.edges)}; positions left unresolved: {num_open}"
    telling.close("discovered", reason, *([findings.reason] if findings.reason else []))
    sample = findings.sample or no_sample(run.length)
    return Structure(
        given=run.state,
        vocab_size=run.vocab_size,
        edges=findings.edges,
        is_resolved=findings.is_resolved,
        evidence=findings.evidence,
        misfit=findings.misfit,
        needed=findings.needed,
        reason=findings.reason,
        ledger=run.ledger,
        sample_states=sample.states,
        sample_index=sample.readouts.state_index,
        sample_position=sample.readouts.position,
        sample_rows=sample.rows,
        row_width=sample.width,
        row_error=run.row_error,
        precision=sample.precision,
        tolerance=findings.tolerance,
        about=_about(run, settings, seeds),
        **_terms(findings),
    )


def _about(
    run: Unmasking, settings: CompressedSettings | SoftSettings, seeds: Streams
) -> dict[str, Any]:
    content = run.oracle_content
    return {
        "oracle": run.oracle_name,
        **({} if content is None else {"oracle_content": content}),
        "settings": asdict(settings),
        "decision_seed": seeds.decision_seed,
        "versions": versions(),
        **({"rechecked": run.num_rechecked} if run.num_rechecked else {}),
    }


def _terms(findings: Findings) -> dict[str, NDArray[Any]]:
    """Return the fitted terms of a screen, or none."""
    terms = findings.terms
    if terms is None:
        return no_terms(len(findings.is_resolved), len(findings.edges))
    return {"unary": terms.unary, "tables": terms.tables, "is_tested": terms.is_complete}


# ----- Soft ---------------------------------------------------------------------------------


def _soft_settings(
    settings: CompressedSettings | SoftSettings | None, named: dict[str, Any]
) -> SoftSettings:
    """Return the settings of a soft screen, given whole or by name."""
    if isinstance(settings, SoftSettings):
        if named:
            raise ValueError(f"put {', '.join(sorted(named))} into the settings")
        return settings
    unknown = sorted(set(named) - set(SoftSettings.__slots__))
    if unknown:
        known = ", ".join(SoftSettings.__slots__)
        raise ValueError(f"soft settings are {known}; got {', '.join(unknown)}")
    for name, value in named.items():
        is_word = name == "estimator"
        if isinstance(value, str) != is_word:
            raise ValueError(f"{name} must be a {'word' if is_word else 'number'}, got {value!r}")
    return SoftSettings(**{"probes": 512, **named})


def _soft(
    telling: Telling, settings: SoftSettings, is_fixed: bool, seeds: Streams
) -> SoftStructure:
    """Run the soft screen and return what it found."""
    run = telling.run
    is_enough = None if is_fixed else _Judge(run, seeds.decisions)
    with arbitrary_tokens():
        found = soft_screen(run, seeds.decisions, settings, is_enough=is_enough)
    rate = f"at a false discovery rate of {found.false_discovery_rate:.3f}"
    telling.close("discovered", f"edges estimated {rate}: {len(found.edges)}")
    sample = found.sample or no_sample(run.length)
    i, j = np.nonzero(np.triu(found.strength, 1) > 0)
    return SoftStructure(
        given=run.state,
        vocab_size=run.vocab_size,
        edges=found.edges,
        pairs=np.stack([i, j], axis=1),
        pair_strength=found.strength[i, j],
        pair_strength_se=found.strength_se[i, j],
        moved=found.moved.copy(),
        most_moved=found.most_moved.copy(),
        explained=found.explained.copy(),
        false_discovery_rate=found.false_discovery_rate,
        noise_floor=found.noise_floor,
        num_probes=found.num_probes,
        ledger=telling.ledger,
        sample_states=sample.states,
        sample_index=sample.readouts.state_index,
        sample_position=sample.readouts.position,
        sample_rows=sample.rows,
        row_width=sample.width,
        row_error=run.row_error,
        precision=sample.precision,
        about=_about(run, settings, seeds),
    )


class _Judge:
    """Says whether more probes would make plans cheaper.

    Plans of earlier batches of probes are priced by the newest strengths, by which they were not
    chosen: a plan looks cheaper than it is by the strengths that it was searched with. When the
    last doubling of probes hardly made such plans cheaper, the next one will not either.
    """

    def __init__(self, run: Unmasking, decisions: Decisions) -> None:
        self._positions = run.residual
        self._decisions = decisions
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
        rng = self._decisions.generator("judged plan", found.num_probes)
        return [
            make_plan(found.strength, positions=self._positions, batches=count, rng=rng)
            for _ in range(JUDGED_PLANS)
        ]
