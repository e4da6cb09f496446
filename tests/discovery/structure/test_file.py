"""Structure files: what was saved comes back, and anything else is refused."""

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import counterprobe as cp
from counterprobe.discovery.compressed import CompressedSettings
from counterprobe.discovery.structure import no_terms

STREAMS = cp.Streams(71, 72)


def test_a_saved_structure_comes_back(
    law: cp.ForestLaw, structure: cp.Structure, tmp_path: Path
) -> None:
    file = tmp_path / "structure.npz"
    structure.save(file)
    back = cp.Structure.load(file)
    assert back.summary() == structure.summary()
    assert back.strengths is None
    for one, other in ((structure, back), (structure.certificate, back.certificate)):
        for field in fields(one):
            mine, saved = getattr(one, field.name), getattr(other, field.name)
            if field.name != "certificate":
                np.testing.assert_array_equal(saved, mine, strict=isinstance(mine, np.ndarray))
    np.testing.assert_array_equal(
        cp.sample(law.oracle(), back, 2, seed=STREAMS).sequences,
        cp.sample(law.oracle(), structure, 2, seed=STREAMS).sequences,
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
    edges = contents["edges"]
    for changed in (edges[::-1], edges[:, ::-1]):
        np.savez_compressed(file, **{**contents, "edges": changed})
        with pytest.raises(cp.StructureError, match="digest does not match"):
            cp.Structure.load(file)
    np.savez_compressed(file, **{**contents, "edges": edges[1:]})
    with pytest.raises(cp.StructureError, match=r"tables must have the shape \(203, 3, 3\)"):
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


# ----- Terms ----------------------------------------------------------------------------------


def test_a_structure_without_terms_is_rehearsed_layer_by_layer(tmp_path: Path) -> None:
    law = cp.families.build("random-forest", 24, 196)
    given = np.full(24, cp.MASK)
    given[5] = 1
    found = cp.discover(law.oracle(), STREAMS, given=given)
    bare = replace(found.certificate, **no_terms(24, len(found.edges)))
    replace(found, certificate=bare).save(tmp_path / "untested.npz")
    structure = cp.Structure.load(tmp_path / "untested.npz")
    assert structure.summary()["untested"] == 23
    checked = cp.discovery.check_oracle(structure, law.oracle())
    assert checked.probes > len(structure.sample_states)
    np.testing.assert_array_equal(
        cp.sample(law.oracle(), structure, 2, seed=STREAMS).sequences,
        cp.sample(law.oracle(), found, 2, seed=STREAMS).sequences,
    )


def test_fitted_terms_are_kept(structure: cp.Structure, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    tested = rng.random(256) < 0.5
    terms = replace(
        structure.certificate,
        unary=rng.normal(size=(256, 3)),
        tables=rng.normal(size=(len(structure.edges), 3, 3)),
        is_tested=tested,
    )
    told = replace(structure, certificate=terms)
    told.save(tmp_path / "structure.npz")
    back = cp.Structure.load(tmp_path / "structure.npz")
    for name in ("unary", "tables", "is_tested"):
        array = getattr(back.certificate, name)
        np.testing.assert_array_equal(array, getattr(terms, name), strict=True)
        assert not array.flags.writeable
    assert back.summary()["untested"] == (~tested).sum()


def test_a_structure_that_could_not_be_read_back_is_not_saved(
    structure: cp.Structure, tmp_path: Path
) -> None:
    short = replace(structure.certificate, is_tested=np.zeros(255, dtype=bool))
    wrong = replace(structure, certificate=short)
    with pytest.raises(cp.StructureError, match=r"cannot save to .*is_tested must have the shape"):
        wrong.save(tmp_path / "structure.npz")
    assert list(tmp_path.iterdir()) == []


# ----- Archives made to harm ------------------------------------------------------------------


def as_member(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def members_of(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rebuilt(file: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file


def peak_of_refusing(file: Path, problem: str) -> int:
    """Return the memory that it took to refuse a file."""
    tracemalloc.start()
    try:
        with pytest.raises(cp.StructureError, match=problem):
            cp.Structure.load(file)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "shape", "numbers", "problem"),
    [
        ("extra", (2**24,), np.uint8, "it has a member of another kind, 'extra'"),
        ("header", (2**24,), np.uint8, "header must hold one text of at most"),
        ("header", (), "U4194304", "header must hold one text of at most"),
        ("evidence", (2**24,), np.uint8, "evidence must have the type int64"),
        ("misfit", (2**21,), np.float64, r"must have the shape \(256\), got \(2097152,\)"),
        ("sample_rows", (2**21, 1), np.float64, "sample_rows must have the shape"),
        ("edges", (2**20, 2), np.int64, "tables must have the shape"),
        ("tables", (53, 200, 200), np.float64, "tables must have the shape"),
    ],
)
def test_what_does_not_belong_is_never_unpacked(
    structure: cp.Structure, tmp_path: Path, name: str, shape: Any, numbers: Any, problem: str
) -> None:
    file = tmp_path / "structure.npz"
    structure.save(file)
    bomb = as_member(np.zeros(shape, dtype=numbers))
    assert len(bomb) >= 2**24
    rebuilt(file, {**members_of(file), f"{name}.npy": bomb})
    assert peak_of_refusing(file, problem) < 2**22


def test_a_member_longer_than_its_array_is_never_unpacked(
    structure: cp.Structure, tmp_path: Path
) -> None:
    file = tmp_path / "structure.npz"
    structure.save(file)
    members = members_of(file)
    rebuilt(file, {**members, "misfit.npy": members["misfit.npy"] + bytes(2**24)})
    problem = "misfit.npy has 16779392 bytes, its header says 2176"
    assert peak_of_refusing(file, problem) < 2**22


def test_a_structure_larger_than_any_is_refused(
    structure: cp.Structure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    structure.save(tmp_path / "structure.npz")
    monkeypatch.setattr("counterprobe.discovery.structure_file.MOST_ARRAYS", 1000)
    with pytest.raises(cp.StructureError, match="at most 1,000 bytes"):
        cp.Structure.load(tmp_path / "structure.npz")
    with pytest.raises(cp.StructureError, match="more than the 1000 of any structure"):
        structure.save(tmp_path / "again.npz")


def test_two_members_of_one_name_are_refused(structure: cp.Structure, tmp_path: Path) -> None:
    file = tmp_path / "structure.npz"
    structure.save(file)
    with zipfile.ZipFile(file) as archive:
        edges = archive.read("edges.npy")
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("edges.npy", edges)
    with pytest.raises(cp.StructureError, match="two members of one name"):
        cp.Structure.load(file)


def loads_or_refuses(file: Path) -> bool:
    """Load and look at a file; only a structure error of one line may come of it."""
    try:
        structure = cp.Structure.load(file)
    except cp.StructureError as error:
        assert "\n" not in str(error)
        return False
    assert len(structure.order.batches) <= structure.length
    structure.summary()
    return True


def small_file(tmp_path: Path) -> tuple[Path, bytes]:
    law = cp.families.build("path", 12, 196)
    file = tmp_path / "small.npz"
    cp.discover(law.oracle(), STREAMS).save(file)
    return file, file.read_bytes()


def test_no_change_of_the_archive_raises_anything_else(tmp_path: Path) -> None:
    file, saved = small_file(tmp_path)
    rng = np.random.default_rng(2)
    for _ in range(400):
        broken = bytearray(saved)
        broken[rng.integers(len(saved))] = rng.integers(256)
        file.write_bytes(bytes(broken))
        loads_or_refuses(file)
    for end in rng.integers(len(saved), size=100):
        file.write_bytes(saved[:end])
        assert not loads_or_refuses(file)
    for start in rng.integers(1, len(saved), size=50):
        file.write_bytes(saved[start:])
        loads_or_refuses(file)
    file.write_bytes(saved)
    assert loads_or_refuses(file)


def test_no_change_of_an_array_header_raises_anything_else(tmp_path: Path) -> None:
    # With the archive's own checksums right, so that NumPy's parser gets to see it.
    file, _ = small_file(tmp_path)
    rng = np.random.default_rng(3)
    members = members_of(file)
    for _ in range(300):
        name = sorted(members)[rng.integers(len(members))]
        data = bytearray(members[name])
        data[rng.integers(128)] = rng.integers(256)
        loads_or_refuses(rebuilt(file, {**members, name: bytes(data)}))


def test_no_change_under_a_right_digest_raises_anything_else(
    tmp_path: Path, edited: Callable[..., Path]
) -> None:
    file, saved = small_file(tmp_path)
    rng = np.random.default_rng(4)
    with np.load(file) as archive:
        contents = dict(archive)
    text = str(contents.pop("header"))
    del contents["digest"]
    names = sorted(contents)
    outcomes = []
    for _ in range(300):
        file.write_bytes(saved)
        if rng.random() < 0.5:
            k = rng.integers(len(text))
            changed = text[:k] + chr(rng.integers(32, 127)) + text[k + 1 :]
            outcomes.append(loads_or_refuses(edited(file, header=changed)))
            continue
        name = names[rng.integers(len(names))]
        array = contents[name].copy()
        if array.size:
            flat = array.reshape(-1).view(np.uint8)
            flat[rng.integers(len(flat))] = rng.integers(256)
        outcomes.append(loads_or_refuses(edited(file, **{name: array})))
    assert any(outcomes)  # a letter in a name changes nothing that can be known
    assert not all(outcomes)
