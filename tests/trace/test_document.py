"""Traces are read as they were written; what is no trace is refused in one line."""

import copy
import gzip
import json
import os
import random

import pytest

import counterprobe as cp
from counterprobe.samplers import build_sampler
from counterprobe.trace import (
    Recorder,
    Trace,
    document,
    load_example,
    load_trace,
    replay,
    thin,
    write_trace,
)
from counterprobe.trace.document import FORMAT, VERSION, parse_trace
from counterprobe.trace.page import fill_page

HEADER = {"length": 3, "vocab_size": 2, "sampler": "hand", "title": "</script><b>"}
EVENTS = [
    {"type": "commit", "positions": [0], "tokens": [1], "ledger": [0, 0, 1, 1, 1]},
    {"type": "something new", "field": [1, 2]},
    {"type": "commit", "positions": [1, 2], "tokens": [0, 1], "ledger": [0, 0, 2, 2, 3]},
    {"type": "end", "stop": "completed"},
]
TRACE = Trace(HEADER, EVENTS)


def text_of(trace: Trace) -> str:
    return "".join(trace.lines())


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "A.JSON"])
def test_a_trace_comes_back_as_it_was(tmp_path, name):
    write_trace(TRACE, tmp_path / name)
    assert load_trace(tmp_path / name) == TRACE
    assert os.listdir(tmp_path) == [name]


def test_the_whole_file_is_one_json_document():
    read = json.loads(text_of(TRACE))
    assert read == TRACE.document()
    assert (read["format"], read["version"]) == (FORMAT, VERSION)
    assert "truncated" not in read


def test_a_trace_without_events_is_a_document_too():
    trace = parse_trace(text_of(Trace(HEADER, [])))
    assert trace.events == [] and trace.is_truncated


def test_equal_traces_have_equal_bytes_when_gzipped(tmp_path):
    write_trace(TRACE, tmp_path / "a.json.gz")
    write_trace(TRACE, tmp_path / "b.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_every_cut_is_read_up_to_its_last_whole_line_or_refused():
    text = text_of(TRACE)
    first = text.index("\n") + 1
    ends = [k + 1 for k, letter in enumerate(text) if letter == "\n"]
    for length in range(len(text)):
        if length < first - 1:
            with pytest.raises(ValueError, match="not a trace, or cut in its header"):
                parse_trace(text[:length], "it")
            continue
        trace = parse_trace(text[:length])
        whole = sum(end - 2 <= length for end in ends[1:])  # without its comma a line is whole
        assert len(trace.events) in (whole, whole - 1, len(EVENTS))
        assert trace.events == EVENTS[: len(trace.events)]
        # Only the closing brackets may be missing where the end was read.
        assert trace.is_truncated or length >= len(text) - 1


def test_a_truncated_trace_says_so_in_its_document_and_its_file(tmp_path):
    cut = parse_trace("".join(list(TRACE.lines())[:3]))
    assert cut.is_truncated
    assert cut.document()["truncated"] is True
    write_trace(cut, tmp_path / "cut.json")
    assert json.loads((tmp_path / "cut.json").read_text())["truncated"] is True
    assert load_trace(tmp_path / "cut.json") == cut


def test_a_cut_gzip_file_is_read_as_far_as_it_goes(tmp_path):
    many = Trace(HEADER, [{"type": "message", "text": os.urandom(8).hex()} for _ in range(400)])
    raw = gzip.compress(text_of(many).encode())
    (tmp_path / "a.json.gz").write_bytes(raw[: len(raw) // 2])
    trace = load_trace(tmp_path / "a.json.gz")
    assert trace.is_truncated
    assert 50 < len(trace.events) < 400
    assert trace.events == many.events[: len(trace.events)]


def test_a_file_cut_inside_a_letter_is_read_up_to_it(tmp_path):
    raw = text_of(TRACE).replace("</script>", "é").encode()
    at = raw.index("é".encode())
    (tmp_path / "a.json").write_bytes(raw[: at + 1])
    with pytest.raises(ValueError, match="cut in its header"):
        load_trace(tmp_path / "a.json")


FOREIGN = {
    "empty": "",
    "words": "hello",
    "list": "[1, 2]",
    "number": "3",
    "object": '{"a": 1}',
    "other format": '{"format": "counterprobe samples 1", "events": []}',
    "html": "<!doctype html><title>x</title>",
    "deep": "[" * 100_000,
    "deep and closed": "[" * 100_000 + "]" * 100_000,
    "no header": f'{{"format": "{FORMAT}", "version": 1, "events": []}}',
    "header of words": f'{{"format": "{FORMAT}", "version": 1, "header": "x", "events": []}}',
    "no events": json.dumps({**TRACE.document(), "events": None}),
    "events of numbers": json.dumps({**TRACE.document(), "events": [1]}),
    "event without a type": json.dumps({**TRACE.document(), "events": [{}]}),
    "no length": json.dumps({**TRACE.document(), "header": {"vocab_size": 2}}),
    "enormous": json.dumps({**TRACE.document(), "header": {**HEADER, "length": 10**12}}),
    "length of words": json.dumps({**TRACE.document(), "header": {**HEADER, "length": "3"}}),
    "true length": json.dumps({**TRACE.document(), "header": {**HEADER, "length": True}}),
    "too few names": json.dumps({**TRACE.document(), "header": {**HEADER, "tokens": ["a"]}}),
    "names of numbers": json.dumps(
        {**TRACE.document(), "header": {**HEADER, "positions": [1, 2, 3]}}
    ),
    "thinned by a number": json.dumps({**TRACE.document(), "header": {**HEADER, "thinned": 3}}),
    "not a number": text_of(TRACE).replace('"length":3', '"length":NaN'),
}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, text):
    file = tmp_path / "foreign.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"foreign\.json is not a trace") as refusal:
        load_trace(file)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200 + len(str(file))


@pytest.mark.parametrize("version", [0, 2, 99, "1", None, 1.0, True, "x" * 1000])
def test_another_version_is_refused_by_its_number(version):
    text = json.dumps({**TRACE.document(), "version": version})
    with pytest.raises(ValueError, match=r"of version .* this library reads version 1") as refusal:
        parse_trace(text, "it")
    assert len(str(refusal.value)) < 200


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "a.json").write_bytes(bytes(range(128, 256)) * 3)
    with pytest.raises(ValueError, match="not text in UTF-8"):
        load_trace(tmp_path / "a.json")


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_file_that_is_too_large_is_refused_with_what_to_do(tmp_path, name):
    write_trace(TRACE, tmp_path / name)
    with pytest.raises(ValueError, match=r"more than 100 bytes; .*--trace-bytes"):
        load_trace(tmp_path / name, max_bytes=100)


def test_a_gzip_bomb_is_not_inflated(tmp_path, monkeypatch):
    inflated = []
    gunzip = document._gunzip

    def watched(*given):
        made = gunzip(*given)
        inflated.append(len(made[0]))
        return made

    monkeypatch.setattr(document, "_gunzip", watched)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(bytes(20_000_000)))
    with pytest.raises(ValueError, match=r"more than 30,000 bytes"):
        load_trace(tmp_path / "a.json.gz", max_bytes=30_000)
    assert inflated == [30_001]


