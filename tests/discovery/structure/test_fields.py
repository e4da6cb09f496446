"""Fields of structure files: what no structure has is refused by name, digest or not."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery import Certificate
from counterprobe.discovery.structure import no_terms
from counterprobe.discovery.structure_file import arrays_of

Edit = Callable[..., Path]
LAYOUT = {**arrays_of(cp.Structure), **arrays_of(Certificate)}
VALUES = [
    one.name
    for kind in (cp.Structure, Certificate)
    for one in fields(kind)
    if one.name not in {*LAYOUT, "certificate", "strengths"}
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the file of a structure of twelve positions, one of them given."""
    law = cp.families.build("path", 12, 196)
    given = np.full(12, cp.MASK)
    given[3] = 1
    file = tmp_path_factory.mktemp("fields") / "small.npz"
    cp.discover(law.oracle(), cp.Streams(1, 2), given=given).save(file)
    return file.read_bytes()


@pytest.fixture
def file(small: bytes, tmp_path: Path) -> Path:
    (tmp_path / "small.npz").write_bytes(small)
    return tmp_path / "small.npz"


def refusal(file: Path) -> str:
    with pytest.raises(cp.StructureError) as caught:
        cp.Structure.load(file)
    message = str(caught.value)
    assert message.startswith(f"cannot read {file}: ")
    assert message.endswith("; discover the structure again")
    assert "\n" not in message
    assert len(message) < 600
    return message


def of(structure: cp.Structure, name: str) -> Any:
    """Return an array of a structure or of its certificate."""
    return getattr(structure if name in arrays_of(cp.Structure) else structure.certificate, name)


def test_an_edit_that_changes_nothing_loads(file: Path, edited: Edit) -> None:
    before = cp.Structure.load(file)
    after = cp.Structure.load(edited(file))
    assert after.summary() == before.summary()


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("vocab_size", 0, "vocab_size must be a whole number from 1 to"),
        ("vocab_size", 2.0, "vocab_size must be a whole number"),
        ("vocab_size", True, "vocab_size must be a whole number"),
        ("vocab_size", "2048", "vocab_size must be a whole number"),
        ("vocab_size", 2**31, "vocab_size must be a whole number"),
        ("vocab_size", 10**400, "vocab_size must be a whole number"),
        ("vocab_size", 1, "given must lie in -1..0, got -1..1"),
        ("row_width", 0, "row_width must be a whole number"),
        ("row_width", 2, "sample_rows must have at most row_width = 2 entries"),
        ("needed", -1, "needed must be a whole number from 0"),
        ("needed", None, "needed must be a whole number from 0"),
        ("needed", 2**63, "needed must be a whole number from 0"),
        ("reason", None, "reason must be a text, got None"),
        ("reason", ["a"], "reason must be a text"),
        ("row_error", float("nan"), "row_error must be a number from 0.0 to 1.0, got nan"),
        ("row_error", -1e-9, "row_error must be a number from 0.0 to 1.0"),
        ("row_error", True, "row_error must be a number from 0.0 to 1.0"),
        ("precision", float("inf"), "precision must be a number from 0.0 to 1.0, got inf"),
        ("precision", "0", "precision must be a number from 0.0 to 1.0"),
        ("about", [], "about must be an object"),
        ("about", None, "about must be an object"),
        ("ledger", 3, "ledger must be an object"),
        ("ledger", {"probes": -1}, "ledger.probes must be a whole number"),
        ("ledger", {"probes": 1.5}, "ledger.probes must be a whole number"),
        ("ledger", {"evaluations": 1}, "ledger has unknown counts"),
        ("format", "counterprobe structure 2", "it has the format 'counterprobe structure 2'"),
        ("format", None, "it has the format None, this version reads"),
        ("format", ["x"], "it has the format"),
        ("author", "me", "lacks or has too many of"),
    ],
)
def test_a_wrong_value_is_refused(
    file: Path, edited: Edit, field: str, value: Any, problem: str
) -> None:
    assert re.search(problem, refusal(edited(file, header={field: value})))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "JSONDecodeError"),
        ("{", "JSONDecodeError"),
        ("null", "its header must be an object, got None"),
        ("[1, 2]", "its header must be an object"),
        ('"text"', "its header must be an object"),
        ("{}", "it has the format None"),
        ('{"format": "counterprobe structure 3"}', "lacks or has too many of"),
        ("[" * 100_000, "damaged"),
        ('{"vocab_size": 1' + "0" * 5000 + "}", "damaged"),
    ],
)
def test_a_wrong_header_is_refused(file: Path, edited: Edit, text: str, problem: str) -> None:
    assert problem in refusal(edited(file, header=text))


@pytest.mark.parametrize("name", VALUES)
def test_a_missing_value_is_refused(file: Path, edited: Edit, name: str) -> None:
    with np.load(file) as archive:
        text = str(archive["header"])
    missing = text.replace(f'"{name}"', '"other"')
    assert missing != text
    assert name in refusal(edited(file, header=missing))


@pytest.mark.parametrize("name", LAYOUT)
def test_a_missing_array_is_refused(file: Path, edited: Edit, name: str) -> None:
    assert f"it lacks {name}" in refusal(edited(file, without=(name,)))


