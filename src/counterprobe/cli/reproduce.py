"""``counterprobe reproduce``: make a recorded run again and say whether it came back the same."""

from __future__ import annotations

import json as json_module
import math
from dataclasses import fields
from types import NoneType
from typing import Annotated, Any

import typer

from counterprobe.cli import output
from counterprobe.cli.records import run_record
from counterprobe.cli.targets import Target
from counterprobe.evaluation import run_trial
from counterprobe.evaluation.batch_kl import DEFAULT_DRAWS
from counterprobe.files import read_text
from counterprobe.run.results import versions
from counterprobe.samplers import build_sampler
from counterprobe.states import fingerprint
from counterprobe.streams import Streams

__all__ = ["differences", "reproduce"]

# What a record says about the machine and the moment, not about the run.
APART = {"seconds", "versions", "against", "tokens", "target"}
# What measures the run: sums in another order may round differently.
MEASURED = {"batch_kl", "batch_kl_se"}
TOLERANCE = 1e-9
NEEDED = ("sampler", "settings", "n", "decision_seed", "commit_seed")
# What a record may hold that a run is made of.
KINDS: dict[str, Any] = {
    "sampler": str,
    "settings": dict,
    "n": int,
    "seed": int,
    "target_seed": int,
    "target": dict,
    "family": str,
    "draws": (int, NoneType),
    "temperature": (int, float),
    "tokens": (list, NoneType),
    "versions": dict,
    "against": dict,
}


@output.friendly
def reproduce(
    result: Annotated[
        str,
        typer.Argument(metavar="RESULT.json", help="What sample --json or compare --json wrote."),
    ],
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the outcome as JSON ('-': print it).")
    ] = None,
) -> None:
    """Make every run of a result again, and say whether it came back the same.

    Tokens, ledger, rights, stop and batch KL are compared; wall time is not. Versions that differ
    are named, since they may be the reason. Exit code 1 if anything came back different.

    For example:

    counterprobe sample --n 256 --sampler punt --json run.json

    counterprobe reproduce run.json
    """
    output.check_writable(json)
    console = output.console_for(json)
    outcomes = []
    for record in _records(result):
        again = _run_again(record)
        changed = differences(record, again)
        label = f"{record['sampler']} on {again['family']}, N = {again['n']:,}"
        outcomes.append(
            {
                "sampler": record["sampler"],
                "same": not changed,
                "differences": changed,
                "versions": _version_changes(record),
            }
        )
        console.print(f"{label}: {'the same' if not changed else 'DIFFERENT'}")
        for name, (before, now) in changed.items():
            console.print(f"    {name}: {before!r} before, {now!r} now", soft_wrap=True)
        for name, (before, now) in _version_changes(record).items():
            console.print(f"    version of {name}: {before} before, {now} now")
    same = all(outcome["same"] for outcome in outcomes)
    output.write_json(json, {"same": same, "runs": outcomes})
    if not same:
        output.complain(f"{result} did not come back the same")
        raise typer.Exit(output.FAILED)


def _records(file: str) -> list[dict[str, Any]]:
    """Read the recorded runs of a file."""
    try:
        content = json_module.loads(read_text(file))
    except (json_module.JSONDecodeError, RecursionError) as problem:
        raise ValueError(f"{file} is not JSON: {problem}") from None
    foreign = f"{file} is not a result of 'sample --json' or 'compare --json'"
    found = content.get("records", [content]) if isinstance(content, dict) else None
    records = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    records += [one["against"] for one in records if isinstance(one.get("against"), dict)]
    if not records or len(records) < len(found or ()):
        raise ValueError(foreign)
    missing = [name for name in NEEDED if any(name not in record for record in records)]
    if missing:
        raise ValueError(f"{foreign}: it lacks {', '.join(missing)}")
    for record in records:
        _check_record(record, file)
    return records


def _check_record(record: dict[str, Any], file: str) -> None:
    """Refuse a run that no record describes; what else is wrong with it fails when it is made."""
    for name, kinds in KINDS.items():
        if name in record and not isinstance(record[name], kinds):
            raise ValueError(f"{file} is damaged: {name} cannot be {record[name]!r:.40}")
    target = record.get("target", {})
    unknown = sorted(set(target) - {field.name for field in fields(Target)})
    if unknown:
        raise ValueError(f"{file} is damaged: a target has no {unknown[0]!r:.40}")
    if "target" not in record and not {"family", "target_seed"} <= set(record):
        raise ValueError(f"{file} is damaged: it does not say which target a run was on")


def _run_again(record: dict[str, Any]) -> dict[str, Any]:
    target = Target.from_record(record)
    law = target.build()
    sampler = build_sampler(record["sampler"], record["settings"])
    draws = record.get("draws", DEFAULT_DRAWS if record.get("batch_kl") is not None else None)
    with output.run_progress(sampler.name) as progress:
        trial = run_trial(
            law,
            sampler,
            Streams(record["decision_seed"], record["commit_seed"]),
            draws=draws,
            temperature=record.get("temperature", 1.0),
            progress=progress,
            oracle=law.oracle().rechecking(record.get("paranoid", 0.0)),
        )
    again = run_record(target, law, sampler, record.get("seed", 0), trial)
    again["tokens"] = None if trial.result.tokens is None else trial.result.tokens.tolist()
    return again


def differences(record: dict[str, Any], again: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what a rerun has otherwise than its record: name, then both values.

    Only what the record has is compared, so that records of earlier versions can be checked.
    """
    plain: dict[str, Any] = output.plain(again)
    changed = {}
    for name, before in record.items():
        if name in APART or name not in plain:
            continue
        now = plain[name]
        close = (
            name in MEASURED
            and isinstance(before, (int, float))
            and isinstance(now, (int, float))
            and math.isclose(before, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        )
        if name == "tokens_fingerprint" and before == _earlier_fingerprint(plain["tokens"]):
            continue
        if before != now and not close:
            changed[name] = (before, now)
    if record.get("tokens") is not None and record["tokens"] != plain["tokens"]:
        count = sum(a != b for a, b in zip(record["tokens"], plain["tokens"] or [], strict=False))
        changed["tokens"] = ("as recorded", f"{count} of {len(record['tokens'])} differ")
    return changed


def _earlier_fingerprint(tokens: list[int] | None) -> str | None:
    """Return the fingerprint that records had before every file had the same digest."""
    return None if tokens is None else f"{int(fingerprint(tokens)[0]):016x}"


def _version_changes(record: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the versions that are not what they were."""
    now = versions()
    return {
        name: (str(before), now.get(name, "none"))
        for name, before in record.get("versions", {}).items()
        if before != now.get(name)
    }
