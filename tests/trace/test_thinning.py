"""Thinned traces fit, keep what matters and say what went."""

import os
from dataclasses import replace

import pytest

import counterprobe as cp
from counterprobe.samplers import build_sampler
from counterprobe.trace import Recorder, load_trace, replay, thin, write_trace


def trace_of(folder, name: str):
    law = cp.families.path(length=60, target_seed=196)
    with Recorder(folder / "run.json") as recorder:
        run = cp.Unmasking(law.oracle(), listener=recorder)
        build_sampler(name)(run, cp.Streams(1, 2))
    return load_trace(folder / "run.json")


@pytest.mark.parametrize("name", ["compressed", "packed", "punt", "sequential"])
def test_a_thinned_trace_fits_and_replays_to_the_same(tmp_path, name):
    trace = trace_of(tmp_path, name)
    size = os.path.getsize(tmp_path / "run.json")
    before, sizes = replay(trace), []
    for most in (size, size - 1000, 2 * size // 3):
        thinned = thin(trace, most)
        write_trace(thinned, tmp_path / "thin.json")
        sizes.append(os.path.getsize(tmp_path / "thin.json"))
        assert sizes[-1] <= most
        after = replay(load_trace(tmp_path / "thin.json"))
        assert after.tokens.tolist() == before.tokens.tolist()
        assert after.edges.tolist() == before.edges.tolist()
        assert after.ledger == before.ledger
        assert bool(thinned.header["thinned"]) == (most < size)
        assert all(f"thinned to {most:,} bytes" in said for said in thinned.header["thinned"])
    assert sizes == sorted(sizes, reverse=True)


def test_a_trace_that_fits_stays_as_it_is(tmp_path):
    trace = trace_of(tmp_path, "compressed")
    assert thin(trace, 10_000_000) == trace


def test_thinning_twice_says_both(tmp_path):
    trace = trace_of(tmp_path, "compressed")
    size = os.path.getsize(tmp_path / "run.json")
    twice = thin(thin(trace, size - 1000), size - 4000)
    assert {said.split(" bytes")[0] for said in twice.header["thinned"]} == {
        f"thinned to {size - 1000:,}",
        f"thinned to {size - 4000:,}",
    }


def test_the_first_trace_is_left_alone(tmp_path):
    trace = trace_of(tmp_path, "packed")
    size = os.path.getsize(tmp_path / "run.json")
    thin(trace, size // 2)
    assert trace == load_trace(tmp_path / "run.json")


def test_what_cannot_be_thinned_so_far_is_refused_with_its_size(tmp_path):
    trace = trace_of(tmp_path, "sequential")
    with pytest.raises(ValueError, match="commits, edges and ledger alone take"):
        thin(trace, 500)
    with pytest.raises(ValueError, match="at least 1"):
        thin(trace, 0)


def test_notes_that_are_no_list_are_left_out(tmp_path):
    trace = trace_of(tmp_path, "sequential")
    told = {**trace.header, "thinned": 5}
    assert thin(replace(trace, header=told), 10**7).header["thinned"] == []
