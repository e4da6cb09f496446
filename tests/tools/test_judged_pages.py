"""Tables of judged designs: means over backbones, bold cells, what was not measured."""

import math

import pages  # noqa: F401 - first: it says where the benchmarks are
import pytest
from pages.judged import at_temperature, judged_tables, judged_values


def way(sampler, evaluations, kl, judge, *, error=0.1, **settings):
    return {
        "sampler": sampler, "settings": settings, "evaluations": evaluations, "kl": kl,
        "kl_se": None if kl is None else error, "judge": judge, "judge_se": 1.0,
        "recovery": 0.5, "variety": 0.25, "designs": 64, "designs a second": 3.21, "alone": True,
    }  # fmt: skip


def parts(shift=0.0):
    ways = {
        "one-batch": way("one-batch", 1, 4.0, -100 + shift),
        "random 4": way("random", 4, 1.0, -97 + shift, batches=4),
        "planned 4": way("planned", 4, 0.5, -95 + shift, batches=4),
        "distance 4": way("distance", 4, 0.6, -95 + shift, batches=4),
        "planned 8": {"error": "no"},
        "punt epsilon=0.1": way("punt", 9.5, None, -99 + shift, epsilon=0.1),
        "sequential": way("sequential", 76, 0.0, -94 + shift, error=0.0),
    }
    return {
        "structure": {"used": {"evaluations": 257, "masked": 76, "judge": -90.0}},
        "ways": ways,
    }


@pytest.fixture
def folding():
    return {"1ubi T=1": parts(), "1ake T=1": parts(-50.0), "1ubi T=0.3": parts()}


def test_means_are_over_backbones_with_errors_of_both_ends(folding):
    found = judged_values(folding)["1"]
    assert found["backbones"] == 2
    planned = found["planned-4"]
    assert planned["gain"] == pytest.approx(5) and planned["kl"] == pytest.approx(0.5)
    assert planned["gain_se"] == pytest.approx(math.hypot(*([math.sqrt(2)] * 2)) / 2)
    assert planned["share"] == pytest.approx(0.125)
    assert found["one-batch"]["gain_se"] == pytest.approx(math.sqrt(2) / 2)
    assert "planned-8" not in found  # failed
    assert found["over"]["random-4"]["gain"] == pytest.approx(2)
    assert found["over"]["random-4"]["gain_se"] == pytest.approx(1.0)
    assert "random-8" not in found["over"]
    assert judged_values(folding)["0.3"]["backbones"] == 1


def test_temperatures_are_told_apart(folding):
    assert list(at_temperature(folding, 1)) == ["1ubi", "1ake"]
    assert list(at_temperature(folding, 0.3)) == ["1ubi"]


def test_tables_bold_the_least_and_leave_out_what_was_not_measured(folding):
    for name in ("1ubi T=1", "1ake T=1"):
        folding[name]["ways"]["maskgit steps=8"] = way("maskgit", 8, 0.4, -93, steps=8)
    folding["1ubi T=1"]["ways"]["llada steps=8"] = way("llada", 8, 0.4, -93, steps=8)
    made = judged_tables(folding, {"sapiens heavy loops T=1": parts()}, {})
    first = made["judged-broken"].splitlines()[2]
    assert first.startswith("| 1UBI, 76 | planned | 4.00 ± 0.10 |  | **0.50** ± 0.10 |")
    assert "**0.60**" in made["judged-broken"] and "**1.00**" not in made["judged-broken"]
    assert "| -95.0 ± 1.0 |  | -94.0 ± 1.0 | -90.0 |" in made["judged-scores"]
    assert "never: as little in 4" in made["judged-pays"]
    assert (
        "| 4 (76 evaluations) | any number: none measured breaks as little |"
        in (made["judged-pays"])
    )
    assert "its own `design`, all at once" in made["judged-rules"]
    assert "| `maskgit steps=8` | 8 | 0.40 ± 0.07 |" in made["judged-rules"]
    assert "llada" not in made["judged-rules"]  # not of every backbone
    assert "any number |" in made["judged-rules"] and "| 3.2 |" in made["judged-rules"]
    assert (
        "| sapiens heavy loops | one at a time | 76 | 0 | -94.00 ± 1.00 |"
        in (made["judged-antibodies"])
    )
    assert made["judged-cold"].count("\n") == 2
