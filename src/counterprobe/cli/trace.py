"""``counterprobe trace``: what a run did, in a summary, as a page, or thinner."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from counterprobe.cli import options, output
from counterprobe.trace import Trace, load_trace, summary, thin, write_page, write_trace
from counterprobe.trace.document import kind_of
from counterprobe.trace.examples import EXAMPLES, load_example

__all__ = ["trace"]

# Letters of a file's text that are printed.
MOST_LETTERS = 200


@output.command
def trace(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE.json", help="What 'sample --trace FILE.json' wrote."),
    ] = None,
    html: Annotated[
        str | None,
        options.in_output(metavar="FILE", help="Write a page that shows the run (.html)."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show two runs side by side.")
    ] = False,
    example: Annotated[
        str | None,
        typer.Option(help=f"Take a shipped trace in place of a file: {', '.join(EXAMPLES)}."),
    ] = None,
    thin_to: Annotated[
        int | None,
        typer.Option(
            "--thin",
            metavar="BYTES",
            help="Leave details out until the trace has at most so many bytes.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        options.in_output(metavar="FILE", help="Write the trace again, .json or .json.gz."),
    ] = None,
    json: options.JsonFile = None,
) -> None:
    """Show what a run did: a summary here, or a page that opens in any browser.

    A trace that was cut is shown as far as it goes, and the exit code is 3.

    For example:

    counterprobe trace run.json --html page.html

    counterprobe trace --compare packed.json compressed.json --html both.html

    counterprobe trace --example paper --html paper.html

    counterprobe trace large.json --thin 2000000 --out small.json
    """
    output.check_writable(html, out, json)
    if html is not None and not html.lower().endswith(".html"):
        raise ValueError(f"--html must name a file that ends in .html, got {html}")
    if thin_to is not None and thin_to < 1:
        raise ValueError(f"--thin must be at least 1, got {thin_to}")
    if out is not None and kind_of(out) == "html":
        raise ValueError(f"--out must end in .json or .json.gz, got {out}; pages are for --html")
    named = _load(files or [], example, compare)
    if out is not None and len(named) > 1:
        raise ValueError("--out writes one trace again, and --compare takes two")
    if thin_to is not None:
        named = [(name, thin(one, thin_to)) for name, one in named]
    console = output.console_for(json)
    for name, one in named:
        _show(console, name, one, thinned=thin_to is not None)
    if html is not None:
        second = named[1][1] if len(named) > 1 else None
        write_page(named[0][1], html, second, names=tuple(name for name, _ in named))
    if out is not None:
        write_trace(named[0][1], out)
    output.say_written(console, html, out)
    records = [{"name": name, **summary(one)} for name, one in named]
    output.write_json(json, records if compare else records[0])
    cut = [name for name, one in named if one.is_truncated]
    if cut:
        output.complain(f"{' and '.join(cut)}: cut, so only the beginning of the run was shown")
        raise typer.Exit(output.INFEASIBLE)


def _load(files: list[str], example: str | None, compare: bool) -> list[tuple[str, Trace]]:
    """Read what is asked for, with the name of each."""
    if example is not None:
        if files or compare:
            raise ValueError("--example goes alone: leave out files and --compare")
        return [(example, load_example(example))]
    wanted = 2 if compare else 1
    if len(files) != wanted:
        names = "two files" if compare else "one file, or --example NAME, or two with --compare"
        raise ValueError(f"trace takes {names}; got {len(files)}")
    for file in files:
        if file.lower().endswith(".html"):
            raise ValueError(f"{file} is a page, to open in a browser; trace reads FILE.json")
    return [(Path(file).name, load_trace(file)) for file in files]


def _show(console: Console, name: str, trace: Trace, *, thinned: bool) -> None:
    """Print what a trace says in a few lines."""
    record = summary(trace)
    header = trace.header
    rows: dict[str, Any] = {"positions, tokens": f"{record['n']:,}, {record['vocab']:,}"}
    if record["count"] is not None:
        rows["sequence"] = f"{record['sequence'] + 1:,} of {record['count']:,}"
    for key in ("preprocessing", "probes", "commits", "evaluations", "stages", "rows_read"):
        rows[key.replace("_", " ")] = record[key]
    for word, spent in record["beside"].items():
        rows[f"beside it, {_printable(word)}"] = spent
    rows["edges known at the end"] = record["edges"]
    rows["events"] = len(trace.events)
    stop = record["stop"]
    rows["stop"] = _printable(stop) if stop else "cut: the run died, or the file is not whole"
    title = f"{name}: {_printable(header.get('title') or header.get('sampler'))}"
    output.print_facts(console, title, rows)
    for said in record["thinned"]:
        console.print(Text(f"Note: {_printable(said)}."), soft_wrap=True)
    if thinned and not record["thinned"]:
        console.print("Nothing had to be left out.")


def _printable(value: Any) -> str:
    """Return a short text without control characters, which a terminal would obey."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))
    return shown if len(shown) <= MOST_LETTERS else shown[:MOST_LETTERS] + "..."
