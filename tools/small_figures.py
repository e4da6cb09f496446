"""Measure the single figures that pages quote and no benchmark has.

    .venv/bin/python tools/small_figures.py --json docs/data/small-figures.json
    .venv/bin/python tools/small_figures.py --only formulas,guard --json FILE

``formulas``: what closed forms of the screens ask. ``first_screen``: false and missed pairs of one
screen of ``packed`` at its defaults; the number of colorings is chosen for readouts of degree
three, at one of degree six or more most of all sources win a majority. ``guard``: a cap on rounds
that cuts a run short. ``hard_matching``: the compressed screen where each of 64 tokens may be the
trigger. ``batch_kl``: the chain rule against the exact batch KL. ``antibodies``: residues that
antibody models name when one is masked at a time; it needs their weights (docs/models.md).
``denoisers``: how much of the movement of their rows pairs explain, after 128 probes.
``reactions``: tokens of reactions that RXNMapper names when one is masked at a time, how much of
its rows' movement pairs explain where the product is masked, after 256 probes, and what four
batches of it break.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import counterprobe as cp
from counterprobe.discovery.banks import read_banks
from counterprobe.discovery.compressed.certify import hidden_shares, shown_sizes
from counterprobe.discovery.compressed.findings import needed_evidence
from counterprobe.discovery.compressed.peeling.decoder import blind_chance, needed_reads
from counterprobe.discovery.compressed.peeling.design import MASK_RATE, first_batch
from counterprobe.discovery.packed.fillers import FillerContext, make_filler, most_likely_filler
from counterprobe.discovery.packed.screen import draw_colorings, packed_screen
from counterprobe.discovery.packed.selectors import top_votes
from counterprobe.oracles import Readouts
from counterprobe.samplers import Compressed, Packed, RandomBalanced
from counterprobe.states import MASK
from counterprobe.targets.hard_matching import HardMatchingOracle
from counterprobe.theory.decoding import least_probes, least_random_probes, left_out, reply_bits

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_again

BUDGET = 0.01
SCREENED = ("matching", "path", "binary-tree", "random-recursive-tree")
TRASTUZUMAB = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAED"
    "TAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
)


def formulas() -> dict[str, Any]:
    """Return what closed forms ask at the sizes that pages name."""
    screens = {str(n): Packed().setup(n, 2048, 0.0).screen for n in (512, 2048, 16384)}
    return {
        "evidence_3_columns": needed_evidence(16384, 3, BUDGET),
        "evidence_64_columns": needed_evidence(16384, 64, BUDGET),
        "evidence_3_columns_half": needed_evidence(16384, 3, BUDGET, reveal_rate=0.5),
        "evidence_hard_256": needed_evidence(256, 65, BUDGET),
        "rehearsals": {
            str(n): {
                "sizes": len(shown_sizes(n, BUDGET)),
                "shares": len(hidden_shares(n, BUDGET)),
            }
            for n in (256, 16384)
        },
        "colorings": {n: screen.num_colorings for n, screen in screens.items()},
        "matching": {
            "first_batch": first_batch(16384, 3),
            "any_rule": least_probes(16384, 3, BUDGET),
            "batches": math.comb(40, 18) / (math.comb(32, 14) * math.comb(4, 2) ** 2),
            "alike": 8192 / math.comb(32, 14),
            "bits_a_pair": reply_bits(16384, 3) / 8192,
            "random_probes": least_random_probes(16384, 3, MASK_RATE),
            "best_random_probes": min(
                least_random_probes(16384, 3, rate / 100) for rate in range(5, 100, 5)
            ),
        },
        "left_out": {"generic": _left_out(generic=True), "default": _left_out(generic=False)},
    }


def _left_out(*, generic: bool) -> float:
    """Return the largest factor that the stopping rule leaves out, from 2^9 to 2^20 positions."""
    blind = blind_chance(3, MASK_RATE, generic=generic)
    sizes = [2**power for power in range(9, 21)]
    reads = [needed_reads(n, blind, BUDGET) for n in sizes]
    factors = [
        left_out(n, t, blind, 3, MASK_RATE, generic=generic)
        for n, t in zip(sizes, reads, strict=True)
    ]
    return max(factors)


def first_screen() -> dict[str, Any]:
    """Return the least and the most of four screens of N = 2,048."""
    found = {}
    for family in SCREENED:
        law = cp.families.build(family, 2048, 196)
        counts = np.array([_screen(law, seed) for seed in (1, 2, 3, 4)])
        names = ("candidates", "kept", "missed")
        found[family] = {
            name: {"least": int(column.min()), "most": int(column.max())}
            for name, column in zip(names, counts.T, strict=True)
        }
    return found


def _screen(law: cp.ForestLaw, seed: int) -> tuple[int, int, int]:
    """Return false pairs before and after the cutoff on row sizes, and missed edges."""
    run = cp.run.Run(law.oracle())
    plan = Packed().setup(law.length, law.vocab_size, run.row_error)
    decisions = cp.Streams.from_seed(seed).decisions
    banks = run.call(read_banks, plan.bank_threshold, plan.row_error)
    context = FillerContext(run.state, banks, 0)
    rng = decisions("draft", 0)
    draft = make_filler(most_likely_filler, context, rng, law.vocab_size)
    colors = draw_colorings(
        plan.screen.num_colorings,
        plan.screen.num_colors,
        law.length,
        decisions("coloring", 0),
    )
    rows = run.call(packed_screen, plan.screen, banks.columns(draft), draft, colors, top_votes)
    true = _keys(law.edges, law.length)
    readout = np.repeat(np.arange(len(rows.residual)), np.diff(rows.candidates.start))
    claimed = rows.residual[np.stack([readout, rows.candidates.source], axis=1)]
    candidates, kept = _keys(claimed, law.length), _keys(rows.edges(), law.length)
    return (
        len(np.setdiff1d(candidates, true)),
        len(np.setdiff1d(kept, true)),
        len(np.setdiff1d(true, kept)),
    )


def _keys(edges: np.ndarray, length: int) -> np.ndarray:
    """Return one number a pair, whichever way round it is."""
    ends = np.sort(np.asarray(edges).reshape(-1, 2), axis=1)
    return np.unique(ends[:, 0] * length + ends[:, 1])


def guard() -> dict[str, Any]:
    """Cut a run on a path of 64 short after three rounds."""
    law = cp.families.path(64, target_seed=196)
    result = Packed(round_cap=3)(cp.run.Run(law.oracle()), cp.Streams.from_seed(292))
    return {
        "forced": int(result.diagnostics.num_forced),
        "batch_kl": cp.evaluation.batch_kl(law, result).value,
    }


def hard_matching() -> dict[str, Any]:
    """Let ``compressed`` spend what it asks on the hard family at N = 256."""
    law = cp.families.hard_matching(256, target_seed=196)
    run = cp.run.Run(HardMatchingOracle(law))
    result = Compressed()(run, cp.Streams.from_seed(292))
    findings = result.diagnostics.findings
    found = {frozenset(map(int, edge)) for edge in findings.edges}
    inside = [edge for edge in law.edges if findings.is_resolved[list(edge)].all()]
    return {
        "probes": result.ledger.probes,
        "resolved": int(findings.is_resolved.sum()),
        "missed": sum(frozenset(map(int, edge)) not in found for edge in inside),
    }


def batch_kl() -> dict[str, Any]:
    """Estimate in two ways what 200 runs of four random batches break on a path of 64."""
    law = cp.families.path(64, target_seed=196)
    drawn = cp.sample(law.oracle(), RandomBalanced(batches=4), 200, seed=1, orders="fresh",
                      progress=False)  # fmt: skip
    exact = [cp.evaluation.batch_kl(law, result).value for result in drawn.results]
    found: dict[str, Any] = {"exact": float(np.mean(exact))}
    for name, terms in (("all_terms", None), ("one_term", 1)):
        price = cp.evaluation.assess(law.oracle(), drawn, terms=terms).batch_kl
        found[name] = {
            "kl": price.value,
            "kl_se": price.standard_error,
            "evaluations": price.ledger.evaluations,
        }
    return found


def antibodies() -> dict[str, Any]:
    """Return the share of trastuzumab's heavy chain that is named, and of its shuffle."""
    found = {}
    for name in ("sapiens-heavy", "antiberty"):
        model = cp.models.load(name, device="cpu")
        template = model.template(TRASTUZUMAB)
        oracle = model.oracle(template)
        shuffled = np.random.default_rng(0).permutation(template.given)
        shares = []
        for tokens in (template.given, shuffled):
            states = np.tile(tokens, (len(tokens), 1))
            np.fill_diagonal(states, MASK)
            rows = oracle.rows(states, Readouts.every_masked(states))
            shares.append(float(np.mean(rows.top()[0] == tokens)))
        found[name] = {"named": shares[0], "shuffled": shares[1]}
    return found


