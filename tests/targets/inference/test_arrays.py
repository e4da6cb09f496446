"""The working memory of one thread has room for every vertex, and starts without marks."""

import numpy as np
import pytest

from counterprobe.targets import inference
from counterprobe.targets.inference.arrays import DE_BRUIJN


@pytest.mark.parametrize("length", [1, 63, 64, 65, 128])
@pytest.mark.parametrize("num_classes", [1, 4])
def test_memory_has_the_stated_shapes_and_no_mark_or_stamp(length, num_classes):
    scratch = inference.make_scratch(length, num_classes)
    shapes = {name: array.shape for name, array in scratch._asdict().items()}
    assert shapes == {
        "belief": (length, num_classes), "up": (length, num_classes),
        "cls": (length,), "visited": (length,), "needed": (length,), "queue": (length,),
        "lonely": (length + 1,), "product": (num_classes,), "exponent": (num_classes,),
        "marks": (length // 64 + 1,), "bit_index": (64,), "stamp": (1,),
    }  # fmt: skip
    kinds = {name: array.dtype for name, array in scratch._asdict().items()}
    assert {name for name, kind in kinds.items() if kind == np.float64} == {
        "belief", "up", "product",
    }  # fmt: skip
    assert {name for name, kind in kinds.items() if kind == np.int32} == {"cls", "queue", "lonely"}
    assert kinds["marks"] == np.uint64
    assert {kinds[k] for k in ("visited", "needed", "exponent", "bit_index", "stamp")} == {
        np.dtype(np.int64)
    }
    for name in ("visited", "needed", "marks", "stamp"):
        assert not getattr(scratch, name).any(), name


def test_the_table_of_bits_finds_each_of_the_64():
    scratch = inference.make_scratch(1, 1)
    for k in range(64):
        word = ((1 << k) * int(DE_BRUIJN)) % 2**64
        assert scratch.bit_index[word >> 58] == k
    scratch.bit_index[:] = 0
    assert inference.make_scratch(1, 1).bit_index.any(), "each thread has its own"
