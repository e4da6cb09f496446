"""A study as flat rows, one per run: out of the store, into Parquet or CSV, and back.

Tables, figures and growth rates are made from these rows, so they come out the same from a store
and from an exported file.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterprobe.cells import csv_line, unescaped
from counterprobe.extras import load_extra
from counterprobe.files import read_text, refuse_named_pipe, whole_file
from counterprobe.study.protocol import Cell, Study, Task, passes
from counterprobe.study.store import Record

__all__ = ["COLUMNS", "read_rows", "rows_of", "write_rows"]

Row = dict[str, Any]
FORMATS = (".parquet", ".csv")
# Of a file that is read, once unpacked.
MOST_BYTES = 1 << 29

# Column, its type, and what it holds; JSON texts hold what differs from sampler to sampler.
COLUMNS: dict[str, type] = {
    "study": str, "phase": str, "family": str, "length": int, "method": str,
    "draw": int, "stream": int, "settings": str, "stop": str, "reason": str,
    "evaluations": int, "preprocessing": int, "probes": int, "commits": int, "stages": int,
    "rows_read": int, "widest_stage": int, "evaluations_without_selection": int,
    "batch_kl": float, "batch_kl_se": float, "threshold": float, "passes": bool,
    "kl_draws": int, "tokens": str, "budget": int, "observed": str,
    "seconds": float, "oracle_seconds": float, "sampler_seconds": float,
    "evaluation_seconds": float, "finished": str, "versions": str, "machine": str,
}  # fmt: skip
LEDGER = (
    "evaluations", "preprocessing", "probes", "commits", "stages", "rows_read", "widest_stage",
    "evaluations_without_selection",
)  # fmt: skip


def rows_of(study: Study) -> list[Row]:
    """Return every finished run of a study, and one row for each failed cell."""
    rows: list[Row] = []
    by_size = sorted(study.cells, key=lambda cell: (_place(study, cell), cell.length))
    for cell in by_size:
        state = study.state(cell)
        for task in state.tasks:
            record = study.records.get(task.name)
            if record is not None:
                rows.append(_row(study, cell, task, record))
        if state.failure:
            rows.append(
                dict.fromkeys(COLUMNS)
                | {"study": study.config.name, "phase": "evaluation", "family": cell.family}
                | {"length": cell.length, "method": study.config.sampler, "passes": False}
                | {"stop": "failed", "reason": state.failure}
            )
    return rows


def _place(study: Study, cell: Cell) -> int:
    return study.config.families.index(cell.family)


def _row(study: Study, cell: Cell, task: Task, record: Record) -> Row:
    key, result, seconds = record.key, record.result, record.seconds
    is_tuning = task.phase in ("screening", "development")
    threshold = study.threshold(cell.family, "development" if is_tuning else "evaluation")
    assert threshold is not None
    return {
        "study": study.config.name,
        "phase": task.phase,
        "family": cell.family,
        "length": cell.length,
        "method": _method(key),
        "draw": key["draw"],
        "stream": key["stream"],
        "settings": _text(_settings(key, result)),
        "stop": result["stop"],
        "reason": result["reason"],
        **{name: result[name] for name in LEDGER},
        "batch_kl": result["batch_kl"],
        "batch_kl_se": result["batch_kl_se"],
        "threshold": threshold,
        "passes": passes(result, threshold),
        "kl_draws": key["kl_draws"],
        "tokens": result["tokens"],
        "budget": result.get("budget"),
        "observed": _text(result["observed"]) if "observed" in result else None,
        "seconds": seconds["total"],
        "oracle_seconds": seconds.get("oracle"),
        "sampler_seconds": seconds.get("sampler"),
        "evaluation_seconds": seconds.get("evaluation"),
        "finished": record.finished,
        "versions": _text(record.versions),
        "machine": _text(record.machine),
    }


def _settings(key: Row, result: Row) -> Row:
    """Return a run's settings; of a search, those of the budget it found."""
    chosen: Row = key.get("settings", {})
    return {**chosen, key["budget"]: result["budget"]} if key["work"] == "search" else chosen


