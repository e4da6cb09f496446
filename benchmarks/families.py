"""How far a structure carries between chains of a family: masked language models of antibodies.

::

    python benchmarks/families.py --json benchmarks/results/families.json
    python benchmarks/families.py --quick --json FILE

Heavy chains of antibodies that packages print as examples; which of them are held out was settled
before anything was measured. A structure is averaged over the others, position by position of
IMGT's numbers, and plans by it are priced on each held-out chain under the model's own law, beside
plans by that chain's own structure, by the structure of one other chain, and batches that need
none. All ways of a chain are priced on the same random numbers. Written after every price; a file
of the same settings is continued.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from _results import run_program
from designs.pricing import make_plans
from designs.record import Entry, Record, Tasks, device_name, mean_row
from designs.tasks import PEMBROLIZUMAB_HEAVY, TRASTUZUMAB_HEAVY

import counterprobe as cp
from counterprobe.evaluation import plan_kl
from counterprobe.infilling import discover_over
from counterprobe.infilling.carrying import carried, planned_here
from counterprobe.infilling.task import make_task
from counterprobe.models.proteins.antibody_numbering import imgt_numbers
from counterprobe.planning import Plan
from counterprobe.samplers import Planned

# As packages print them on their pages and in their tests: abnumber 0.4.4 (a murine chain),
# antiberty 0.1.3, igfold 1.0.1 and ablang2 0.2.1; beside them the two of designs/tasks.py.
FAMILY = {
    "trastuzumab": TRASTUZUMAB_HEAVY,
    "pembrolizumab": PEMBROLIZUMAB_HEAVY,
    "abnumber": (
        "QVQLQQSGAELARPGASVKMSCKASGYTFTRYTMHWVKQRPGQGLEWIGYINPSRGYTNYNQKF"
        "KDKATLTTDKSSSTAYMQLSSLTSEDSAVYYCARYYDDHYCLDYWGQGTTLTVSS"
    ),
    "antiberty": (
        "EVQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKF"
        "QERVTITRDMSTSTAYMELSSLRSEDTAVYYCAAPYCSSISCNDGFDIWGQGTMVTVS"
    ),
    "igfold": (
        "QLQLVESGPGLVKPSQTLSLTCTVSGGSITTGYYAWSWIRQPPGKGLEWMGFIARDGSTSYSPS"
        "LKSRTSISRDTSKNQFSLQLSSVTPEDTAVYYCARAGEGRSWYPGYYYGMDYWGKGTLVTVSS"
    ),
    "ablang2": (
        "EVQLLESGGEVKKPGASVKVSCRASGYTFRNYGLTWVRQAPGQGLEWMGWISAYNGNTNYAQKF"
        "QGRVTLTTDTSTSTAYMELRSLRSDDTAVYFCARDVPGHGAAFMDVWGTGTTVTVSS"
    ),
}
# Of immunum 2.0.0, sapiens 1.0.3 (murine), ablang 0.3.1, and a nanobody of igfold 1.0.1.
HELD_OUT = {
    "immunum": (
        "QVQLVQSGAEVKRPGSSVTVSCKASGGSFSTYALSWVRQAPGRGLEWMGGVIPLLTITNYAPRF"
        "QGRITITADRSTSTAYLELNSLRPEDTAVYYCAREGTTGKPIGAFAHWGQGTLVTVSS"
    ),
    "sapiens": (
        "QVKLQESGAELARPGASVKLSCKASGYTFTNYWMQWVKQRPGQGLDWIGAIYPGDGNTRYTHKF"
        "KGKATLTADKSSSTAYMQLSSLASEDSGVYYCARGEGNYAWFAYWGQGTTVTVSS"
    ),
    "ablang": (
        "EVQLVESGPGLVQPGKSLRLSCVASGFTFSGYGMHWVRQAPGKGLEWIALIIYDESNKYYADSV"
        "KGRFTISRDNSKNTLYLQMSSLRAEDTAVFYCAKVKFYDPTAPNDYWGQGTLVTVSS"
    ),
    "nanobody": (
        "QVQLQESGGGLVQAGGSLTLSCAVSGLTFSNYAMGWFRQAPGKEREFVAAITWDGGNTYYTDSV"
        "KGRFTISRDNAKNTVFLQMNSLKPEDTAVYYCAAKLLGSSRYELALAGYDYWGQGTQVTVS"
    ),
}
WAYS = ("own", "family", "one", "spread", "random")
BATCHES = (4, 8)
FULL = {
    "models": "sapiens-heavy,antiberty", "regions": "loops,half", "chains": 4, "probes": 256,
    "plans": 8, "samples": 64,
}  # fmt: skip
QUICK = {
    "models": "sapiens-heavy", "regions": "loops", "chains": 1, "probes": 32, "plans": 2,
    "samples": 4,
}  # fmt: skip


def designed(sequence: str, region: str) -> dict[str, str]:
    """Choose the three loops of a chain, or a half of IMGT's numbers, the same for every chain."""
    if region == "loops":
        return {"design": "CDR-H1,CDR-H2,CDR-H3"}
    numbers = np.random.default_rng(0).permutation(np.arange(1, 129))[:64]
    chosen = {f"H{number}" for number in numbers}
    names = imgt_numbers(sequence)
    return {"design": ",".join(str(k + 1) for k, name in enumerate(names) if name in chosen)}


