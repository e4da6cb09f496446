"""A missing optional package is asked for in one way, and exits with 2 on the command line."""

import importlib.metadata
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import counterprobe as cp
from counterprobe.cli.main import app
from counterprobe.extras import MissingExtra, install_command, load_extra
from counterprobe.study.export import COLUMNS, read_rows, write_rows
from counterprobe.study.table import save_figure

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
INSTALL = "pip install 'counterprobe[study]'"


@pytest.fixture
def without(monkeypatch):
    """Return what makes a package look as if it were not installed."""

    def without(package: str) -> None:
        for name in [package, *sys.modules]:
            if name.split(".")[0] == package:
                monkeypatch.setitem(sys.modules, name, None)

    return without


def test_an_installed_module_is_returned():
    assert load_extra("json.decoder", "study", "a test") is sys.modules["json.decoder"]


def test_a_missing_package_is_named_with_its_remedy():
    with pytest.raises(MissingExtra) as error:
        load_extra("absent.part", "torch", "counterprobe.models.torch", package="PyTorch")
    assert str(error.value) == (
        "counterprobe.models.torch needs PyTorch: pip install 'counterprobe[torch]'"
    )
    assert isinstance(error.value, ImportError)
    assert isinstance(error.value, cp.CounterprobeError)
    assert isinstance(error.value.__cause__, ModuleNotFoundError)
    with pytest.raises(MissingExtra, match=r"\[study\]', or choose a .csv file$"):
        load_extra("absent", "study", "a Parquet file", instead="choose a .csv file")


def test_parquet_and_figures_ask_for_the_extra(without, tmp_path):
    row = dict.fromkeys(COLUMNS)
    without("pyarrow")
    without("matplotlib")
    with pytest.raises(MissingExtra, match="a Parquet file needs pyarrow: pip install"):
        write_rows([row], tmp_path / "x.parquet")
    with pytest.raises(MissingExtra, match="a Parquet file needs pyarrow: pip install"):
        read_rows(tmp_path / "x.parquet")
    with pytest.raises(MissingExtra, match="a figure needs matplotlib: pip install"):
        save_figure([], tmp_path / "x.svg")
    assert list(tmp_path.iterdir()) == []
    write_rows([row], tmp_path / "x.csv")
    assert read_rows(tmp_path / "x.csv") == [row]


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        (["compare", "--n", "20", "--plot", "x.png"], "a figure needs matplotlib"),
        (["plan", "--n", "4096", "--plot", "x.png"], "a figure needs matplotlib"),
        (["study", "figure", "--data", "x.csv", "--output", "x.svg"], "a figure needs matplotlib"),
        (["study", "table", "--data", "x.parquet"], "a Parquet file needs pyarrow"),
    ],
)
def test_every_command_exits_with_two_and_one_line(
    without, tmp_path, monkeypatch, arguments, needs
):
    monkeypatch.chdir(tmp_path)
    write_rows([], "x.csv")
    without("matplotlib")
    without("pyarrow")
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"counterprobe: {needs}: {INSTALL}")
    assert result.stderr.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["x.csv"]


def test_the_extra_that_is_named_holds_what_is_missing():
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    assert {word.partition(">=")[0] for word in extras["study"]} == {"matplotlib", "pyarrow"}


def test_the_remedy_names_the_checkout_where_nothing_is_installed(monkeypatch):
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    said = install_command("torch", "structures")
    assert said == f"pip install '{PROJECT.parent}[torch,structures]'"
