"""Rows come back from bytes to the last bit, in the kind and precision they had."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe import Reply
from counterprobe.extras import MissingExtra
from counterprobe.models.rows import TorchRows
from counterprobe.oracles.codec import (
    HEAD,
    decode_reply,
    encode_reply,
    pack,
    unpack,
)
from counterprobe.tempered import TemperedRows

POSITIONS = np.array([3, 0, 5])


def through(rows, classes=(), positions=POSITIONS):
    encoded = encode_reply(Reply(rows), positions, 0 if classes else None)
    assert encoded is not None
    return decode_reply(*unpack(pack(*encoded)), positions, list(classes)).rows


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_dense_rows_keep_their_precision(dtype):
    masses = np.random.default_rng(1).dirichlet(np.ones(4), size=3).astype(dtype)
    rows = through(cp.rows.DenseRows(masses))
    assert type(rows) is cp.rows.DenseRows
    assert rows.masses.dtype == dtype and np.array_equal(rows.masses, masses)
    assert rows.masses.flags.writeable


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", [cp.rows.DenseRows, TorchRows])
def test_tensors_stay_tensors_of_their_type(dtype, kind):
    masses = torch.rand((3, 4), generator=torch.Generator().manual_seed(1)).to(dtype)
    rows = through(kind(masses))
    assert type(rows) is kind
    assert rows.masses.dtype == dtype and torch.equal(rows.masses, masses)
    assert rows.masses.device == masses.device


def test_classed_rows_stay_classed(forest_law):
    again = forest_law.classes
    state = np.full((1, forest_law.length), cp.MASK, dtype=np.int32)
    rows = forest_law.oracle().rows(state, cp.Readouts.same(1, POSITIONS))
    kept = through(rows, [again])
    assert isinstance(kept, cp.rows.ClassedRows) and kept.classes is again
    assert np.array_equal(kept.class_masses, rows.class_masses)
    assert np.array_equal(kept.positions, POSITIONS)
    uniforms = np.random.default_rng(2).random(3)
    assert np.array_equal(kept.draw(uniforms), rows.draw(uniforms))
    elsewhere = cp.rows.ClassedRows(rows.class_masses, rows.classes, POSITIONS[::-1].copy())
    assert np.array_equal(through(elsewhere, [again]).positions, POSITIONS[::-1])


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_tempered_rows_come_back_with_those_of_temperature_one(kind):
    masses = kind(np.random.default_rng(1).dirichlet(np.ones(4), size=3))
    rows = TemperedRows.of(cp.rows.DenseRows(masses), 0.03)
    again = through(rows)
    assert isinstance(again, TemperedRows) and again.temperature == 0.03
    assert np.array_equal(again.own.dense(), rows.own.dense())
    assert np.array_equal(again.dense(), rows.dense())


def test_attention_comes_back_beside_its_rows():
    attention = np.random.default_rng(1).random((1, 4, 4))
    reply = Reply(cp.rows.DenseRows(np.full((3, 2), 0.5)), attention)
    kept = decode_reply(*unpack(pack(*encode_reply(reply, POSITIONS, None))), POSITIONS, [])
    assert np.array_equal(kept.attention, attention) and len(kept.rows) == 3


def test_no_rows_at_all_come_back_too():
    rows = through(cp.rows.DenseRows(np.empty((0, 4))), positions=np.empty(0, dtype=np.int64))
    assert rows.masses.shape == (0, 4)


def test_rows_of_a_kind_that_holds_more_are_not_kept():
    @dataclass(frozen=True, slots=True)
    class Labelled(cp.rows.DenseRows):
        label: str = ""

    assert encode_reply(Reply(Labelled(np.full((1, 2), 0.5))), POSITIONS, None) is None
    assert encode_reply(Reply("no rows"), POSITIONS, None) is None
    objects = cp.rows.DenseRows(np.full((1, 2), 0.5, dtype=object))
    assert encode_reply(Reply(objects), POSITIONS, None) is None


def test_a_kind_that_nobody_loaded_is_refused_and_not_looked_up():
    meta = {"rows": "SystemExit"}
    with pytest.raises(cp.CacheError, match="'SystemExit', which this oracle does not give"):
        decode_reply(meta, {"masses": np.full((1, 2), 0.5)}, POSITIONS, [])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEAD.pack(9) + b"{}",
        HEAD.pack(2) + b"{}",
        HEAD.pack(2) + b"[]",
        pack({}, {"masses": np.zeros(3)})[:-1],
        pack({}, {"masses": np.zeros(3)}) + b"more",
        pack({}, {"masses": np.zeros(3)}).replace(b"<f8", b"|O8"),
        pack({}, {"masses": np.zeros(3)}).replace(b"[3]", b"-33"),
        pack({}, {"masses": np.zeros((3, 3))}).replace(b"[3,3]", b"[-3,3"),
        pack({}, {"masses": np.zeros((3, 3))}).replace(b"[3,3]", b"[9,9]"),
        HEAD.pack(59) + b'{"meta":{},"arrays":[["m","<f8",[0,99999999999999999999]]]}',
        HEAD.pack(60_000) + b"[" * 60_000,
    ],
)
def test_bytes_that_are_no_record_are_one_clear_error(data):
    with pytest.raises(cp.CacheError, match="a record of the cache cannot be read"):
        unpack(data)


@pytest.mark.parametrize(
    ("meta", "arrays"),
    [
        ({}, {"masses": np.zeros((1, 2))}),
        ({"rows": "DenseRows"}, {}),
        ({"rows": "ClassedRows", "classes": 0}, {"masses": np.zeros((1, 2))}),
        ({"rows": "ClassedRows", "classes": None}, {"masses": np.zeros((1, 2))}),
        ({"rows": "ClassedRows", "classes": "first"}, {"masses": np.zeros((1, 2))}),
        ({"rows": "DenseRows", "device": "moon", "dtype": "x"}, {"masses": np.zeros((1, 2))}),
        ({"rows": "DenseRows", "device": "a\nb", "dtype": "x"}, {"masses": np.zeros((1, 2))}),
        ({"rows": "DenseRows", "device": "meta", "dtype": "x"}, {"masses": np.zeros((1, 2))}),
        ({"rows": "DenseRows", "device": "cuda:63", "dtype": "x"}, {"masses": np.zeros((1, 2))}),
    ],
)
def test_a_record_that_is_no_reply_is_one_clear_error(meta, arrays):
    with pytest.raises(cp.CacheError, match="a reply of the cache cannot be read") as refused:
        decode_reply(meta, arrays, POSITIONS, [])
    assert "\n" not in str(refused.value)


def test_a_device_that_is_not_here_is_named():
    meta = {"rows": "TorchRows", "device": "cuda:63", "dtype": "torch.float32"}
    with pytest.raises(cp.CacheError, match="its rows are on device 'cuda:63', which is not"):
        decode_reply(meta, {"masses": np.full((3, 2), 0.5)}, POSITIONS, [])


@pytest.mark.parametrize(
    "positions", [[0, 1, 8], [0, -1, 1], [0.0, 1.0, 2.0], [True, False, True], 0, [[0, 1, 2]]]
)
def test_positions_that_lead_elsewhere_are_refused(positions, forest_law):
    masses = np.full((3, forest_law.classes.num_classes), 1 / forest_law.classes.num_classes)
    arrays = {"masses": masses, "positions": np.array(positions)}
    with pytest.raises(cp.CacheError, match="positions must be a flat list within 0"):
        decode_reply(
            {"rows": "ClassedRows", "classes": 0}, arrays, POSITIONS, [forest_law.classes]
        )


@pytest.mark.parametrize("shape", [(2, 2), (3,), (4, 2), (3, 2, 1)])
def test_a_reply_of_another_shape_is_refused(shape, forest_law):
    with pytest.raises(cp.CacheError, match="where 3 rows are asked for"):
        decode_reply({"rows": "DenseRows"}, {"masses": np.zeros(shape)}, POSITIONS, [])
    narrow = np.zeros((3, forest_law.classes.num_classes - 1))
    meta = {"rows": "ClassedRows", "classes": 0}
    with pytest.raises(cp.CacheError, match="where 3 rows are asked for"):
        decode_reply(meta, {"masses": narrow}, POSITIONS, [forest_law.classes])


def test_the_form_is_a_length_then_compact_json_then_the_bytes_of_every_array():
    whole, real = np.array([[1, 2]], dtype="<i2"), np.array([0.5], dtype="<f8")
    head = b'{"meta":{"a":[1]},"arrays":[["w","<i2",[1,2]],["r","<f8",[1]]]}'
    data = pack({"a": [1]}, {"w": whole, "r": real})
    assert data == len(head).to_bytes(4, "little") + head + whole.tobytes() + real.tobytes()
    meta, arrays = unpack(data)
    assert meta == {"a": [1]} and list(arrays) == ["w", "r"]
    for name, array in (("w", whole), ("r", real)):
        assert np.array_equal(arrays[name], array) and arrays[name].dtype == array.dtype
        assert arrays[name].flags.writeable
    turned = np.arange(6.0).reshape(2, 3).T
    assert np.array_equal(unpack(pack({}, {"t": turned}))[1]["t"], turned)


def test_a_tensor_asks_for_torch_by_name(monkeypatch):
    masses = torch.full((3, 2), 0.5)
    encoded = encode_reply(Reply(cp.rows.DenseRows(masses)), POSITIONS, None)
    said = r"a cache of a torch model needs PyTorch: pip install 'counterprobe\[torch\]'"
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=said):
        encode_reply(Reply(cp.rows.DenseRows(masses)), POSITIONS, None)
    with pytest.raises(MissingExtra, match=said):
        decode_reply(*encoded, POSITIONS, [])


@pytest.mark.parametrize("kind", ["c16", "U3", "S3", "M8[s]", "V2"])
def test_arrays_of_other_types_are_not_read(kind):
    data = pack({}, {"masses": np.zeros(3, dtype=kind)})
    with pytest.raises(cp.CacheError, match=r"an array of type .* and shape \[3\]"):
        unpack(data)
