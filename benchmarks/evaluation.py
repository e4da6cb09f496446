"""What one evaluation of a masked language model of 16,384 tokens takes, by its size.

    .venv/bin/python benchmarks/evaluation.py --json benchmarks/results/evaluation.json
    .venv/bin/python benchmarks/evaluation.py --device cpu --tiny

Encoders of the kind that masked language models are (BERT, as transformers has it), with random
weights: the time of an evaluation hangs on the shape of a network, not on what it has learned. One
sequence alone, and several at once. ``make run`` multiplies evaluations and stages by these.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from _results import write_results
from transformers import BertConfig, BertForMaskedLM

TOKENS, VOCABULARY = 16_384, 32_768
# Hidden size and layers; heads of 64 and 128, feed-forward layers four times as wide.
SHAPES = {"base": (768, 12, 64), "large": (4096, 32, 128)}
AT_ONCE = (1, 4)
TINY = {"base": (32, 2, 16)}


def build(shape: tuple[int, int, int], tokens: int, device: str) -> BertForMaskedLM:
    """Make a network on its device, in half precision where that is a GPU."""
    hidden, layers, head = shape
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // head,
        intermediate_size=4 * hidden,
        max_position_embeddings=tokens,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if device == "cuda" else torch.float32)
    try:
        with torch.device(device):
            return BertForMaskedLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def timed(network: BertForMaskedLM, tokens: int, at_once: int, repeats: int) -> float:
    """Return the least milliseconds of a call, after one that warms up."""
    device = next(network.parameters()).device
    ids = torch.randint(VOCABULARY, (at_once, tokens), device=device)
    best = float("inf")
    with torch.no_grad():
        for k in range(repeats + 1):
            started = time.perf_counter()
            network(input_ids=ids).logits.argmax(-1).cpu()  # waits for the device
            taken = time.perf_counter() - started
            best = min(best, taken) if k else best
    return 1e3 * best


def main() -> None:
    """Measure each shape, and write after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="a small network of few tokens")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    tokens = 64 if told.tiny else TOKENS
    measured: dict[str, Any] = {}
    for name, shape in (TINY if told.tiny else SHAPES).items():
        network = build(shape, tokens, told.device)
        measured[name] = {
            "parameters": sum(one.numel() for one in network.parameters()),
            "milliseconds": {
                str(count): timed(network, tokens, count, told.repeats) for count in AT_ONCE
            },
        }
        print(name, measured[name], flush=True)
        device = torch.cuda.get_device_name() if told.device == "cuda" else "cpu"
        write_results(told.json, {"tokens": tokens, "device": device, "networks": measured})
        del network


if __name__ == "__main__":
    main()
