"""Options that commands share, read and checked, and what is made of them.

A group of options is a dataclass: a command that takes one has all of its options
(``output.command``). A law is built here, a model loaded, an executor opened; what stands around a
run (its log, retries, trace) is in ``runs.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from counterprobe.cli import output
from counterprobe.executors import Executors, cluster, local_processes
from counterprobe.files import read_bytes
from counterprobe.infilling.fasta import FastaRecord, parse_fasta
from counterprobe.infilling.task import ModelOracle, Task, as_template, make_task
from counterprobe.models import MaskedModel, Template
from counterprobe.models.proteins.backbones import SHIPPED
from counterprobe.models.registry import options_of
from counterprobe.models.residues import Choices
from counterprobe.oracles import Oracle
from counterprobe.oracles.cache import cached_row_error
from counterprobe.targets import families
from counterprobe.targets.law import ForestLaw

# Bytes of a file that holds a sequence; no model reads a longer one.
MOST_TEXT = 1 << 24
DEFAULT_LENGTH = 4096
WORKERS_HELP = "Spread the work over so many processes of this machine."

# An option under each heading of the help.
in_target, in_model, in_workers, in_faults, in_sampler, in_output = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("Target", "Model", "Workers", "Faults", "Sampler", "Output")
)

JsonFile = Annotated[str | None, in_output(metavar="FILE", help="Write JSON ('-': print it).")]
PlotFile = Annotated[
    str | None,
    in_output(metavar="FILE", help="Draw it (.png, .svg or .pdf; needs the extra 'study')."),
]
Evaluate = Annotated[bool, in_output(help="Measure the batch KL.")]
KlDraws = Annotated[int, in_output(help="Monte Carlo draws per large factor of the KL.")]
SamplerName = Annotated[str, in_sampler(help="See 'counterprobe samplers'.")]
Settings = Annotated[
    list[str] | None,
    in_sampler("--set", metavar="KEY=VALUE", help="A setting of it; may be repeated."),
]
Seed = Annotated[int, in_sampler(help="Sets decision and commit seeds.")]
MaxEvaluations = Annotated[
    int | None,
    in_sampler(help="Stop a run before more evaluations than this, and say what was paid."),
]
Model = Annotated[
    str,
    in_model(
        help="A name that 'counterprobe models' lists, or the folder of a Hugging Face model or "
        "its name on the hub."
    ),
]
ModelOrLaw = Annotated[
    str | None,
    in_model(help="A name that 'counterprobe models' lists, or a folder; a hidden law otherwise."),
]
Order = Annotated[
    str | None,
    in_model(
        help="For proteinmpnn: 'commit' keeps what revealed residues computed, which is fast, "
        "but cannot be probed.",
        show_default="index",
    ),
]

Device = Annotated[
    str | None, in_model(help="Where the model runs.", show_default="a GPU where there is one")
]
BackboneFile = Annotated[
    str | None,
    in_model(
        help="For proteinmpnn and frame2seq: a PDB or mmCIF file, or one of the shipped examples, "
        "1ubi and 1ake; 'infill' takes several, with commas.",
        show_default=False,
    ),
]
Chains = Annotated[
    str | None,
    in_model(help="The chains to read from that file, such as B,A.", show_default="all of them"),
]
FillGaps = Annotated[
    bool,
    in_model("--fill-gaps", help="Residues that it leaves out within a chain are given too."),
]
Weights = Annotated[
    str | None,
    in_model(help="Which weights a model takes, where it has several, or a file of them."),
]
Download = Annotated[
    bool, in_model("--download", help="Fetch a Hugging Face model that is not here yet.")
]


def check_draws(kl_draws: int) -> None:
    """Refuse too few draws to know an error."""
    if kl_draws < 2:
        raise ValueError(f"--kl-draws must be at least 2, got {kl_draws}")


def check_timeout(timeout: float | None) -> None:
    """Refuse a time limit that is none."""
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError(f"--timeout must be above 0 seconds, got {timeout}")


def refuse_given(why: str, **options: Any) -> None:
    """Refuse options that were given and mean nothing here; ``{}`` in the reason names them."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if given:
        raise ValueError(why.format(", ".join(given)))


