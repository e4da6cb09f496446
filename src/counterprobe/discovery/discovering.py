"""``discover``: certified structure where rows are exact, strengths where they were learned."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterprobe.discovery.compressed import CompressedSettings, Findings, compressed_screen
from counterprobe.discovery.compressed.findings import Sample, arbitrary_tokens, refuse_empty
from counterprobe.discovery.running import DiscoveryRuns
from counterprobe.discovery.soft import SoftFindings, SoftSettings, soft_screen
from counterprobe.discovery.soft.screen import EnoughForPlans
from counterprobe.discovery.structure import (
    Certificate,
    Strengths,
    Structure,
    halves_as_arrays,
    no_terms,
)
from counterprobe.errors import Infeasible, Interrupted
from counterprobe.oracles import Oracle, as_oracle
from counterprobe.planning.free import nearness
from counterprobe.run.events import Listener, OnEvent
from counterprobe.run.ledger import Ledger
from counterprobe.run.run import Run
from counterprobe.streams import Streams, versions

__all__ = ["Mode", "discover", "soft_structure"]

Mode = Literal["auto", "exact", "soft"]

# Rows that are off by more than this, in total variation, explain nothing to rounding.
EXACT_ROWS = 1e-3
IN_VAIN = (
    "No position could be certified: these rows are not those of a few neighbours each. A screen "
    "that estimates strengths starts anew; what was spent stays on the account."
)


def discover(
    oracle: Oracle,
    streams: Streams | None = None,
    *,
    mode: Mode = "auto",
    given: ArrayLike | None = None,
    settings: CompressedSettings | SoftSettings | None = None,
    fallback: bool = False,
    on_event: OnEvent | None = None,
    **soft: Any,
) -> Structure:
    """Find which positions of an oracle depend on each other.

    Parameters
    ----------
    oracle : Oracle
        ``oracle.cached("replies.sqlite")`` stores every reply, so that the same call, made again
        after an interruption, resumes where it was.
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
    on_event : callable, optional
        Told of ``run.Progress``, and of everything if it follows a sequence, such as a
        ``trace.Recorder``.
    **soft
        Soft mode: settings by name, such as ``probes=128``. Without a number of ``probes`` or
        whole settings, more are submitted while they make plans cheaper, 512 at most.

    Raises
    ------
    Interrupted
        Ctrl-C; a ``KeyboardInterrupt`` whose ``found`` is the structure so far: strengths by the
        probes that were read, or edges of which none is certified.

    Examples
    --------
    >>> import counterprobe as cp
    >>> law = cp.families.path(length=300, target_seed=196)
    >>> structure = cp.discover(law.oracle())
    >>> len(structure.edges), len(structure.unresolved)
    (299, 0)
    >>> many = cp.sample(law.oracle(), structure, 100, seed=cp.Streams(1, 2))
    >>> many.sequences.shape, many.ledger.stages
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
    if mode == "auto" and isinstance(settings, CompressedSettings):
        mode = "exact"
    oracle = as_oracle(oracle)
    said = {"mode": mode, **(soft if settings is None else asdict(settings))}

    def new_run(hears: Listener) -> Run:
        return Run(oracle, given=given, on_event=hears)

    runs = DiscoveryRuns(on_event, new_run, seeds, said)
    try:
        return _in_space(_discovered(runs, seeds, mode, settings, fallback, soft), oracle)
    except Interrupted as stop:
        found = _cut_short(runs, stop.found, settings, soft, seeds)
        raise Interrupted(str(stop), _in_space(found, oracle)) from None


def _in_space(structure: Structure, oracle: Oracle) -> Structure:
    """Add to strengths what is near to what, where the oracle knows distances."""
    distances = None if structure.strengths is None else oracle.distances
    if distances is None:
        return structure
    near = nearness(distances, structure.residual).astype(np.float32)
    return replace(structure, nearness=near)


def _discovered(
    runs: DiscoveryRuns,
    seeds: Streams,
    mode: Mode,
    settings: CompressedSettings | SoftSettings | None,
    fallback: bool,
    soft: dict[str, Any],
) -> Structure:
    """Find the structure; see :func:`discover`."""
    wants_soft = isinstance(settings, SoftSettings) or bool(soft)
    run = runs.run
    if mode == "exact" or (mode == "auto" and not wants_soft and run.row_error <= EXACT_ROWS):
        assert not isinstance(settings, SoftSettings)
        chosen = settings or CompressedSettings()
        try:
            findings = run.call(compressed_screen, seeds.decisions, chosen)
        except Infeasible as outcome:
            runs.close("infeasible", str(outcome))
            raise
        resolved = findings.is_resolved[run.residual].any() or len(run.residual) < 2
        if mode == "exact" or resolved or fallback:
            if not fallback:
                _require_something(findings, runs)
            return _exact(runs, findings, chosen, seeds)
        runs.start_again(IN_VAIN)
    is_fixed = "probes" in soft or isinstance(settings, SoftSettings)
    return _soft(runs, _soft_settings(settings, soft), is_fixed, seeds)


