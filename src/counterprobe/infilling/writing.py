"""Finished sequences in the files that people exchange: FASTA and CSV beside the library's own."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from counterprobe.files import whole_file
from counterprobe.run.batches import SampleBatch

__all__ = ["KINDS", "check_kind", "write_texts"]

# Letters in a line of FASTA.
LINE = 80
KINDS = (".fasta", ".fa", ".csv", ".jsonl")


def check_kind(path: str | os.PathLike[str]) -> str:
    """Return the kind of a file by its name, or refuse it."""
    kind = Path(path).suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"the name must end in {', '.join(KINDS)}; got {os.fspath(path)!r}")
    return kind


def write_texts(batch: SampleBatch, path: str | os.PathLike[str]) -> None:
    """Write the texts of a batch with their scores; the file appears whole or not at all.

    Parameters
    ----------
    batch : SampleBatch
        With texts.
    path : path
        ``.fasta`` and ``.csv`` hold the texts, their log-probabilities, log-likelihoods and
        number of evaluations; ``.jsonl`` holds everything, as ``SampleBatch.save``.
    """
    kind = check_kind(path)
    if kind == ".jsonl":
        batch.save(path)
        return
    if batch.texts is None:
        raise ValueError("this batch has no texts, its oracle cannot spell; write .jsonl instead")
    text = _as_csv(batch) if kind == ".csv" else _as_fasta(batch)
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="")


def _rows(batch: SampleBatch) -> Iterator[dict[str, Any]]:
    """Yield what is known of each sequence, in plain values."""
    assert batch.texts is not None
    log_probs = batch.log_probs
    for k, (text, result) in enumerate(zip(batch.texts, batch.results, strict=True)):
        row: dict[str, Any] = {"name": f"design_{k + 1}", "sequence": text}
        if log_probs is not None:
            row["log_prob"] = f"{log_probs[k]:.6g}"
        if batch.log_likelihoods is not None:
            row["log_likelihood"] = f"{batch.log_likelihoods[k].mean():.6g}"
        row["evaluations"] = result.ledger.total
        row["sampler"] = result.sampler
        row["decision_seed"] = result.streams.decision_seed
        row["commit_seed"] = result.streams.commit_seed
        yield row


def _as_csv(batch: SampleBatch) -> str:
    rows = list(_rows(batch))
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _as_fasta(batch: SampleBatch) -> str:
    lines = []
    for row in _rows(batch):
        name, sequence = row.pop("name"), row.pop("sequence")
        sequence = "".join(sequence.split())
        lines.append(f">{name} " + " ".join(f"{key}={value}" for key, value in row.items()))
        lines.extend(sequence[low : low + LINE] for low in range(0, len(sequence), LINE))
    return "\n".join(lines) + "\n"