class Family:
    """A model, a region that is masked, and the structures found before."""

    def __init__(self, model: Any, region: str, settings: dict[str, Any], record: Record) -> None:
        self.model = model
        self.region = region
        self.settings = settings
        self.record = record
        self.name = f"{model.name}, {region}"
        self.found = cache(self._found)

    def _found(self, *names: str) -> cp.Structure:
        texts = [FAMILY[name] for name in names]
        return discover_over(
            self.model,
            texts,
            probes=self.settings["probes"],
            seed=0,
            template_options=[designed(text, self.region) for text in texts],
        )

    def plans(self, way: str, batches: int, task: Any, own: cp.Structure) -> list[Plan]:
        """Make plans of one way, as ``infill`` makes them."""
        count = self.settings["plans"]
        if way in ("own", "spread", "random"):
            return make_plans("planned" if way == "own" else way, own, batches, count)
        found = self.found(*FAMILY) if way == "family" else self.found(next(iter(FAMILY)))
        here, _ = carried(task, found)
        streams = cp.Streams.from_seed(0)
        rule = planned_here(Planned.of(here, batches=batches), here, streams)
        each = (streams.with_fresh_decisions(k).decisions for k in range(count))
        return [rule.plan(here.residual, one) for one in each]

    def measure(self, number: int, chain: str) -> None:
        """Price every way on one held-out chain."""
        wanted = [(way, batches) for batches in BATCHES for way in WAYS]
        if len(self.record.part(self.name, chain)) == len(wanted):
            return
        text = HELD_OUT[chain]
        task = make_task(self.model, text, template_options=designed(text, self.region))
        own = cp.discover(
            task.probed,
            cp.Streams.from_seed(1),
            mode="soft",
            given=task.given,
            probes=self.settings["probes"],
        )

        def price(way: str, batches: int) -> Entry:
            plans = self.plans(way, batches, task, own)
            found = plan_kl(
                task.oracle,
                [list(plan.batches) for plan in plans],
                samples=self.settings["samples"],
                given=task.given,
                terms=1,
                seed=number,
            )
            return {
                "kl": found.value,
                "kl_se": found.standard_error,
                "masks": len(own.residual),
                "evaluations": found.ledger.evaluations,
            }

        for way, batches in wanted:
            self.record.measure(
                self.name, chain, f"{way} {batches}", lambda w=way, b=batches: price(w, b)
            )


def table(tasks: Tasks) -> list[Entry]:
    """Return the mean over held-out chains of every way and number of batches, with errors."""
    rows = []
    for task, parts in tasks.items():
        for batches in BATCHES:
            found = mean_row(list(parts.values()), WAYS, batches, "family", "spread")
            if found:
                rows.append({"task": task, "batches": batches, **found})
    return rows


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="where to write it")
    parser.add_argument("--quick", action="store_true", help="one chain, few samples")
    parser.add_argument("--models", help="separated by commas")
    parser.add_argument("--regions", help="loops, half or both")
    parser.add_argument("--samples", type=int)
    return parser.parse_args(words)


def run(options: argparse.Namespace) -> int:
    """Measure every held-out chain of every model and region."""
    settings: dict[str, Any] = dict(QUICK if options.quick else FULL)
    for name in ("models", "regions", "samples"):
        if getattr(options, name) is not None:
            settings[name] = getattr(options, name)
    settings["device"] = device_name(options.device)
    record = Record(options.json, settings, table, lambda line: print(line, flush=True))
    models = [
        cp.models.load(name, device=options.device) for name in settings["models"].split(",")
    ]
    for model in models:
        for region in settings["regions"].split(","):
            family = Family(model, region, settings, record)
            with record.attempt(family.name):
                for number, chain in enumerate(list(HELD_OUT)[: settings["chains"]]):
                    family.measure(number, chain)
    for row in record.claims:
        print(row, flush=True)
    for line in record.failures:
        print(line, file=sys.stderr)
    return 1 if record.failures else 0


if __name__ == "__main__":
    sys.exit(run_program(parse, run))