@pytest.mark.parametrize("name", LAYOUT)
def test_another_type_is_refused(file: Path, edited: Edit, name: str) -> None:
    with np.load(file) as archive:
        array = archive[name]
    for other in (np.float16, np.int16, np.complex128, "U3", "S3", "M8[s]"):
        changed = np.zeros(array.shape, dtype=other)
        assert f"{name} must have the type" in refusal(edited(file, **{name: changed}))
    fields = np.zeros(array.shape, dtype=[("a", np.int64)])
    assert f"{name} must have the type" in refusal(edited(file, **{name: fields}))


@pytest.mark.parametrize("name", LAYOUT)
def test_another_shape_is_refused(file: Path, edited: Edit, name: str) -> None:
    with np.load(file) as archive:
        array = archive[name]
    shapes = [(), (0,), (*array.shape, 1), (13,), (7, 3), (2, 12, 1), (0, 0)]
    for shape in shapes[: 6 if name == "nearness" else 7]:
        changed = np.zeros(shape, dtype=array.dtype)
        said = refusal(edited(file, **{name: changed}))
        assert re.search("must have the shape|must be distinct|it has no positions", said), said


@pytest.mark.parametrize(
    ("name", "index", "value", "problem"),
    [
        ("given", 0, -2, "given must lie in -1..2047, got -2..1"),
        ("given", 0, 2048, "given must lie in -1..2047"),
        ("given", 0, 1, "sample_states must agree with given"),
        ("edges", (0, 0), -1, "edges must lie in 0..11, got -1.."),
        ("edges", (0, 1), 12, "edges must lie in 0..11, got 0..12"),
        ("edges", (0, 1), 0, "edges must join two different vertices"),
        ("evidence", 5, -1, "evidence must lie in 0.."),
        ("misfit", 5, np.nan, "misfit must be a number where a position is resolved"),
        ("misfit", 5, -0.1, "misfit must lie in 0..inf, got -0.1.."),
        ("sample_states", (0, 0), 2048, "sample_states must lie in -1..2047"),
        ("sample_states", (0, 0), -5, "sample_states must lie in -1..2047"),
        ("sample_states", (0, 3), cp.MASK, "sample_states must agree with given"),
        ("sample_index", 0, -1, "sample_index must lie in 0..11"),
        ("sample_index", 0, 12, "sample_index must lie in 0..11"),
        ("sample_position", 0, -1, "sample_position must lie in 0..11"),
        ("sample_position", 0, 12, "sample_position must lie in 0..11"),
        ("sample_position", 0, 3, "stored replies must be those of masked positions"),
        ("sample_rows", (0, 0), np.inf, "sample_rows must lie in 0..inf"),
    ],
)
def test_a_value_out_of_range_is_refused(
    file: Path, edited: Edit, name: str, index: Any, value: Any, problem: str
) -> None:
    with np.load(file) as archive:
        array = archive[name].copy()
    array[index] = value
    assert problem in refusal(edited(file, **{name: array}))


def test_an_edge_is_there_once(file: Path, edited: Edit) -> None:
    edges = cp.Structure.load(file).edges.copy()
    edges[0] = edges[1, ::-1]
    assert "edges must be distinct" in refusal(edited(file, edges=edges))


def test_truth_values_are_true_or_false(file: Path, edited: Edit) -> None:
    odd = np.full(12, 2, dtype=np.uint8).view(np.bool_)
    assert "is_resolved must lie in 0..1, got 2..2" in refusal(edited(file, is_resolved=odd))


def test_terms_must_be_logarithms(file: Path, edited: Edit) -> None:
    edges = len(cp.Structure.load(file).edges)
    unary, tables = np.zeros((12, 3)), np.zeros((edges, 3, 3))
    unary[0, 0] = -np.inf  # a zero weight
    loaded = cp.Structure.load(edited(file, unary=unary, tables=tables))
    assert loaded.certificate.unary[0, 0] == -np.inf
    for bad in (np.nan, np.inf):
        tables[0, 0, 0] = bad
        said = refusal(edited(file, unary=unary, tables=tables))
        assert "tables must lie in -inf..inf" in said
    said = refusal(edited(file, unary=unary, tables=np.zeros((edges, 2, 2))))
    assert f"tables must have the shape ({edges}, 3, 3), got ({edges}, 2, 2)" in said


def test_other_byte_orders_are_understood(file: Path, edited: Edit) -> None:
    before = cp.Structure.load(file)
    arrays = {name: of(before, name) for name in LAYOUT}
    turned = {name: one.astype(one.dtype.newbyteorder(">")) for name, one in arrays.items()}
    after = cp.Structure.load(edited(file, **turned))
    for name in LAYOUT:
        np.testing.assert_array_equal(of(after, name), arrays[name])
        assert of(after, name).dtype.isnative


def test_positions_are_tested_by_terms_alone(file: Path, edited: Edit) -> None:
    edges = len(cp.Structure.load(file).edges)
    bare = no_terms(12, edges) | {"is_tested": np.arange(12) == 0}
    assert "there are no terms to test them by" in refusal(edited(file, **bare))