def _method(key: Row) -> str:
    """Name a sampler, and the variant of a baseline that has several."""
    variant = key.get("settings") if key["work"] == "search" else None
    if not variant:
        return str(key["sampler"])
    words = ", ".join(f"{name}={_text(value)}" for name, value in sorted(variant.items()))
    return f"{key['sampler']} ({words})"


def write_rows(rows: Sequence[Row], file: str | Path) -> None:
    """Write rows to a ``.parquet`` or ``.csv`` file, whole or not at all."""
    target = Path(file)
    check_format(target)
    with whole_file(target) as stream:
        if target.suffix == ".csv":
            stream.write(_as_csv(rows).encode())
            return  # the file takes its place on the way out
        pyarrow, parquet = _arrow()
        table = pyarrow.Table.from_pylist(list(rows), schema=_schema(pyarrow))
        parquet.write_table(table, stream, compression="zstd")


def read_rows(file: str | Path) -> list[Row]:
    """Read rows that :func:`write_rows` wrote."""
    source = Path(file)
    check_format(source)
    names, rows = _read_csv(source) if source.suffix == ".csv" else _read_parquet(source)
    if names != list(COLUMNS):
        raise ValueError(f"{source} was not written by `counterprobe study export`")
    return rows


def _read_csv(source: Path) -> tuple[list[str], list[Row]]:
    text = io.StringIO(read_text(source, MOST_BYTES), newline="")
    reader = csv.DictReader(text, strict=True)
    try:
        names = list(reader.fieldnames or [])
        return names, [] if names != list(COLUMNS) else [_from_text(row) for row in reader]
    except (csv.Error, ValueError, TypeError) as problem:
        raise ValueError(f"{source} is damaged in line {reader.line_num}: {problem}") from None


def _read_parquet(source: Path) -> tuple[list[str], list[Row]]:
    pyarrow, parquet = _arrow()
    refuse_named_pipe(source)
    try:
        with source.open("rb") as stream, parquet.ParquetFile(stream) as file:
            about, names = file.metadata, file.schema_arrow.names
            groups = [about.row_group(k) for k in range(about.num_row_groups)]
            size = sum(group.total_byte_size for group in groups)
            if size > MOST_BYTES or about.num_rows * len(names) > MOST_BYTES // 8:
                raise ValueError(f"it unpacks to more than {MOST_BYTES:,} bytes")
            if names != list(COLUMNS):
                return names, []
            rows = file.read().cast(_schema(pyarrow)).to_pylist()
    except FileNotFoundError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError) as problem:
        said = " ".join(str(problem).split())
        raise ValueError(f"{source} is not a Parquet file, or is damaged: {said:.200}") from None
    return names, rows


def _schema(pyarrow: Any) -> Any:
    kinds = {
        str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(),
        bool: pyarrow.bool_(),
    }  # fmt: skip
    return pyarrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])


def check_format(file: Path) -> None:
    """Refuse a file name that names no known format."""
    if file.suffix not in FORMATS:
        raise ValueError(f"{file} must end in {' or '.join(FORMATS)}")


def _as_csv(rows: Sequence[Row]) -> str:
    return "".join([csv_line(COLUMNS), *(csv_line(map(row.get, COLUMNS)) for row in rows)])


def _from_text(row: dict[str, str]) -> Row:
    if None in row or None in row.values():  # where DictReader puts what is too much or missing
        raise ValueError(f"it must have {len(COLUMNS)} fields")
    readers: dict[type, Any] = {str: str, int: int, float: float, bool: lambda t: t == "True"}
    row = unescaped(row)
    return {
        name: None if row[name] == "" else readers[kind](row[name])
        for name, kind in COLUMNS.items()
    }


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _arrow() -> tuple[Any, Any]:
    names = ("pyarrow", "pyarrow.parquet")
    pyarrow, parquet = (
        load_extra(name, "study", "a Parquet file", instead="choose a .csv file") for name in names
    )
    return pyarrow, parquet