def explained_share(structure: cp.Structure) -> float:
    """Return which share of the rows' movement pairs explain, held out."""
    moved = structure.strengths.moved
    return float(np.sum(moved * structure.strengths.explained) / np.sum(moved))


def denoisers() -> dict[str, Any]:
    """Return how much of the rows' movement pairs explain, held out, on the trained denoisers."""
    from denoisers.discovery import find_structure
    from denoisers.files import FOLDER, load
    from denoisers.laws import LAWS
    from denoisers.oracle import DenoiserOracle

    found = {}
    for law in LAWS:
        structure = find_structure(DenoiserOracle(load(FOLDER, law, "cpu")), 128)
        found[law] = explained_share(structure)
    others = [share for law, share in found.items() if law != "topic"]
    return {**found, "least_other": min(others), "most_other": max(others)}


REACTIONS = {
    "esterification": "CC(=O)O.OCCc1ccccc1>>CC(=O)OCCc1ccccc1",
    "amide": "O=C(Cl)c1ccccc1.NCC1CCCCC1>>O=C(NCC1CCCCC1)c1ccccc1",
    "suzuki": "OB(O)c1ccccc1.Brc1ccc(C=O)cc1>>O=Cc1ccc(-c2ccccc2)cc1",
    "deprotection": "CC(C)(C)OC(=O)NCCc1ccc(O)cc1.O=C(O)C(F)(F)F>>NCCc1ccc(O)cc1",
}


