"""What commands share: errors as one line, files whole or not at all, plain JSON."""

import json
import math
import os
import stat
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import typer
from rich.console import Console

import counterprobe as cp
from command_line import invoke, refused
from counterprobe import progress
from counterprobe.cli import output
from counterprobe.cli.output import Column, print_table
from counterprobe.run import Commit


def exit_code_of(problem: BaseException) -> int:
    @output.command
    def command() -> None:
        raise problem

    with pytest.raises(typer.Exit) as stopped:
        command()
    return stopped.value.exit_code


# ----- Errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "code", "line"),
    [
        (ValueError("n must be even, got 3"), 2, "n must be even, got 3"),
        (cp.errors.NotAForestError("a cycle 0-1-2-0"), 2, "a cycle 0-1-2-0"),
        (FileNotFoundError(2, "No such file", "x.txt"), 2, "x.txt: No such file"),
        (ValueError("first line\n    second line"), 2, "first line second line"),
        (ValueError(), 2, "ValueError"),
        (RuntimeError("boom"), 1, "RuntimeError: boom"),
        (ZeroDivisionError(), 1, "ZeroDivisionError: ZeroDivisionError"),
        (MemoryError("Unable to allocate 7 TiB"), 1, "out of memory: Unable to allocate 7 TiB"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_become_one_line_and_an_exit_code(problem, code, line, capsys, monkeypatch):
    monkeypatch.delenv("COUNTERPROBE_DEBUG", raising=False)
    assert exit_code_of(problem) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"counterprobe: {line}\n"


def test_debugging_shows_the_error_itself(monkeypatch):
    monkeypatch.setenv("COUNTERPROBE_DEBUG", "1")

    @output.command
    def command() -> None:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        command()


# ----- JSON -------------------------------------------------------------------------------------


def test_json_is_plain(capsys):
    content = {
        "array": np.arange(3),
        "number": np.float64(0.5),
        "flag": np.bool_(True),
        "nothing": None,
        "nan": math.nan,
        "nans": np.array([1.0, math.nan]),
        "pair": (1, "two"),
        "nested": {"right": cp.Need.VERIFY, 3: True},
        "infinite": math.inf,
    }
    output.write_json("-", content)
    captured = capsys.readouterr()
    assert captured.err == ""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    read = json.loads(captured.out, parse_constant=refuse)
    assert read["array"] == [0, 1, 2]
    assert (read["number"], read["flag"], read["nothing"]) == (0.5, True, None)
    assert (read["nan"], read["nans"]) == (None, [1.0, None])
    assert read["pair"] == [1, "two"]
    assert read["nested"]["3"] is True
    assert read["infinite"] == "inf"
    assert captured.out.endswith("}\n")


# ----- Files ------------------------------------------------------------------------------------


def test_a_file_is_replaced_whole(tmp_path, monkeypatch):
    file = tmp_path / "out.txt"
    file.write_text("old")
    seen = []
    replace = os.replace

    def watch(source: str, target: str) -> None:
        seen.append(file.read_text())
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    output.write_to(str(file), "new ± text\n")
    assert seen == ["old"]  # untouched until the new text is complete
    assert file.read_text(encoding="utf-8") == "new ± text\n"
    assert list(tmp_path.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) & 0o600 == 0o600


def test_what_cannot_be_written_is_refused(tmp_path):
    output.check_writable(None)
    output.check_writable("-")
    output.check_writable(str(tmp_path / "new.json"))
    with pytest.raises(ValueError, match="does not exist"):
        output.check_writable(str(tmp_path / "nowhere" / "new.json"))
    with pytest.raises(ValueError, match="it is a folder"):
        output.check_writable(str(tmp_path))


# ----- Small parts ------------------------------------------------------------------------------


@pytest.mark.parametrize(("file", "quiet"), [(None, False), ("run.json", False), ("-", True)])
def test_tables_stay_out_of_printed_json(file, quiet, capsys):
    output.console_for(file).print("a table")
    assert (capsys.readouterr().out == "") == quiet


def test_a_table_shows_numbers_with_separators(capsys):
    output.print_facts(Console(width=60), "A title", {"count": 12345, "word": "x [red] [w]"})
    printed = capsys.readouterr().out
    for text in ("A title", "count", "12,345", "word", "x [red] [w]"):
        assert text in printed


# ----- Long work --------------------------------------------------------------------------------


def progress_of(committed: int) -> cp.run.Progress:
    run = cp.run.Run(cp.families.path(4, 1).oracle())
    run.begin(cp.Streams(1, 2))
    for position in range(committed):
        run.do(Commit([position]))
    return cp.run.Progress("commit", committed, 4, run.ledger)


def test_an_unwatched_run_says_once_that_it_is_still_going(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with output.run_progress("packed") as update:
        for committed in (1, 2, 3):
            update(progress_of(committed))
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line == "counterprobe: packed: still running, 1 of 4 masks committed, 1 evaluation"


@pytest.mark.parametrize(
    ("standing", "said"),
    [
        (("first", 3, 200.0), "3 of 4 positions explained, stage 'first', about 3 min left"),
        (("first", 0, None), "0 of 4 positions explained, stage 'first'"),
        (("soft", None, 7.0), "0 of 4 masks committed, stage 'soft', about 7.0 s left"),
    ],
)
def test_an_unwatched_search_says_how_far_it_is(capsys, monkeypatch, standing, said):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with output.run_progress("discover") as update:
        update(replace(progress_of(0), standing=cp.run.Standing(*standing)))
    line = capsys.readouterr().err.strip()
    assert line == f"counterprobe: discover: still running, {said}, 0 evaluations"


def test_a_short_run_says_nothing(capsys):
    with output.run_progress("packed") as update:
        update(progress_of(1))
    assert capsys.readouterr().err == ""


def test_a_terminal_needs_no_announcement(capsys, monkeypatch):
    output.announce("computing")
    assert capsys.readouterr().err == "counterprobe: computing\n"
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes standard error for a terminal
    output.announce("computing")
    assert capsys.readouterr().err == ""


# ----- Outputs that must not surprise -----------------------------------------------------------


def test_a_special_file_is_written_to_and_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    output.write_to(str(pipe), "through the pipe\n")
    reader.join(timeout=10)
    assert received == ["through the pipe\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_no_partial_file_is_left_behind(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        output.write_to(str(tmp_path / "run.json"), "{}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["sample", "compare", "plan", "verify", "samplers", "models"])
def test_a_file_that_cannot_be_made_is_refused_before_the_run(command, tmp_path):
    nowhere = tmp_path / "nowhere"
    assert f"the folder {nowhere} does not exist" in refused(command, "--json", nowhere / "a.json")
    assert "it is a folder" in refused(command, "--json", tmp_path)
    # The name itself fits; the one it is first written under does not.
    assert "file name too long" in refused(command, "--json", tmp_path / ("x" * 250 + ".j"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_may_be_written_but_not_replaced_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "run.json"
    file.write_text("{}")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # as in a folder of somebody else
    with pytest.raises(ValueError, match=r"cannot write .*run\.json: permission denied"):
        output.check_writable(str(file))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["samplers"], ["samplers", "--json", "-"]])
def test_a_reader_that_goes_away_is_no_failure(arguments):
    program = "from counterprobe.cli.main import main; main()"
    source, sink = os.pipe()
    os.close(source)  # nobody will ever read
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.run(command, stdout=sink, stderr=subprocess.PIPE, check=False)
    os.close(sink)
    assert (process.returncode, process.stderr) == (0, b"")


def test_tokens_on_standard_output_are_alone_there():
    small = ("sample", "--n", 16, "--sampler", "one-batch", "--tokens", "-")
    assert len([int(word) for word in invoke(*small).stdout.split()]) == 16
    assert "cannot both print" in refused(*small, "--json", "-")


# ----- Tables at any width ----------------------------------------------------------------------

COLUMNS = ["name", "first", Column("second thing", 1), Column("third", 2)]
ROWS = [["short", "1", "22", "333"], ["quite-a-long-name", "12345", "2", "3"]]


def printed(width: int, rows: list[list[str]] = ROWS) -> str:
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        print_table(console, "A title", COLUMNS, rows)
    return capture.get()


@pytest.mark.parametrize(
    ("width", "omitted"),
    [(80, ""), (39, ""), (33, "third"), (25, "second thing, third")],
)
def test_columns_go_by_rank_until_the_rest_fits(width, omitted):
    text = printed(width)
    assert max(map(len, text.splitlines())) <= width
    for name, first, *_ in ROWS:
        assert any(line.split()[:2] == [name, first] for line in text.splitlines())
    said = f"Left out for want of width: {omitted}."
    assert (said in " ".join(text.split())) == bool(omitted)


def test_settings_go_to_the_next_line_before_columns_are_left_out():
    rows = [["punt epsilon=1e-09 probe=7", "1", "2", "3"]]
    assert printed(34, rows).splitlines()[3].split()[:2] == ["punt", "1"]
    assert "Left out" not in printed(38, rows)
    assert "punt epsilon=1e-09 probe=7" in printed(80, rows)


def test_cells_are_folded_never_cut_and_no_markup():
    text = printed(12, [["x" * 20, "1", "2", "3"]])
    assert text.count("x") == 20
    assert "…" not in text
    assert "[bold]" in printed(80, [["[bold]", "1", "2", "3"]])
