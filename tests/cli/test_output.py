"""What commands share: errors as one line, files whole or not at all, plain JSON."""

import json
import math
import os
import stat

import numpy as np
import pytest
import typer
from rich.console import Console

import counterprobe as cp
from counterprobe import progress
from counterprobe.cli import output


def exit_code_of(problem: BaseException) -> int:
    @output.friendly
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
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_become_one_line_and_an_exit_code(problem, code, line, capsys, monkeypatch):
    monkeypatch.delenv("COUNTERPROBE_DEBUG", raising=False)
    assert exit_code_of(problem) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"counterprobe: {line}\n"


def test_a_chosen_exit_code_is_kept(capsys):
    assert exit_code_of(typer.Exit(3)) == 3
    assert capsys.readouterr().err == ""


def test_debugging_shows_the_error_itself(monkeypatch):
    monkeypatch.setenv("COUNTERPROBE_DEBUG", "1")

    @output.friendly
    def command() -> None:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        command()


def test_a_command_keeps_its_name_and_arguments():
    @output.friendly
    def command(number: int, *, word: str) -> None:
        """Say what it does."""
        assert (number, word) == (3, "x")

    command(3, word="x")
    assert (command.__name__, command.__doc__) == ("command", "Say what it does.")


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
        "nested": {"right": cp.Right.VERIFY, 3: True},
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


def test_no_file_no_json(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output.write_json(None, {"a": 1})
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


def test_numbers_survive_the_file(tmp_path):
    file = tmp_path / "numbers.json"
    values = [0.1, 1e-300, 1 / 3, float(np.nextafter(1, 2))]
    output.write_json(str(file), values)
    assert json.loads(file.read_text()) == values


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
    output.write_text(str(file), "new ± text\n")
    assert seen == ["old"]  # untouched until the new text is complete
    assert file.read_text(encoding="utf-8") == "new ± text\n"
    assert list(tmp_path.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) & 0o600 == 0o600


def test_a_relative_file_lands_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output.check_writable("out.json")
    output.write_json("out.json", [1])
    assert json.loads((tmp_path / "out.json").read_text()) == [1]


def test_what_cannot_be_written_is_refused(tmp_path):
    output.check_writable(None)
    output.check_writable("-")
    output.check_writable(str(tmp_path / "new.json"))
    with pytest.raises(ValueError, match="does not exist"):
        output.check_writable(str(tmp_path / "nowhere" / "new.json"))
    with pytest.raises(ValueError, match="it is a folder"):
        output.check_writable(str(tmp_path))


# ----- Small parts ------------------------------------------------------------------------------


def test_settings_are_key_value_words():
    assert output.parse_settings([]) == {}
    assert output.parse_settings(["batches=4", "tv-cut = 0.1", "name=a=b", "empty="]) == {
        "batches": "4",
        "tv_cut": "0.1",
        "name": "a=b",
        "empty": "",
    }
    for word in ("batches", "=4", ""):
        with pytest.raises(ValueError, match="key=value"):
            output.parse_settings([word])


@pytest.mark.parametrize(("file", "quiet"), [(None, False), ("run.json", False), ("-", True)])
def test_tables_stay_out_of_printed_json(file, quiet, capsys):
    output.console_for(file).print("a table")
    assert (capsys.readouterr().out == "") == quiet


def test_a_table_shows_numbers_with_separators(capsys):
    Console(width=60).print(output.key_value_table("A title", {"count": 12345, "word": "x [w]"}))
    printed = capsys.readouterr().out
    for text in ("A title", "count", "12,345", "word"):
        assert text in printed


def test_progress_is_silent_away_from_a_terminal(capsys):
    law = cp.families.path(length=8)
    with output.run_progress("label") as progress:
        run = cp.Unmasking(law.oracle(), progress=progress)
        cp.samplers.Sequential()(run, cp.Streams(1, 2))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.strip() == ""


# ----- Long work --------------------------------------------------------------------------------


def progress_of(committed: int) -> cp.run.Progress:
    run = cp.Unmasking(cp.families.path(4, 1).oracle())
    run.begin(cp.Streams(1, 2))
    for position in range(committed):
        run.commit([position])
    return cp.run.Progress("commit", committed, 4, run.ledger)


def test_an_unwatched_run_says_once_that_it_is_still_going(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with output.run_progress("packed") as update:
        for committed in (1, 2, 3):
            update(progress_of(committed))
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line == "counterprobe: packed: still running, 1 of 4 committed, 1 submissions"


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
