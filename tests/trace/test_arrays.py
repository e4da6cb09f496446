"""Arrays come back as they went in, and nothing else is inflated."""

import base64
import json
import zlib

import numpy as np
import pytest

from counterprobe.trace import arrays
from counterprobe.trace.arrays import PackedWriter, pack, unpack

DRAW = np.random.default_rng(5)


@pytest.mark.parametrize(
    "values",
    [
        np.array([3, 1, 2]),
        np.arange(100),
        np.arange(-2, 300).reshape(2, -1),
        DRAW.integers(-2, 70_000, size=(3, 40)),
        DRAW.integers(0, 2**32, size=50),
        DRAW.integers(-(2**31), 2**31, size=50),
        DRAW.random((6, 10)) < 0.3,
        DRAW.random((3, 5, 7)) < 0.5,
        np.zeros(0, dtype=np.int64),
        np.zeros((7, 0), dtype=np.bool_),
    ],
    ids=lambda values: f"{values.dtype}{values.shape}",
)
def test_whole_numbers_and_flags_come_back_exactly_through_json(values):
    back = unpack(json.loads(json.dumps(pack(values))))
    assert back.size == values.size
    if values.size:
        assert back.shape == values.shape
    assert (back.ravel() == values.ravel()).all()


def test_short_arrays_are_lists_and_long_ones_are_smaller_than_lists():
    assert pack(np.arange(24)) == list(range(24))
    long = pack(np.tile([0, 1, 2, 3], 500))
    assert long["dtype"] == "u1"
    assert len(json.dumps(long)) < 200


def test_fractions_are_kept_to_half_a_step():
    values = DRAW.random(200)
    assert np.abs(unpack(pack(values, 1 / 255)) - values).max() <= 0.5001 / 255
    assert np.abs(unpack(pack(values)) - values).max() < 1e-7
    assert np.abs(unpack(pack(values[:5])) - values[:5]).max() <= 0.50001e-4


def test_a_pile_of_parts_is_the_whole():
    values = DRAW.integers(-2, 100, size=(40, 17))
    writer = PackedWriter("i1")
    for low in range(0, 40, 7):
        writer.add(values[low : low + 7])
    packed = writer.close((40, 17))
    assert (unpack(packed) == values).all()
    assert abs(writer.size - len(packed["data"])) <= 4 * 8


def bomb(size: int) -> str:
    return base64.b64encode(zlib.compress(bytes(size), 9)).decode()


DAMAGED = {
    "unknown type": {"dtype": "O", "shape": [1], "data": ""},
    "pickled type": {"dtype": "object", "shape": [1], "data": ""},
    "shape of words": {"dtype": "u1", "shape": ["a"], "data": ""},
    "negative shape": {"dtype": "u1", "shape": [-1], "data": ""},
    "true as a size": {"dtype": "u1", "shape": [True], "data": ""},
    "no shape": {"dtype": "u1", "data": ""},
    "enormous shape": {"dtype": "u1", "shape": [1 << 40], "data": bomb(10)},
    "many dimensions": {"dtype": "u1", "shape": [1] * 40, "data": bomb(1)},
    "more than its shape": {"dtype": "u1", "shape": [10], "data": bomb(11)},
    "less than its shape": {"dtype": "u1", "shape": [10], "data": bomb(9)},
    "bomb": {"dtype": "u1", "shape": [10], "data": bomb(10_000_000)},
    "no base64": {"dtype": "u1", "shape": [1], "data": "%%%"},
    "no zlib": {"dtype": "u1", "shape": [1], "data": "AAAA"},
    "cut zlib": {"dtype": "u1", "shape": [10], "data": bomb(10)[:8]},
    "data of numbers": {"dtype": "u1", "shape": [1], "data": [1]},
    "scale of words": {"dtype": "u1", "shape": [1], "data": bomb(1), "scale": "x"},
    "no array": "text",
    "null": None,
    "words": ["a", "b"],
    "ragged": [[1], [1, 2]],
    "objects": [{"a": 1}],
}


@pytest.mark.parametrize("value", DAMAGED.values(), ids=DAMAGED)
def test_damaged_arrays_are_refused_in_one_line(value):
    with pytest.raises(ValueError, match=r"^marks ") as refusal:
        unpack(value, "marks")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200


def test_a_bomb_is_not_inflated_beyond_what_its_shape_says(monkeypatch):
    inflated = []
    real = zlib.decompressobj

    class Watched:
        def __init__(self) -> None:
            self.real = real()

        def decompress(self, data: bytes, most: int) -> bytes:
            raw = self.real.decompress(data, most)
            inflated.append(len(raw))
            return raw

        @property
        def eof(self) -> bool:
            return self.real.eof

    monkeypatch.setattr(arrays.zlib, "decompressobj", Watched)
    with pytest.raises(ValueError, match="damaged"):
        unpack(DAMAGED["bomb"])
    assert inflated == [11]
