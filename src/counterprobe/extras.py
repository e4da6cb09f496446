"""Optional packages: imported when they are needed, and asked for in one way when missing.

``import counterprobe`` stays light; what needs an extra loads it here, at the moment of use.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path
from typing import Any

from counterprobe.errors import CounterprobeError

__all__ = ["MissingExtra", "install_command", "load_extra"]


class MissingExtra(CounterprobeError, ImportError):
    """An optional package is not installed; the message says how to install it."""


def install_command(*extras: str) -> str:
    """Return the command that installs extras here: by name, or from the checkout that runs.

    ``pip`` finds the extras of an installed package by its name, from a checkout as well; where
    the sources run without being installed, it is told where they are.

    Examples
    --------
    >>> install_command("torch", "structures")
    "pip install 'counterprobe[torch,structures]'"
    """
    try:
        importlib.metadata.distribution("counterprobe")
        where = "counterprobe"
    except importlib.metadata.PackageNotFoundError:
        where = str(Path(__file__).parents[2])
    return f"pip install '{where}[{','.join(extras)}]'"


def load_extra(
    module: str, extra: str, purpose: str, *, package: str | None = None, instead: str = ""
) -> Any:
    """Import a module of an optional package.

    Parameters
    ----------
    module : str
        Such as ``"matplotlib.figure"``.
    extra : str
        The extra of counterprobe that installs it.
    purpose : str
        What needs it, as the subject of a sentence.
    package : str, optional
        What the package is called; by default the first part of ``module``.
    instead : str
        What can be done without it, if anything.

    Examples
    --------
    >>> load_extra("fractions", "study", "a test").Fraction(1, 2)
    Fraction(1, 2)
    >>> load_extra("absent", "study", "a test")
    Traceback (most recent call last):
    counterprobe.extras.MissingExtra: a test needs absent: pip install 'counterprobe[study]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        name = package or module.partition(".")[0]
        remedy = install_command(extra) + (f", or {instead}" if instead else "")
        raise MissingExtra(f"{purpose} needs {name}: {remedy}") from problem
