r"""A diffusion language model of our own: make its text, train it, and let every rule draw.

::

    python benchmarks/language.py prepare --packages build/packages --text build/text
    python benchmarks/language.py all --text build/text --device cuda --seconds 480 \
        --out $OUT/language --json $OUT/language.json
    python benchmarks/language.py evaluate --text build/text --model benchmarks/data/language \
        --judge FOLDER --json FILE

``prepare`` needs apt and writes 20 MB. ``all`` shares its seconds among the small model (written
in half precision to ``--out``), the judge, the large model and the contest, and writes what it has
after every step; with ``--tiny`` everything is small enough for a processor. What the numbers
mean is said in ``languages/contest.py``; docs/language.md has them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from _results import run_program, write_results
from languages.contest import CONTESTANTS, Contestant, contest, reference
from languages.text import prepare, read
from languages.training import SIZES, save, train
from transformers import AutoModelForCausalLM

from counterprobe.models.transformers import LanguageModel

# Of all seconds: the small model, the judge, the large model; the contest has the rest.
SHARES = {"small": 0.08, "judge": 0.14, "large": 0.36}
COUNT = 24
# Of a contest that only shows that everything runs.
TINY_SECONDS = 3600.0
# Rules that take a forward a token from rows that nobody trained, or thousands before the first.
SLOW = ("sequential", "planned", "information-profile", "mean-field", "threshold", "dawn")


def everything(options: argparse.Namespace) -> int:
    """Train, then compare; write after every step."""
    started = time.perf_counter()
    torch.set_float32_matmul_precision("high")
    corpus = read(options.text)
    names = {name: f"tiny-{name}".replace("tiny-small", "tiny") for name in SHARES}
    names["large"] = "tiny"
    content: dict[str, Any] = {"settings": {"seconds": options.seconds, "tiny": options.tiny}}
    content["text"] = json.loads((options.text / "text.json").read_text())
    content["training"], networks = {}, {}
    for name, share in SHARES.items():
        if name == "small" and options.small is not None:
            networks[name] = LanguageModel.from_pretrained(options.small).model.float()
            networks[name].to(options.device)
            continue
        size = SIZES[names[name] if options.tiny else name]
        networks[name], content["training"][name] = train(
            size,
            corpus,
            seconds=options.seconds * share,
            device=options.device,
            seed=11,
            least_steps=5 if options.tiny else 0,
        )
        print(f"{name}: {content['training'][name]}", flush=True)
        if name == "small":
            save(networks[name], corpus, options.out)
            networks[name].float()
        write_results(options.json, content)
    deadline = started + options.seconds
    for name, part in (("large", 0.85), ("small", 1.0)):
        left = TINY_SECONDS if options.tiny else deadline - time.perf_counter()
        until = time.perf_counter() + part * left
        compared(networks[name], networks["judge"], corpus, options, until, content, name)
    return 0


def compared(
    network: Any,
    judge: Any,
    corpus: Any,
    options: argparse.Namespace,
    deadline: float,
    content: dict[str, Any],
    name: str,
) -> None:
    """Write what the rules drew from one model under its name, beside held-out text."""
    known = LanguageModel(network, corpus.tokenizer)
    count = 2 if options.tiny else COUNT
    beside = {"count": count, "reference": reference(known, judge, corpus, count)}

    def keep(found: dict[str, Any]) -> None:
        content[name] = {**beside, **found}
        write_results(options.json, content)

    contestants = few() if options.tiny else None
    keep(
        contest(
            known,
            judge,
            corpus,
            count=count,
            deadline=deadline,
            contestants=contestants,
            keep=keep,
        )
    )


def few() -> list[list[Contestant]]:
    """Return every rule once, at a setting that takes few forwards."""
    coarse = {"batches": 4, "steps": 4, "gamma": 300.0, "epsilon": 1e3}
    coarse.update(target_kl=1e4, factor=1e4, confidence_threshold=0.0)
    return [
        [Contestant(one.sampler, {k: coarse.get(k, v) for k, v in one.settings.items()})]
        for one in (sweep[0] for sweep in CONTESTANTS)
        if one.sampler not in SLOW
    ]


def evaluate(options: argparse.Namespace) -> int:
    """Compare the rules on a model that was trained before."""
    corpus = read(options.text)
    known = LanguageModel.from_pretrained(options.model, device=options.device)
    judge = AutoModelForCausalLM.from_pretrained(options.judge).float()
    judge = judge.to(options.device).eval()
    deadline = time.perf_counter() + options.seconds
    content: dict[str, Any] = {"settings": {"seconds": options.seconds}}
    compared(known.model.float(), judge, corpus, options, deadline, content, "small")
    return 0


def make_text(options: argparse.Namespace) -> int:
    """Write the tokens."""
    print(prepare(options.packages.resolve(), options.text))
    return 0


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    made = commands.add_parser("prepare", help="download the packages and write tokens")
    made.add_argument("--packages", type=Path, required=True)
    made.set_defaults(run=make_text)
    whole = commands.add_parser("all", help="train everything and compare")
    whole.add_argument("--tiny", action="store_true")
    whole.add_argument("--out", type=Path, required=True)
    whole.add_argument("--small", type=Path, help="a small model that was trained before")
    whole.set_defaults(run=everything)
    again = commands.add_parser("evaluate", help="compare on a trained model")
    again.add_argument("--model", type=Path, required=True)
    again.add_argument("--judge", type=Path, required=True)
    again.set_defaults(run=evaluate, tiny=False)
    for command in (made, whole, again):
        command.add_argument("--text", type=Path, required=True)
    for command in (whole, again):
        command.add_argument("--device", default="cpu")
        command.add_argument("--seconds", type=float, default=500.0)
        command.add_argument("--json", type=Path)
    return parser.parse_args(words)


if __name__ == "__main__":
    raise SystemExit(run_program(parse, lambda options: int(options.run(options))))
