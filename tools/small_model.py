"""Make the small learned model that the package carries from a trained denoiser.

    .venv/bin/python tools/small_model.py

Reads benchmarks/data/denoisers/tree.safetensors (trained by ``benchmarks/denoiser.py train``) and
writes src/counterprobe/models/data/tree.npz: matrices as bytes with one scale for each row, the
rest in half precision, and the law that the network was trained on. It is another network than the
trained one, a little: tests measure how far its rows are from those.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[1]
TRAINED = ROOT / "benchmarks" / "data" / "denoisers" / "tree.safetensors"
SMALL = ROOT / "src" / "counterprobe" / "models" / "data" / "tree.npz"


def quantised(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix as bytes, and the scale of each row."""
    scale = np.abs(matrix).max(axis=1, keepdims=True) / 127
    scale = np.where(scale > 0, scale, 1.0).astype(np.float32)
    return np.rint(matrix / scale).astype(np.int8), scale


def arrays() -> dict[str, np.ndarray]:
    """Return everything that the file holds."""
    sys.path.append(str(ROOT / "benchmarks"))
    from denoisers.laws import build_law

    found: dict[str, np.ndarray] = {}
    for name, value in load_file(TRAINED).items():
        if value.ndim == 2 and name.startswith("encoder."):
            found[name], found[f"{name}.scale"] = quantised(value.astype(np.float32))
        else:
            found[name] = value
    law = build_law("tree").forest_law()
    found |= {
        "law.edges": law.edges.astype(np.int16),
        "law.unary": law.unary,
        "law.pair": law.pair,
    }
    return found


def main() -> None:
    """Write the file."""
    SMALL.parent.mkdir(exist_ok=True)
    np.savez_compressed(SMALL, **arrays())  # type: ignore[arg-type]
    print(f"{SMALL.relative_to(ROOT)}: {SMALL.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
