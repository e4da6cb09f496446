"""Structures used elsewhere: what is masked, and how prices are averaged."""

import numpy as np
import pytest
from designs.record import mean_row
from families import FAMILY, HELD_OUT, designed

from counterprobe import MASK, models
from counterprobe.models.proteins.antibody_numbering import imgt_numbers

WAYS = ("own", "once", "distance")


def prices(**nats: float) -> dict[str, dict[str, float]]:
    return {f"{way} 4": {"kl": value} for way, value in nats.items()}


def test_means_are_over_templates_that_have_every_way():
    whole = [prices(own=0.1, once=0.2, distance=0.5), prices(own=0.3, once=0.2, distance=0.1)]
    row = mean_row([*whole, prices(own=9.0), {}], WAYS, 4, "once", "distance")
    assert row["templates"] == 2 and row["cheaper than distance"] == 1
    assert row["own"] == pytest.approx(0.2) and row["own se"] == pytest.approx(0.1)
    assert row["once less distance"] == pytest.approx(-0.1)
    assert row["once less distance se"] == pytest.approx(0.2)
    assert mean_row(whole, WAYS, 8, "once", "distance") == {}
    assert mean_row(whole[:1], WAYS, 4, "once", "distance")["own se"] is None


def test_the_same_places_of_every_chain_are_masked():
    assert not set(FAMILY) & set(HELD_OUT)
    chains = [*FAMILY.values(), *HELD_OUT.values()]
    assert len(set(map(len, chains))) > 3, "lengths differ, so that numbers are needed"
    heavy = models.load("sapiens-heavy", device="cpu")
    for region, least, most in (("loops", 0.15, 0.3), ("half", 0.45, 0.55)):
        texts = [heavy.template(one, **designed(one, region)) for one in chains]
        is_masked = [dict(zip(map(str, imgt_numbers(one)), text.given == MASK, strict=True))
                     for one, text in zip(chains, texts, strict=True)]  # fmt: skip
        for number in set.intersection(*map(set, is_masked)):
            assert len({one[number] for one in is_masked}) == 1, (region, number)
        assert all(least < np.mean(text.given == MASK) < most for text in texts)