def reactions() -> dict[str, Any]:
    """Return what RXNMapper knows of four reactions, and what pairs explain of it."""
    model = cp.models.load("rxnmapper", device="cpu")
    found: dict[str, Any] = {}
    for name, text in REACTIONS.items():
        template = model.template(text)
        tokens = template.given
        oracle = model.oracle(template)
        states = np.tile(tokens, (len(tokens), 1))
        np.fill_diagonal(states, MASK)
        named = oracle.rows(states, Readouts.every_masked(states)).top()[0] == tokens
        given = tokens.copy()
        given[model.template(text.partition(">>")[0]).length + 1 :] = MASK
        structure = cp.discover(
            oracle, cp.Streams.from_seed(0), mode="soft", given=given, probes=256
        )
        table = cp.evaluation.price_plans(oracle, structure, [4], samples=32, seed=0)
        found[name] = {
            "tokens": len(tokens),
            "masked": int((given == MASK).sum()),
            "named": int(named.sum()),
            "explained": explained_share(structure),
            "four_batches": {
                price.way: {"kl": price.measured.value, "kl_se": price.measured.standard_error}
                for price in table.prices
            },
        }
    shares = [one["explained"] for one in found.values()]
    counts = {key: sum(one[key] for one in found.values()) for key in ("tokens", "named")}
    return {**found, **counts, "least_explained": min(shares), "most_explained": max(shares)}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    part.__name__: part
    for part in (
        formulas,
        first_screen,
        guard,
        hard_matching,
        batch_kl,
        antibodies,
        denoisers,
        reactions,
    )
}


def main(words: list[str] | None = None) -> int:
    """Measure all of it, or some by name, and keep the rest of the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help=f"some of {', '.join(PARTS)}, separated by commas")
    parser.add_argument("--json", type=Path, required=True)
    told = parser.parse_args(words)
    file: Path = told.json
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for name in told.only.split(",") if told.only else PARTS:
        if name not in PARTS:
            parser.error(f"only must be among {', '.join(PARTS)}; got {name!r}")
        known[name] = PARTS[name]()
        print(name, json.dumps(known[name]), flush=True)
    measured = {name: known[name] for name in PARTS if name in known}
    content = {"made": made_again(file), **measured}
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
