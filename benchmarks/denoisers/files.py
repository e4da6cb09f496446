"""Denoisers in files: weights in half precision, a record of the training, a model card.

A law is made again from its name, so that its file need not hold it; one log-probability is kept
beside the weights, and a law that gives another is refused.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from denoisers.laws import Truth, build_law
from denoisers.network import Denoiser, Shape
from denoisers.training import Settings

__all__ = ["Trained", "card", "load", "save", "write_record"]

FOLDER = Path(__file__).resolve().parent.parent / "data" / "denoisers"


@dataclass(frozen=True, slots=True)
class Trained:
    """A denoiser and the law it was trained on, on one device."""

    law: str
    network: Denoiser
    truth: Truth


def save(
    folder: Path, law: str, network: Denoiser, truth: Truth, settings: Settings, small: bool
) -> Path:
    """Write the weights of a denoiser, in half precision; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "law": law,
        "small": small,
        "shape": asdict(network.shape),
        "settings": asdict(settings),
        "log_prob_of_zeros": _log_prob_of_zeros(truth),
        "torch": torch.__version__,
    }
    tensors = {
        name: value.detach().half().cpu().contiguous()
        for name, value in network.state_dict().items()
    }
    file = folder / f"{law}.safetensors"
    save_file(tensors, file, metadata={"counterprobe": json.dumps(about)})
    return file


def load(folder: Path, law: str, device: object = "cpu") -> Trained:
    """Read a denoiser, widened to single precision, with its law."""
    file = folder / f"{law}.safetensors"
    if not file.is_file():
        raise ValueError(
            f"there is no denoiser at {file}; train one: "
            f"python benchmarks/denoiser.py train --law {law} --out {folder}"
        )
    with safe_open(file, framework="pt") as opened:
        about = json.loads(opened.metadata()["counterprobe"])
        tensors = {name: opened.get_tensor(name).float() for name in opened.keys()}
    truth = build_law(about["law"], small=about["small"], device=device)
    if abs(_log_prob_of_zeros(truth) - about["log_prob_of_zeros"]) > 1e-6:
        raise ValueError(f"{file} was trained on another law than {law!r} is now; train it again")
    network = Denoiser(Shape(**about["shape"]))
    network.load_state_dict(tensors)
    return Trained(law, network.to(device).eval().requires_grad_(False), truth)


def write_record(folder: Path, law: str, record: dict[str, Any]) -> None:
    """Keep what a training used and reached, and bring the model card up to date."""
    (folder / f"{law}.json").write_text(json.dumps(record, indent=2) + "\n")
    (folder / "README.md").write_text(card(folder))


def _log_prob_of_zeros(truth: Truth) -> float:
    zeros = torch.zeros((1, truth.length), dtype=torch.int64, device=truth.device)
    return float(truth.log_prob(zeros)[0])


CARD = """# Denoisers with known truth

Small transformers that fill in masked positions, each trained on samples of a law whose
conditional rows, samples and log-probabilities are exact. They are there to measure samplers
against the truth, and of no other use.

- **Architecture**: {layers} pre-norm encoder layers, width {width}, {heads} heads, learned
  positions, an output bias a position; {parameters:,} parameters. Ids `0..V-1` are tokens, `V` is
  the mask. Weights in half precision, computed with in single precision.
- **Data**: fresh samples of the law, none of them twice; nothing else.
  `benchmarks/denoisers/laws.py` makes each law from its name.
- **Training**: {steps:,} steps of {batch_size:,} sequences, AdamW, learning rate {learning_rate:g}
  with a cosine, bfloat16 on a GPU; the share of masked positions is uniform.
- **Licence**: Apache-2.0, as the rest of the project.
- **To make them again**: `{command}`

Total variation between learned and exact rows, mean (95th percentile) over masked positions of
fresh samples, by share of masked positions:

| law | N | V | true edges | {rates} | seconds |
|---|---|---|---|{rule}|---|
{lines}
"""


def card(folder: Path) -> str:
    """Return the model card of all denoisers in a folder."""
    records = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    first = records[0]
    lines = []
    for record in records:
        errors = " | ".join(
            f"{row['tv_mean']:.3f} ({row['tv_p95']:.3f})" for row in record["row_errors"]
        )
        sizes = f"{record['length']} | {record['vocab_size']} | {record['num_edges']}"
        lines.append(f"| {record['law']} | {sizes} | {errors} | {record['seconds']:.0f} |")
    rates = [f"{row['mask_rate']:.0%}" for row in first["row_errors"]]
    return CARD.format(
        **first["settings"],
        parameters=first["parameters"],
        command="python benchmarks/denoiser.py train --law all --device cuda --out "
        "benchmarks/data/denoisers",
        rates=" | ".join(rates),
        rule="|".join(["---"] * len(rates)),
        lines="\n".join(lines),
    )
