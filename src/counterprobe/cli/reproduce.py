"""``counterprobe reproduce``: make a result again and say whether it came back the same."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable
from typing import Annotated, Any

import typer

from counterprobe.cli import options, output
from counterprobe.cli.compare import compare
from counterprobe.cli.compare_models import compare_models
from counterprobe.cli.dependence import dependence
from counterprobe.cli.discover import discover
from counterprobe.cli.infill import infill
from counterprobe.cli.reference import reference
from counterprobe.cli.sample import sample
from counterprobe.cli.score import score
from counterprobe.cli.verify import verify
from counterprobe.files import read_text
from counterprobe.plain import differences

__all__ = ["read_result", "reproduce"]

COMMANDS: dict[str, Callable[..., None]] = {
    "sample": sample,
    "compare": compare,
    "compare-models": compare_models,
    "infill": infill,
    "score": score,
    "discover": discover,
    "dependence": dependence,
    "reference": reference,
    "verify": verify,
}
# What a result says about the machine and the moment, not about the run: a row error that is known
# already is not measured again.
APART = {"seconds", "versions", "made_by", "faults", "measuring", "tokens_per_forward"}
# Sums in another order round differently; a model's rows also with the batch they are part of.
TOLERANCE, MODEL_TOLERANCE = 1e-9, 1e-4
# Differences that are named one by one.
SHOWN = 20


@output.command
def reproduce(
    result: Annotated[
        str, typer.Argument(metavar="RESULT.json", help="What a command wrote with --json.")
    ],
    json: options.JsonFile = None,
) -> None:
    """Make a result again by the options it was made with, and say whether it came back the same.

    Everything is compared but wall time, work saved by a cache, and versions; versions that
    differ are named, since they may be the reason. Files that were read must still be there. Exit
    code 1 if anything came back different.

    For example:

    counterprobe sample --n 256 --sampler punt --json run.json

    counterprobe reproduce run.json
    """
    output.check_writable(json)
    before = read_result(result)
    made = before["made_by"]
    again = output.result_of(COMMANDS[made["command"]], made["options"])
    is_model = made["options"].get("model") is not None
    changed = dict(differences(before, again, MODEL_TOLERANCE if is_model else TOLERANCE, APART))
    now = again["made_by"]["versions"]
    versions = {
        name: (str(then), now.get(name, "none"))
        for name, then in made["versions"].items()
        if then != now.get(name)
    }
    console = output.console_for(json)
    console.print(f"{made['command']}: {'the same' if not changed else 'DIFFERENT'}")
    for name, (then, value) in [*changed.items()][:SHOWN]:
        console.print(f"    {name}: {then!r} before, {value!r} now", soft_wrap=True)
    if len(changed) > SHOWN:
        console.print(f"    ... and {len(changed) - SHOWN} more")
    for name, (then, value) in versions.items():
        console.print(f"    version of {name}: {then} before, {value} now")
    output.write_json(
        json,
        {
            "command": made["command"],
            "same": not changed,
            "differences": changed,
            "versions": versions,
        },
    )
    if changed:
        output.complain(f"{result} did not come back the same")
        raise typer.Exit(output.FAILED)


def read_result(file: str) -> dict[str, Any]:
    """Read a result that can be made again; refuse other files and unknown options."""
    try:
        content = json_module.loads(read_text(file))
    except (json_module.JSONDecodeError, RecursionError) as problem:
        raise ValueError(f"{file} is not JSON: {problem}") from None
    made = content.get("made_by") if isinstance(content, dict) else None
    if not isinstance(made, dict) or made.get("command") not in [*COMMANDS]:
        raise ValueError(
            f"{file} is not a result that says what made it: --json of {', '.join(COMMANDS)}"
        )
    options, versions = made.get("options"), made.get("versions")
    if not isinstance(options, dict) or not isinstance(versions, dict):
        raise ValueError(f"{file} is damaged: its options or versions are missing")
    output.check_options(COMMANDS[made["command"]], options, file)
    assert isinstance(content, dict)
    return content
