"""Spoil inputs of every kind that is read from files, guided by coverage, and keep what fails.

    .venv/bin/python tools/fuzz.py --seconds 300 --seed 1
    .venv/bin/python tools/fuzz.py --again .fuzz/crash-...
    .venv/bin/python tools/fuzz.py --kinds replies "replies resealed"

The first byte of an input chooses the kind, in the order of ``hostile_inputs.READERS``; the others
are the file. What ends in an undocumented
error, takes longer than TIMEOUT or more than MOST_MEGABYTES is written to ``.fuzz`` and shown.
``tests/support/hostile_inputs.py`` says how every kind is read.
"""

from __future__ import annotations

import argparse
import atexit
import shutil
import sys
import tempfile
from pathlib import Path
from types import FunctionType

import atheris

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "support"))
# Modules that read; those with compiled kernels must keep the bytecode that numba compiles.
READERS = [
    "counterprobe.archives", "counterprobe.files", "counterprobe.discovery.structure_file",
    "counterprobe.discovery.structure", "counterprobe.trace.document",
    "counterprobe.trace.arrays", "counterprobe.trace.replay",
    "counterprobe.study.config", "counterprobe.study.store", "counterprobe.study.export",
    "counterprobe.targets.forests", "counterprobe.models.proteins.backbones",
    "counterprobe.models.proteins.structures", "counterprobe.models.letters",
    "counterprobe.cli.reproduce", "counterprobe.cli.options",
    "counterprobe.run.batches", "counterprobe.oracles.codec", "counterprobe.oracles.cache",
]  # fmt: skip
TIMEOUT, MOST_MEGABYTES = 30, 3000

import hostile_inputs  # noqa: E402

KINDS = list(hostile_inputs.READERS)


def watch_coverage() -> None:
    """Instrument the functions and methods of the modules that read."""
    for name in READERS:
        module = sys.modules[name]
        owners = [module, *(one for one in vars(module).values() if isinstance(one, type))]
        for owner in owners:
            for one in list(vars(owner).values()):
                plain = getattr(one, "__func__", one)  # of class and static methods
                if isinstance(plain, FunctionType) and plain.__module__ == name:
                    atheris.instrument_func(plain)


def read(data: bytes, folder: Path, kinds: list[str]) -> None:
    """Read one input, if it is of a kind that is wanted."""
    if data and (kind := KINDS[data[0] % len(KINDS)]) in kinds:
        hostile_inputs.read(kind, data[1:], folder)


def seed_corpus(folder: Path, kinds: list[str]) -> None:
    """Write a valid input of every kind that is wanted."""
    with tempfile.TemporaryDirectory() as scratch:
        valid = hostile_inputs.valid_files(Path(scratch))
    for kind in kinds:
        number = KINDS.index(kind)
        (folder / kind.replace(" ", "-")).write_bytes(bytes([number]) + valid[kind])


def main() -> None:
    """Read the command line, and fuzz."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=300, help="0 for no limit but --runs")
    parser.add_argument("--runs", type=int, default=-1, help="inputs to try; -1 for no limit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--crashes", type=Path, default=ROOT / ".fuzz")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND")
    parser.add_argument("--again", type=Path, help="read one kept input again, and show its error")
    chosen = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="counterprobe-fuzz-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    if chosen.again is not None:
        read(chosen.again.read_bytes(), scratch, chosen.kinds)
        print(f"fuzz: {chosen.again} is read or refused as it should be")
        return
    corpus = scratch / "corpus"
    corpus.mkdir()
    seed_corpus(corpus, chosen.kinds)
    chosen.crashes.mkdir(exist_ok=True)
    watch_coverage()
    print(f"fuzz: {chosen.seconds} seconds, {chosen.runs} runs, seed {chosen.seed}, "
          f"crash inputs in {chosen.crashes}", flush=True)  # fmt: skip
    options = [
        f"-max_total_time={chosen.seconds}", f"-runs={chosen.runs}", f"-seed={chosen.seed}",
        f"-artifact_prefix={chosen.crashes}/", f"-timeout={TIMEOUT}", "-max_len=20000",
        f"-rss_limit_mb={MOST_MEGABYTES}", "-print_final_stats=1", "-verbosity=0",
    ]  # fmt: skip
    atheris.Setup(
        [sys.argv[0], *options, str(corpus)], lambda data: read(data, scratch, chosen.kinds)
    )
    atheris.Fuzz()  # does not return: it exits with 77 after a crash


if __name__ == "__main__":
    main()