# ----- Exact --------------------------------------------------------------------------------


def _require_something(findings: Findings, runs: DiscoveryRuns) -> None:
    """Refuse findings that certify nothing; whoever listens hears why."""
    try:
        refuse_empty(findings, runs.run.residual)
    except Infeasible as outcome:
        runs.close("infeasible", str(outcome))
        raise


def _exact(
    runs: DiscoveryRuns, findings: Findings, settings: CompressedSettings, seeds: Streams
) -> Structure:
    """Return what a compressed screen certified, and say that it is over."""
    run = runs.run
    run.note("terminal", edges=findings.edges, is_resolved=findings.is_resolved)
    num_open = len(run.residual) - int(findings.is_resolved[run.residual].sum())
    reason = f"edges certified: {len(findings.edges)}; positions left unresolved: {num_open}"
    runs.close("discovered", reason, *filter(None, [findings.reason, findings.handover]))
    return _structure(run, findings, settings, seeds)


def _cut_short(
    runs: DiscoveryRuns,
    found: object,
    settings: CompressedSettings | SoftSettings | None,
    soft: dict[str, Any],
    seeds: Streams,
) -> Structure:
    """Return what an interrupted screen had found, and say that it is over."""
    run = runs.run
    if isinstance(found, SoftFindings):
        about = _about(run, _soft_settings(settings, soft), seeds)
        runs.close("interrupted", f"edges estimated: {len(found.edges)}")
        return soft_structure(run, found, runs.ledger, about)
    assert isinstance(found, Findings)
    assert not isinstance(settings, SoftSettings)
    runs.close("interrupted", found.reason)
    return _structure(run, found, settings or CompressedSettings(), seeds)


def _structure(
    run: Run, findings: Findings, settings: CompressedSettings, seeds: Streams
) -> Structure:
    """Return what a compressed screen found, as a structure."""
    certificate = Certificate(
        is_resolved=findings.is_resolved,
        evidence=findings.evidence,
        misfit=findings.misfit,
        needed=findings.needed,
        reason=findings.reason,
        tolerance=findings.tolerance,
        **_terms(findings),
    )
    return Structure(
        **_found(run, findings),
        ledger=run.ledger,
        about={**_about(run, settings, seeds), **findings.found_by},
        certificate=certificate,
    )


def _found(run: Run, found: Findings | SoftFindings) -> dict[str, Any]:
    """Return the fields of every structure: its context, its edges and the stored replies."""
    sample = found.sample or Sample.empty(run.length)
    return {
        "given": run.state,
        "vocab_size": run.vocab_size,
        "edges": found.edges,
        "sample_states": sample.states,
        "sample_index": sample.readouts.state_index,
        "sample_position": sample.readouts.position,
        "sample_rows": sample.rows,
        "row_width": sample.width,
        "row_error": run.row_error,
        "precision": sample.precision,
    }


def _about(
    run: Run, settings: CompressedSettings | SoftSettings, seeds: Streams
) -> dict[str, Any]:
    content = run.oracle.digest
    return {
        "oracle": run.oracle_name,
        **({} if content is None else {"oracle_content": content}),
        "settings": asdict(settings),
        "decision_seed": seeds.decision_seed,
        "versions": versions(),
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
        if isinstance(value, str):
            raise ValueError(f"{name} must be a number, got {value!r}")
    return SoftSettings(**{"probes": 512, **named})


def _soft(
    runs: DiscoveryRuns, settings: SoftSettings, is_fixed: bool, seeds: Streams
) -> Structure:
    """Run the soft screen and return what it found."""
    run = runs.run
    is_enough = None if is_fixed else EnoughForPlans(run, seeds.decisions)
    with arbitrary_tokens():
        found = run.call(soft_screen, seeds.decisions, settings, is_enough=is_enough)
    rate = f"at a false discovery rate of {found.false_discovery_rate:.3f}"
    runs.close("discovered", f"edges estimated {rate}: {len(found.edges)}")
    return soft_structure(run, found, runs.ledger, _about(run, settings, seeds))


def soft_structure(
    run: Run, found: SoftFindings, ledger: Ledger, about: dict[str, Any]
) -> Structure:
    """Return what a soft screen of a run found, as a structure.

    Parameters
    ----------
    run : Run
    found : SoftFindings
    ledger : Ledger
        What finding it cost.
    about : dict
        Oracle name, settings, seeds and versions.
    """
    i, j = np.nonzero(np.triu(found.strength, 1) > 0)
    if found.temperature != 1:
        about = {**about, "temperature": found.temperature}
    strengths = Strengths(
        pairs=np.stack([i, j], axis=1),
        nats=found.strength[i, j],
        nats_se=found.strength_se[i, j],
        moved=found.moved.copy(),
        most_moved=found.most_moved.copy(),
        explained=found.explained.copy(),
        false_discovery_rate=found.false_discovery_rate,
        noise_floor=found.noise_floor,
        num_probes=found.num_probes,
        **halves_as_arrays(found.halves),
    )
    return Structure(**_found(run, found), ledger=ledger, about=about, strengths=strengths)