# ----- Laws ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Law:
    """A hidden law: a family or an edge list file."""

    family: Annotated[
        str | None,
        in_target(
            help=f"Family of the hidden forest, path by default: {', '.join(families.FAMILIES)}."
        ),
    ] = None
    edges: Annotated[
        str | None,
        in_target(
            metavar="FILE",
            help="Your own forest instead: 'i j' or 'i j w' a line, 0-based, # comments.",
        ),
    ] = None
    n: Annotated[int | None, in_target("--n", help="Number of positions; 4096 by default.")] = None
    target_seed: Annotated[int, in_target(help="Target draw: fields, labels, shape.")] = 196
    weight: Annotated[float | None, in_target(help="Edge weight in place of the family's.")] = None
    signs: Annotated[str, in_target(help="'same' or 'mixed' signs of the weights.")] = "same"
    classes: Annotated[int | None, in_target(help="Token classes, with --tables random.")] = None
    tables: Annotated[str, in_target(help="'rank-one' or 'random' pair tables.")] = "rank-one"

    def build(self) -> ForestLaw:
        """Build the law."""
        if self.edges is not None:
            is_plain = self.signs == "same" and self.classes is None and self.tables == "rank-one"
            if self.family is not None or not is_plain:
                raise ValueError(
                    "--edges brings its own forest and weights: leave out --family, --signs, "
                    "--classes and --tables"
                )
            weight = 0.25 if self.weight is None else self.weight
            return families.from_file(self.edges, self.n, self.target_seed, weight=weight)
        changes: dict[str, Any] = {
            "weight": self.weight,
            "signs": self.signs,
            "classes": self.classes,
            "tables": self.tables,
        }
        length = DEFAULT_LENGTH if self.n is None else self.n
        return families.build(self.family or "path", length, self.target_seed, **changes)

    def refuse(self) -> None:
        """Refuse to name a law beside a model."""
        why = "--model brings a law of its own: leave out {}"
        refuse_given(why, family=self.family, edges=self.edges, n=self.n, weight=self.weight)


# ----- Models -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """How a model is loaded, and the text with masks that it is to fill in."""

    sequence: Annotated[
        str | None,
        in_model(
            help="The text with masks, written [MASK]; X too for proteins. '@FILE' reads a file, "
            "also of many FASTA records.",
            show_default="everything masked, where the model knows its length",
        ),
    ] = None
    device: Device = None
    backbone: BackboneFile = None
    chains: Chains = None
    fill_gaps: FillGaps = False
    weights: Weights = None
    download: Download = False
    design: Annotated[
        str | None,
        in_model(
            metavar="RESIDUES",
            help="What is drawn, by chain and number: A10-25,B7, a whole chain A, or 27-35; all "
            "else stays as in the text or file.",
        ),
    ] = None
    fixed: Annotated[
        str | None, in_model(metavar="RESIDUES", help="What stays; all else is drawn.")
    ] = None
    tied: Annotated[
        str | None,
        in_model(metavar="RESIDUES", help="What has one letter: A10=B10, A1-76=B1-76."),
    ] = None
    symmetric: Annotated[
        str | None,
        in_model(metavar="CHAINS", help="Chains of a homomer, A,B,C: the same numbers are tied."),
    ] = None
    allowed: Annotated[str | None, in_model(help="Letters that may be drawn, at every mask.")] = (
        None
    )
    omit: Annotated[str | None, in_model(help="Letters that are not drawn, at any mask.")] = None
    rules: Annotated[
        str | None,
        in_model(
            metavar="FILE",
            help="A line for residues: 'A10-25 AVL' allows, 'A30 -CP' leaves out, 'A7 W:1.5' "
            "adds to logits.",
        ),
    ] = None
    temperature: Annotated[
        float, in_model(help="Logits are divided by it; 0 takes the likeliest tokens.")
    ] = 1.0

    def task(
        self,
        model: str,
        executor: Executors | None = None,
        *,
        timeout: float | None = None,
        order: str | None = None,
        is_probed: bool = False,
        like: MaskedModel | None = None,
        cache: str | None = None,
    ) -> Task:
        """Load a model for its text, and spread its evaluations over an executor.

        Parameters
        ----------
        model : str
        executor : executor, optional
            Every worker of it loads the model, too.
        timeout : float, optional
            Seconds that a worker may take over its share of a query.
        order : str, optional
            That of ProteinMPNN.
        is_probed : bool
            Whether dependence is looked for, of which temperature 0 leaves none.
        like : MaskedModel, optional
            The same model on the same backbone, which is then not loaded again.
        cache : str, optional
            A cache of its replies, which has the row error that it need not measure again.
        """
        if is_probed and not self.temperature > 0:
            raise ValueError(
                "--temperature must be above 0, where something is left to depend, got "
                f"{self.temperature}"
            )
        if executor is not None and order == "commit":
            raise ValueError(
                "--order commit must run in this process, as replicas do not share what was "
                "committed: leave out --workers and --cluster"
            )
        text, named = read_sequence(self.sequence), self.named(model, order)
        named["temperature"] = self.temperature
        if cache is not None and (row_error := cached_row_error(cache)) is not None:
            named["oracle_options"]["row_error"] = row_error
        if like is not None:
            task = make_task(like, text, **{**named, "model_options": {}})
        else:
            task = make_task(model, text, **named)
            self.tell_notes(task.model)
        if executor is None:
            return task
        # What was measured here is not measured again.
        named["oracle_options"]["row_error"] = task.oracle.row_error
        build = ModelOracle(model, text, **named)
        return replace(task, oracle=spread(task.oracle, executor, timeout, build))

    def template(self, model: MaskedModel) -> Template:
        """Let a loaded model read the text, with what was chosen of its residues."""
        chosen = {name: value for name, value in self._chosen().items() if value is not None}
        return as_template(model, self.sequence, self.allowed, chosen)

    def tell_notes(self, model: MaskedModel | None) -> None:
        """Say what is odd about the backbone of a model."""
        for note in getattr(model, "notes", ()):
            output.complain(f"{self.backbone}: {note}")

    def named(self, model: str, order: str | None = None) -> dict[str, Any]:
        """Return what ``make_task`` takes beside the text; refuse options of another model."""
        loading = self._loading()
        takes = (*options_of(model), *(("order",) if model == "proteinmpnn" else ()))
        others = {k: value for k, value in {**loading, "order": order}.items() if k not in takes}
        refuse_given(f"{{}} must come with a model that takes it, got --model {model}", **others)
        if self.backbone is None or self.backbone in SHIPPED:
            of_files = {"chains": self.chains, "fill_gaps": self.fill_gaps or None}
            refuse_given("{} must come with a structure file as --backbone", **of_files)
        loading["device"] = self.device
        return {
            "allowed": self.allowed,
            "template_options": {k: v for k, v in self._chosen().items() if v is not None},
            "model_options": {k: value for k, value in loading.items() if value is not None},
            "oracle_options": {} if order is None else {"order": order},
        }

    def _chosen(self) -> dict[str, str | None]:
        """Return which residues are designed and what may stand where, None where not given."""
        return {name: getattr(self, name) for name in Choices.__annotations__}

    def _loading(self) -> dict[str, Any]:
        """Return what only some models take, None where it was not given."""
        given = {name: getattr(self, name) for name in ("backbone", "chains", "weights")}
        flags = {name: getattr(self, name) or None for name in ("fill_gaps", "download")}
        return given | flags

    def refuse(self) -> None:
        """Refuse what only a model has, where none was named."""
        warm = None if self.temperature == 1 else self.temperature
        given = {name: getattr(self, name) for name in ("sequence", "device", "allowed")}
        given |= self._loading() | self._chosen()
        refuse_given("a model must be named with --model for {}", **given, temperature=warm)