def test_a_damaged_gzip_file_is_refused(tmp_path):
    (tmp_path / "a.json.gz").write_bytes(b"\x1f\x8b" + b"x" * 50)
    with pytest.raises(ValueError, match="damaged"):
        load_trace(tmp_path / "a.json.gz")


def test_a_missing_file_is_what_the_system_says(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_trace(tmp_path / "none.json")


def test_whatever_is_changed_in_a_trace_it_is_read_or_refused_in_one_line():
    # A thousand documents with a few values replaced or taken out, by a fixed seed: reading,
    # following, thinning and filling a page may refuse them, and nothing else.
    draw = random.Random(9)
    place = '<script type="application/json" id="trace-data"></script>'
    strange = [
        None,
        True,
        -1,
        1e300,
        10**30,
        "x",
        "\x1b[31m",
        [],
        [1],
        [[1]],
        [None],
        {},
        {"a": 1},
    ]
    originals = [json.dumps(load_example(name).document()) for name in ("paper", "antibody")]
    num_read = 0
    for _ in range(1000):
        made = json.loads(draw.choice(originals))
        for _ in range(draw.randint(1, 3)):
            _change(made, draw, strange)
        text = json.dumps(made)
        try:
            trace = parse_trace(text)
            num_read += 1
            replay(trace)
            fill_page(place, [trace])
            thin(trace, len(text) // 2)
        except ValueError as refusal:
            assert "\n" not in str(refusal)
            assert len(str(refusal)) < 300
    assert num_read > 100


def _change(value, draw, strange) -> None:
    """Replace something inside a document, or take it out."""
    while True:
        key = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if not value[key] or not isinstance(value[key], (dict, list)) or draw.random() < 0.3:
            break
        value = value[key]
    if draw.random() < 0.3:
        del value[key]
    else:
        value[key] = copy.deepcopy(draw.choice(strange))


def test_a_page_is_not_written_as_a_trace(tmp_path):
    with pytest.raises(ValueError, match="write_page"):
        write_trace(TRACE, tmp_path / "a.html")


# ----- Thinning ----------------------------------------------------------------------------


def trace_of(folder, name: str):
    law = cp.families.path(length=60, target_seed=196)
    with Recorder(folder / "run.json") as recorder:
        run = cp.run.Run(law.oracle(), on_event=recorder)
        settings = {"shared_by": 1000} if name == "packed" else {}  # screen at any size
        build_sampler(name, settings)(run, cp.Streams(1, 2))
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


def test_what_cannot_be_thinned_so_far_is_refused_with_its_size(tmp_path):
    trace = trace_of(tmp_path, "sequential")
    with pytest.raises(ValueError, match="commits, edges and ledger alone take"):
        thin(trace, 500)
    with pytest.raises(ValueError, match="at least 1"):
        thin(trace, 0)
