"""Structure files: what was saved comes back, and anything else is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.probing.compressed import CompressedSettings

STREAMS = cp.Streams(71, 72)


def test_a_saved_structure_comes_back(
    law: cp.ForestLaw, structure: cp.Structure, tmp_path: Path
) -> None:
    file = tmp_path / "structure.npz"
    structure.save(file)
    back = cp.Structure.load(file)
    assert back.summary() == structure.summary()
    for name in ("edges", "is_resolved", "evidence", "misfit", "given", "sample_rows"):
        np.testing.assert_array_equal(getattr(back, name), getattr(structure, name))
    np.testing.assert_array_equal(
        back.sample(law.oracle(), 2, STREAMS).tokens,
        structure.sample(law.oracle(), 2, STREAMS).tokens,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["structure.npz"]


def test_a_failed_save_leaves_the_old_file(structure: cp.Structure, tmp_path: Path) -> None:
    file = tmp_path / "structure.npz"
    file.write_bytes(b"precious")
    unsavable = cp.Structure.load  # any object that JSON cannot hold
    broken = replace(structure, about={"oracle": unsavable})
    with pytest.raises(TypeError):
        broken.save(file)
    assert file.read_bytes() == b"precious"
    assert [path.name for path in tmp_path.iterdir()] == ["structure.npz"]


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused(
    structure: cp.Structure, tmp_path: Path, fraction: float
) -> None:
    file = tmp_path / "structure.npz"
    structure.save(file)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(fraction * len(whole))])
    with pytest.raises(cp.StructureError, match=r"damaged|not a structure file"):
        cp.Structure.load(file)


def test_a_tampered_file_is_refused(structure: cp.Structure, tmp_path: Path) -> None:
    file = tmp_path / "structure.npz"
    structure.save(file)
    with np.load(file) as archive:
        contents = dict(archive)
    contents["edges"] = contents["edges"][1:]
    np.savez_compressed(file, **contents)
    with pytest.raises(cp.StructureError, match="digest does not match"):
        cp.Structure.load(file)


def test_flipped_bits_are_refused(structure: cp.Structure, tmp_path: Path) -> None:
    file = tmp_path / "structure.npz"
    structure.save(file)
    whole = file.read_bytes()
    draw = np.random.default_rng(0)
    for _ in range(150):
        broken = bytearray(whole)
        broken[draw.integers(len(whole))] ^= 1 << int(draw.integers(8))
        file.write_bytes(bytes(broken))
        try:
            back = cp.Structure.load(file)
        except cp.StructureError:
            continue
        # What a flip in the archive's own records leaves readable is unchanged.
        assert back.summary() == structure.summary()
        np.testing.assert_array_equal(back.edges, structure.edges)


def test_settings_may_be_numpy_numbers(law: cp.ForestLaw, tmp_path: Path) -> None:
    settings = CompressedSettings(max_probes=np.int64(400))
    structure = cp.discover(law.oracle(), STREAMS, settings=settings)
    structure.save(tmp_path / "structure.npz")
    assert cp.Structure.load(tmp_path / "structure.npz").about["settings"]["max_probes"] == 400


def test_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.npz"
    np.savez(file, edges=np.zeros((2, 2)))
    with pytest.raises(cp.StructureError, match="it lacks digest"):
        cp.Structure.load(file)
    file.write_text("edges: none")
    with pytest.raises(cp.StructureError, match="not a structure file"):
        cp.Structure.load(file)
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(cp.StructureError, match="not a structure file"):
        cp.Structure.load(tmp_path / "pickled.npy")
    with pytest.raises(FileNotFoundError):
        cp.Structure.load(tmp_path / "missing.npz")
