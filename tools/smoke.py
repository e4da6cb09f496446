"""Look at the installed package as a user gets it: what is there works, what is missing says how.

    python tools/smoke.py            # in any environment that has counterprobe

Run it away from the sources, with whatever extras the environment has. Each extra is tried once:
where its packages are installed it must work, elsewhere the error must name the extra.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import counterprobe as cp
from counterprobe.extras import MissingExtra, load_extra

BACKBONE = """\
ATOM      1  N   ALA A   1      11.104   6.134  -6.504  1.00  0.00           N
ATOM      2  CA  ALA A   1      11.639   6.071  -5.147  1.00  0.00           C
ATOM      3  C   ALA A   1      10.556   6.346  -4.109  1.00  0.00           C
ATOM      4  O   ALA A   1       9.424   5.873  -4.228  1.00  0.00           O
TER
END
"""


def base(folder: Path) -> None:
    """Draw exactly, discover, load what the package carries, and call the command line."""
    law = cp.families.path(length=64, target_seed=1)
    drawn = cp.sample(law.oracle(), "compressed", 2, seed=1, progress=False)
    assert drawn.num_completed == 2
    assert cp.evaluation.batch_kl(law, drawn.results[0]).value < 1e-9
    assert cp.models.load_small_model().oracle().length == 64
    assert len(cp.models.Backbone.shipped("1ubi")) == 76
    uniform = cp.CallableOracle(lambda s: np.full((*s.shape, 4), 0.25), length=3, vocab_size=4)
    assert cp.sample(uniform, "one-batch", 1, progress=False).ledger.evaluations == 1
    words = [sys.executable, "-m", "counterprobe", "sample", "--n", "32", "--json", "-"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, cwd=folder).stdout
    assert '"completed"' in said


def torch(folder: Path) -> None:
    """Make an oracle of a torch module."""
    oracle = cp.models.TorchOracle
    import torch

    class Model(torch.nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return torch.zeros((*ids.shape, 5))

    found = oracle(Model().eval(), length=4, mask_id=5)
    assert cp.sample(found, "one-batch", 1, progress=False).ledger.evaluations == 1


def transformers(folder: Path) -> None:
    """Reach the class of Hugging Face models."""
    assert cp.models.LanguageModel.__name__ == "LanguageModel"


def diffusers(folder: Path) -> None:
    """Reach the scheduler."""
    from counterprobe.integrations.diffusers import UnmaskingScheduler

    assert UnmaskingScheduler.__name__ == "UnmaskingScheduler"


def structures(folder: Path) -> None:
    """Read a file of a backbone."""
    file = folder / "one.pdb"
    file.write_text(BACKBONE)
    assert cp.models.Backbone.from_file(file).sequence == "A"


def antibodies(folder: Path) -> None:
    """Find a loop of an antibody."""
    from counterprobe.models.proteins.antibody_numbering import positions_of

    heavy = "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKN"
    heavy += "TAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
    assert len(positions_of("CDR-H3", heavy)) == 13


def study(folder: Path) -> None:
    """Draw a plot."""
    words = [sys.executable, "-m", "counterprobe", "compare", "--n", "16", "--runs", "1"]
    words += ["--samplers", "random-balanced:batches=4", "--plot", str(folder / "plot.svg")]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if ran.returncode == 2:
        raise MissingExtra(ran.stderr)
    assert ran.returncode == 0, ran.stderr


def dask(folder: Path) -> None:
    """Load what joins a Dask cluster."""
    load_extra("distributed", "dask", "a Dask cluster")


def ray(folder: Path) -> None:
    """Load what joins a Ray cluster."""
    load_extra("ray", "ray", "a Ray cluster")


# The extra, what it installs, and what needs it.
EXTRAS: dict[str, tuple[tuple[str, ...], Callable[[Path], None]]] = {
    "torch": (("torch",), torch),
    "transformers": (("torch", "transformers"), transformers),
    "diffusers": (("torch", "transformers", "diffusers"), diffusers),
    "structures": (("gemmi",), structures),
    "antibodies": (("immunum",), antibodies),
    "study": (("matplotlib", "pyarrow"), study),
    "dask": (("distributed",), dask),
    "ray": (("ray",), ray),
}


def main() -> None:
    """Try everything, and say what was tried."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        base(folder)
        print(f"counterprobe {cp.__version__} on Python {sys.version.split()[0]}: works")
        for extra, (packages, use) in EXTRAS.items():
            is_there = all(importlib.util.find_spec(one) is not None for one in packages)
            try:
                use(folder)
                said = "works"
                assert is_there, f"{extra} worked without {packages}"
            except MissingExtra as problem:
                if is_there:
                    raise
                assert "counterprobe[" in str(problem), problem
                said = "missing, and says so"
            print(f"{extra}: {said}")


if __name__ == "__main__":
    main()
