"""Settings: values that a sampler does not allow are refused, by name, before anything runs."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import pytest

from counterprobe.arguments import Count, Fraction, Range, Whole
from counterprobe.run import CommitAll
from counterprobe.samplers import SAMPLERS, Sampler, build_sampler


@dataclass(frozen=True)
class Knobs(Sampler):
    """A setting of each kind."""

    name: ClassVar[str] = "knobs"

    count: Count = 1
    limit: Annotated[int, Whole(2, at_most=1000)] | None = None
    share: Fraction = 0.5
    level: Annotated[float, Range(above=0, finite=False)] = 1.0
    mode: Literal["a", "b"] = "a"
    free: int = 0

    def unmask(self, view, rng):
        yield CommitAll([view.residual])


@pytest.mark.parametrize(
    "settings",
    [
        {"count": np.int64(3)},
        {"limit": None},
        {"limit": 2},
        {"limit": 1000},
        {"share": 0},
        {"share": np.float32(1)},
        {"level": math.inf},
        {"mode": "b"},
        {"free": -7},
    ],
)
def test_what_a_type_allows_is_kept(settings):
    built = Knobs(**settings)
    assert all(getattr(built, name) == value for name, value in settings.items())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"count": 2.5}, "count must be a whole number, got 2.5"),
        ({"count": True}, "count must be a whole number, got True"),
        ({"count": None}, "count must be a whole number, got None"),
        ({"limit": 1}, "limit must be at least 2, got 1"),
        ({"limit": 1001}, "limit must be at most 1,000, got 1001"),
        ({"share": -0.1}, "share must be at least 0, got -0.1"),
        ({"share": 1.5}, "share must be at most 1, got 1.5"),
        ({"share": "half"}, "share must be a number, got 'half'"),
        ({"share": math.nan}, "share must be a number, got nan"),
        ({"share": math.inf}, "share must be finite, got inf"),
        ({"level": 0.0}, "level must be above 0, got 0.0"),
        ({"mode": "c"}, "mode must be one of a, b; got 'c'"),
    ],
)
def test_what_a_type_does_not_allow_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Knobs(**settings)


def test_a_class_whose_types_cannot_be_looked_up_is_left_alone():
    class Hidden: ...

    @dataclass(frozen=True)
    class Local(Sampler):
        name: ClassVar[str] = "local"
        kind: "Hidden | None" = None

        def unmask(self, view, rng):
            yield CommitAll([view.residual])

    assert Local().kind is None


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("ancestral", {"last_time": 1.5}, "last_time must be at most 1, got 1.5"),
        ("ancestral", {"reveal": "all"}, "one of independent, quota; got 'all'"),
        ("ancestral", {"steps": 2 * 10**9}, "steps must be at most 10,000,000"),
        ("assd", {"window": 0}, "window must be at least 1, got 0"),
        ("autospeculation", {"max_copies": 0}, "max_copies must be at least 1, got 0"),
        ("autospeculation", {"order": "entropy"}, "order must be one of random, index"),
        ("centroid-layers", {"edges": ((0, 1, 2),)}, "edges must be pairs of positions"),
        ("chen-cong-li", {"kind": "tc+dtc"}, r"one of tc, dtc, both; got 'tc\+dtc'"),
        ("dapd", {"edge_threshold": math.nan}, "edge_threshold must be a number"),
        ("dapd", {"take_by": "index"}, "take_by must be one of confidence, degree"),
        ("dawn", {"low_threshold": -0.1}, "low_threshold must be at least 0, got -0.1"),
        ("dawn", {"sink_factor": 0.0}, "sink_factor must be above 0, got 0.0"),
        ("demask", {"graph": "attention"}, "graph must be one of auto, probes, strength"),
        ("demask", {"budget": math.nan}, "budget must be a number"),
        ("demask", {"num_values": 0}, "num_values must be at least 1, got 0"),
        ("dream", {"confidence": "candidate"}, "goes with score='confidence', got 'entropy'"),
        ("dream", {"last_time": 0.0}, "last_time must be above 0, got 0.0"),
        ("effective-tc", {"kappa": 1e-9}, "kappa must be at least 1e-05, got 1e-09"),
        ("entropy-bounded", {"gamma": -1.0}, "gamma must be at least 0, got -1.0"),
        ("factor", {"factor": math.inf}, "factor must be finite, got inf"),
        ("freedave", {"draft_steps": 0}, "draft_steps must be at least 1, got 0"),
        ("info-gain", {"position_temperature": 0.0}, "position_temperature must be above 0"),
        ("information-curve", {"curve": (1.0, 2.0)}, "curve must not increase"),
        ("klass", {"kl_threshold": -1.0}, "kl_threshold must be at least 0, got -1.0"),
        ("li-cai", {"accuracy": 0.0}, "accuracy must be above 0, got 0.0"),
        ("li-cai", {"dependence": -1.0}, "dependence must be at least 0, got -1.0"),
        ("llada", {"block_length": 0}, "block_length must be at least 1, got 0"),
        ("lookum", {"sharpness": -1.0}, "sharpness must be at least 0, got -1.0"),
        ("maskgit", {"confidence": "both"}, "one of row, candidate; got 'both'"),
        ("packed", {"num_colors": 1}, "num_colors must be at least 2, got 1"),
        ("packed", {"tv_cut": 1.1}, "tv_cut must be at most 1, got 1.1"),
        ("packed", {"bank_threshold": math.nan}, "bank_threshold must be a number, got nan"),
        ("packed", {"phase_cap": -1}, "phase_cap must be at least 0, got -1"),
        ("packed", {"majority_fraction": 1.0}, r"majority_fraction must lie in \[0, 1\)"),
        ("packed", {"selector": "best"}, "selector must be one of top-votes, empty-on-overflow"),
        ("packed-theory", {"filler": "best"}, "filler must be one of most-likely, rare"),
        ("packed-theory", {"case": "both"}, "case must be one of tv, kl; got 'both'"),
        ("packed-theory", {"response_constant": -1.0}, "response_constant must be at least 0"),
        ("packed-theory", {"response_exponent": 0.0}, "response_exponent must be above 0"),
        ("packed-theory", {"frequency_constant": 0.5}, "frequency_constant must be at least 1"),
        ("punt", {"epsilon": math.nan}, "epsilon must be a number, got nan"),
        ("random-balanced", {"batches": -1}, "batches must be at least 1, got -1"),
        ("remdm", {"eta": 1.5}, "eta must be at most 1, got 1.5"),
        ("remdm", {"loop_end": 0.6}, "loop_end must be at most 0.55, got 0.6"),
        ("sequential", {"order": "left"}, "one of index, random, confidence, entropy"),
        ("spread", {"batches": -3}, "batches must be at least 1, got -3"),
        ("threshold", {"threshold": -0.1}, "threshold must be at least 0, got -0.1"),
        ("universal-coupling", {"block_size": 2.5}, "block_size must be a whole number"),
        ("wino", {"threshold_back": 1.5}, "threshold_back must be at most 1, got 1.5"),
        ("zhao-cai", {"kind": "both"}, "kind must be one of tc, dtc; got 'both'"),
    ],
)
def test_each_sampler_refuses_what_it_cannot_run_with(name, settings, message):
    with pytest.raises(ValueError, match=message):
        build_sampler(name, settings)


def test_results_recorded_under_a_former_name_of_a_setting_can_be_repeated():
    assert build_sampler("packed", {"draft": "rare"}) == SAMPLERS["packed"](filler="rare")
