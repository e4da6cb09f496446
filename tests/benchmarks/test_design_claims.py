from __future__ import annotations

import pytest
from designs.claims import antibody_claims, backbone_claims, differs, is_larger, protein_claims


def price(kl: float, se: float = 0.01) -> dict:
    return {"kl": kl, "kl_se": se}


def protein(planned: float = 0.3, random: float = 3.0, se: float = 0.01) -> dict:
    return {
        "1ake": {
            "structure": {"used": {"evaluations": 257}},
            "prices": {
                "planned 8 product": price(planned, se),
                "planned 16 product": price(0.1),
                "random 8 product": price(random),
            },
            "speed": {
                "64": {"cached 16 ratio": 10.5},
                "256": {"cached 16 ratio": 4.9},
            },
        }
    }


def verdicts(claims: list[dict]) -> list[bool]:
    return [claim["holds"] for claim in claims]


def test_a_difference_counts_beyond_two_standard_errors_of_it():
    one = {"kl": 1.0, "kl_se": 0.03}
    assert not differs(one, {"kl": 1.09, "kl_se": 0.04}, "kl")
    assert differs(one, {"kl": 1.11, "kl_se": 0.04}, "kl")
    assert differs({"kl": 1.11, "kl_se": 0.04}, one, "kl")


def test_only_the_larger_of_two_is_larger():
    low, high = {"kl": 1.0, "kl_se": None}, {"kl": 1.2, "kl_se": 0.05}
    assert is_larger(high, low, "kl")
    assert not is_larger(low, high, "kl")


def test_protein_claims_judge_probes_prices_and_rates():
    assert verdicts(protein_claims(protein())) == [True, True, True, True, True, False]


@pytest.mark.parametrize(
    ("changed", "which"),
    [
        ({"planned": 0.46}, 1),
        ({"planned": 0.3, "se": 0.031}, 1),
        ({"planned": 0.3, "random": 1.7}, 2),
    ],
)
def test_a_price_that_is_too_high_or_not_well_known_fails(changed, which):
    claims = protein_claims(protein(**changed))
    assert not claims[which]["holds"], claims[which]


def test_nothing_is_claimed_of_what_was_not_measured():
    failed = {"1ake": {"structure": {"used": {"error": "ValueError: no"}}, "prices": {}}}
    assert protein_claims(failed) == []
    assert protein_claims({}) == antibody_claims({}) == []


def sampler(name: str, evaluations: float, **changed) -> dict:
    entry = {
        "sampler": name,
        "evaluations": evaluations,
        "kl": 0.08,
        "kl_se": 0.01,
        "log_likelihood": -1.49,
        "log_likelihood_se": 0.005,
        "mmd_p": 0.5,
    }
    return {**entry, **changed}


def antibody(rival: dict) -> dict:
    samplers = {
        "planned batches=8": sampler("planned", 8),
        "sequential order=random": sampler("sequential", 29, kl=0.0),
        "one": rival,
    }
    return {"antiberty loops": {"samplers": samplers}}


@pytest.mark.parametrize(
    ("worse", "by"),
    [
        ({"log_likelihood": -1.53}, ["log-likelihood"]),
        ({"log_likelihood": -1.45}, ["log-likelihood"]),
        ({"mmd_p": 0.003}, ["test"]),
        ({"kl": 0.3}, ["batch KL"]),
        ({"kl": 0.3, "mmd_p": 0.003}, ["test", "batch KL"]),
        ({"kl": None, "mmd_p": 0.003}, ["test"]),
        ({}, []),
        ({"kl": None}, []),
    ],
)
def test_a_rival_is_worse_by_any_of_three_measures(worse, by):
    claims = antibody_claims(antibody(sampler("punt", 25.3, **worse)))
    assert verdicts(claims[:2]) == [True, True]
    assert claims[2]["by"] == by
    assert claims[2]["holds"] == bool(by)


def test_rivals_cheaper_than_the_plan_are_not_judged_and_the_cheapest_other_is():
    tasks = antibody(sampler("entropy-bounded", 6))
    samplers = tasks["antiberty loops"]["samplers"]
    assert len(antibody_claims(tasks)) == 2
    samplers["two"] = sampler("entropy-bounded", 20, kl=0.5)
    samplers["three"] = sampler("entropy-bounded", 9.5)
    (claim,) = antibody_claims(tasks)[2:]
    assert claim["evaluations"] == 9.5


def test_a_random_half_is_judged_by_prices_at_six():
    prices = {
        "planned 6 product": price(0.1),
        "random 6 product": price(0.31),
        "spread 6 product": price(0.29),
    }
    claims = antibody_claims({"antiberty random half": {"prices": prices}})
    assert {claim["claim"].split()[-3]: claim["holds"] for claim in claims} == {
        "spread's": False,
        "random's": True,
    }


def test_every_random_half_is_judged_in_every_direction_that_was_priced():
    prices = {f"{way} 6 joint": price(0.1) for way in ("planned", "random", "spread")}
    halves = {f"antiberty random half{more}": {"prices": prices} for more in ("", " 2")}
    claims = antibody_claims(halves)
    assert len(claims) == 4
    assert not any(verdicts(claims))


def backbone(planned: float, *, random: float = 1.0, ratio: float = 5.0) -> dict:
    ways = {"planned": planned, "random": random, "distance": 0.3}
    prices = {f"{way} {n}": price(kl) for way, kl in ways.items() for n in (8, 16)}
    timed = {str(n): {"cached 16 to colabdesign ratio": ratio} for n in (64, 1024)}
    return {"commit 1": prices, "commit 0.1": prices, "speed": timed}


def test_what_is_claimed_of_every_backbone_takes_every_backbone():
    good = {"a": backbone(0.05), "b": backbone(0.09)}
    assert all(verdicts(backbone_claims(good)))
    claims = backbone_claims({**good, "c": backbone(0.5, ratio=2.0)})
    by_text = {claim["claim"]: claim for claim in claims}
    dearer = by_text[
        "temperature 1: planned in 8 breaks less than distance batches, on every backbone"
    ]
    assert (dearer["less"], dearer["more"], dearer["more on"]) == (2, 1, "c")
    assert verdicts(claims) == [True, False] * 2 + [False] + [True, False] * 2 + [False] * 3
    assert claims[-1]["least"] == 2.0


def test_a_backbone_that_was_not_measured_bears_out_nothing():
    failed = {"a": backbone(0.05), "b": {"commit 1": {"planned 8": {"error": "no"}}}}
    assert not any(verdicts(backbone_claims(failed)))
    assert not any(verdicts(backbone_claims({})))