def read_sequence(sequence: str | None) -> str | None:
    """Return a text given directly or, after ``@``, in a file: FASTA without its header."""
    if sequence is None or not sequence.startswith("@"):
        return sequence
    records = read_records(sequence)
    if len(records) > 1:
        raise ValueError(
            f"{sequence[1:]} holds {len(records)} sequences; this command takes one at a time"
        )
    return records[0].sequence


def read_records(sequence: str) -> list[FastaRecord]:
    """Return the records of a file that was named after ``@``; other text is one, as it is."""
    try:
        text = read_bytes(sequence[1:], MOST_TEXT).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"--sequence {sequence} must name a text file in UTF-8") from None
    if text.strip() and not text.lstrip().startswith(">"):
        return [FastaRecord(Path(sequence[1:]).stem, text.strip())]
    return parse_fasta(text, sequence[1:])


# ----- Executors ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Executor:
    """Where work is done."""

    workers: Annotated[int | None, in_workers(help=WORKERS_HELP, show_default="this process")] = (
        None
    )
    cluster: Annotated[
        str | None,
        in_workers(
            metavar="ADDRESS",
            help="Spread it over a cluster: a Dask scheduler, tcp://HOST:PORT, or Ray, "
            "ray:HOST:PORT or ray:auto (need the extras 'dask' and 'ray').",
        ),
    ] = None

    def open(self, device: str | None = None) -> Executors | None:
        """Return the executor that was chosen, open until the command ends; None when none was."""
        if self.cluster is None:
            return None if self.workers is None else output.hold(local_processes(self.workers))
        refuse_given("--cluster has workers of its own: leave out {}", workers=self.workers)
        return output.hold(cluster(self.cluster, gpus=float((device or "").startswith("cuda"))))


@dataclass(frozen=True, slots=True)
class RunExecutor(Executor):
    """Where whole runs are made."""

    timeout: Annotated[
        float | None,
        in_workers(help="Seconds that a worker may take over a run.", show_default="no limit"),
    ] = None

    def __post_init__(self) -> None:
        """Refuse a time limit that is none."""
        check_timeout(self.timeout)

    def open(self, device: str | None = None) -> Executors | None:
        """Return the executor that was chosen, open until the command ends; None when none was."""
        opened = Executor.open(self, device)
        if opened is None:
            refuse_given("{} must come with --workers or --cluster", timeout=self.timeout)
        return opened


def spread(
    oracle: Oracle,
    executor: Executors,
    timeout: float | None,
    build: Callable[[], Oracle] | None = None,
) -> Oracle:
    """Spread an oracle's evaluations over an executor; say at the end if workers were lost."""
    told = output.hold(losses_told())
    return oracle.sharded(executor, timeout=timeout, build=build, on_loss=told)


@contextmanager
def losses_told() -> Iterator[Callable[[str], object]]:
    """Give what takes note of a lost worker; if all ends well, say how many there were."""
    losses: list[str] = []
    yield losses.append
    say_losses(losses)


def say_losses(losses: Sequence[str]) -> None:
    """Say on standard error how many workers were lost, if any were."""
    if losses:
        lost = "1 worker was" if len(losses) == 1 else f"{len(losses)} workers were"
        output.complain(
            f"{lost} lost, and what was begun there was done again elsewhere; the last time "
            f"{losses[-1]}"
        )
