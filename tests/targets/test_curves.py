"""The closed form of a forest's information curve, against enumeration."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.targets import curves as curves_module
from counterprobe.targets.curves import forest_curve, forest_table
from counterprobe.targets.information import (
    dependence,
    dual_total_of,
    exact_curve,
    information_curve,
    modelled_curve,
    total_of,
)

SHAPES = {
    "nothing": (4, []),
    "one edge": (2, [[1, 0]]),
    "a path": (7, [[i, i + 1] for i in range(6)]),
    "paths and a lone position": (8, [[5, 2], [2, 7], [0, 1], [4, 3]]),
    "a star": (6, [[0, i] for i in range(1, 6)]),
    "a star beside a path": (8, [[0, 1], [0, 2], [0, 3], [4, 5], [6, 5]]),
    "two stars": (8, [[0, 1], [0, 2], [0, 3], [4, 5], [4, 6], [7, 4]]),
}


def drawn_law(seed: int, shape: str, classes: int = 2) -> cp.ForestLaw:
    draw = np.random.default_rng(seed)
    length, edges = SHAPES[shape]
    label = draw.permutation(length)
    return cp.ForestLaw(
        draw.uniform(0.2, 1.0, size=(length, classes)),
        label[np.array(edges, dtype=int).reshape(-1, 2)],
        draw.uniform(0.05, 1.0, size=(len(edges), classes, classes)),
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_the_closed_form_is_the_enumerated_curve(shape, seed):
    law = drawn_law(seed, shape, classes=2 + seed % 2)
    curve = forest_curve(law)
    assert curve is not None
    assert curve == pytest.approx(information_curve(forest_table(law)), abs=1e-13)
    assert (np.diff(curve) <= 0).all()


def test_tokens_of_one_class_add_their_own_entropy_and_nothing_else():
    law = cp.families.two_type_path(7, 3, vocab_size=5)
    over_classes = cp.ForestLaw(law.unary, law.edges, law.pair)
    shift = information_curve(law)[0] - information_curve(over_classes)[0]
    assert shift > 0.1
    assert information_curve(law) == pytest.approx(
        information_curve(forest_table(law)) + shift, abs=1e-13
    )


@pytest.mark.parametrize("family", ["matching", "path", "two-type-path"])
@pytest.mark.parametrize("length", [3, 400])
def test_long_curves_have_the_totals_of_the_law(family, length):
    law = cp.families.build(family, length, 4)
    curve, known = forest_curve(law), dependence(law)
    assert curve is not None
    assert total_of(curve) == pytest.approx(known.total, abs=1e-12 * length)
    assert dual_total_of(curve) == pytest.approx(known.dual, abs=1e-12 * length)


def test_a_chain_that_forgets_nothing_is_followed_to_its_end():
    almost = 1e-9
    law = cp.ForestLaw(
        np.ones((40, 2)), [[i, i + 1] for i in range(39)], [[1, almost], [almost, 1]]
    )
    curve = forest_curve(law)
    assert curve is not None
    # One shown value tells nearly everything: what is left is within forty changes of the chain.
    assert curve[0] == pytest.approx(np.log(2))
    assert 0 <= curve[1:].max() < 1e-5


def test_a_hub_too_large_to_enumerate_has_no_closed_form_but_a_model():
    law = cp.families.growing_stars(64, 1)
    assert exact_curve(law) is None
    curve, known = information_curve(law), dependence(law)
    assert curve.tolist() == modelled_curve(law).tolist()
    assert len(curve) * (curve[0] - curve[-1]) == pytest.approx(known.sum, abs=1e-12)


def test_a_chain_too_long_to_sum_over_has_no_closed_form(monkeypatch):
    law = cp.families.path(50, 1)
    monkeypatch.setattr(curves_module, "MAX_PAIRS", 100)
    assert forest_curve(law) is None
