"""The program ``counterprobe``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from counterprobe.cli import output
from counterprobe.cli.advise import advise
from counterprobe.cli.compare import compare
from counterprobe.cli.compare_models import compare_models
from counterprobe.cli.demo import demo
from counterprobe.cli.dependence import dependence
from counterprobe.cli.discover import discover
from counterprobe.cli.infill import infill
from counterprobe.cli.lists import models, samplers
from counterprobe.cli.plan import plan
from counterprobe.cli.reference import reference
from counterprobe.cli.reproduce import reproduce
from counterprobe.cli.sample import sample
from counterprobe.cli.score import score
from counterprobe.cli.study import study
from counterprobe.cli.trace import trace
from counterprobe.cli.verify import verify
from counterprobe.version import __version__

__all__ = ["app", "main"]

app = typer.Typer(
    name="counterprobe",
    help=(
        "Parallel unmasking: whole sequences from a masked model with few evaluations. "
        "Exit codes: 0 done, 1 failed, 2 bad input, 3 infeasible, incomplete or a guarantee not "
        "met, 130 interrupted."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"counterprobe {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


for one in (
    sample, infill, score, discover, advise, models, compare, compare_models, reproduce, reference,
    dependence, samplers, trace, plan, verify, demo,
):  # fmt: skip
    app.command()(one)
app.add_typer(study, name="study")


def main() -> None:
    """Run the command line; a reader that goes away, as in ``| head``, is no failure."""
    code: int | str | None = output.DONE
    try:
        app()
    except SystemExit as ended:
        code = ended.code
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        output.silence_output()
    sys.exit(code)
