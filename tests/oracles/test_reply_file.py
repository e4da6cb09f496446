"""The file of a checkpoint: whole records stay, damaged tails go, other runs are refused."""

import json
import subprocess
import sys
import zlib

import pytest

import counterprobe as cp
from counterprobe import files
from counterprobe.oracles import reply_file as replies
from counterprobe.oracles.reply_file import MAGIC, RECORD, Kind, ReplyFile

ABOUT = {"sampler": "sequential", "seed": 1}
FACTS = {"row_error": 0.5}
WRITTEN = {"run": ABOUT, "facts": FACTS}


def written(path, contents=(b"one", b"", b"three" * 100)):
    log = ReplyFile(path, ABOUT, FACTS)
    for content in contents:
        log.append(Kind.REPLY, content)
    log.close()
    return path.read_bytes()


def replies_of(path):
    log = ReplyFile(path, ABOUT, FACTS)
    found = []
    while (record := log.next()) is not None:
        found.append(record)
    log.close()
    return [content for kind, content in found if kind is Kind.REPLY], log


def test_records_come_back_in_order_and_lives_are_counted(tmp_path):
    path = tmp_path / "run.log"
    written(path)
    found, log = replies_of(path)
    assert found == [b"one", b"", b"three" * 100]
    assert log.num_lives == 2 and log.num_cut == 0
    log = ReplyFile(path, ABOUT, {"row_error": 0.7})
    assert log.num_lives == 3 and log.facts == FACTS, "facts are those of the first life"
    log.append(Kind.REPLY, b"four")
    assert log.next() is not None, "what this life appends comes after what it reads"
    log.close()
    assert replies_of(path)[0] == [b"one", b"", b"three" * 100, b"four"]


def test_a_log_cut_anywhere_keeps_every_whole_record(tmp_path):
    path = tmp_path / "run.log"
    whole = written(path)
    start = whole.index(b"one") - RECORD.size
    ends = [whole.index(b"one") + 3, whole.index(b"one") + 3 + RECORD.size, len(whole)]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        found, log = replies_of(path)
        kept = sum(size >= end for end in ends)
        assert found == [b"one", b"", b"three" * 100][:kept]
        if size > start:
            assert log.num_cut == size - max([start, *[end for end in ends if end <= size]])
        assert replies_of(path)[1].num_cut == 0, "it was cut in the file"


def test_a_damaged_byte_cuts_from_its_record_on(tmp_path):
    path = tmp_path / "run.log"
    whole = written(path)
    start = whole.index(b"one") - RECORD.size
    for place in range(start, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        found, log = replies_of(path)
        good = sum(
            place >= end
            for end in (whole.index(b"one") + 3, whole.index(b"one") + 3 + RECORD.size)
        )
        assert found == [b"one", b"", b"three" * 100][:good]
        assert log.num_cut > 0


def test_a_damaged_byte_in_the_first_record_is_refused_and_every_reply_left_in_the_file(tmp_path):
    path = tmp_path / "run.log"
    whole = written(path)
    first = len(MAGIC) + len(replies.encode_record(Kind.ABOUT, replies._json(WRITTEN)))
    for place in range(len(MAGIC), first):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(cp.CheckpointError, match="is damaged in its first record"):
            ReplyFile(path, ABOUT, FACTS)
        assert path.read_bytes() == damaged


def test_only_a_beginning_of_this_very_run_is_begun_anew(tmp_path):
    path = tmp_path / "run.log"
    start = MAGIC + replies.encode_record(Kind.ABOUT, replies._json(WRITTEN))
    for size in range(len(start)):
        path.write_bytes(start[:size])
        log = ReplyFile(path, ABOUT, FACTS)
        log.close()
        assert log.is_begun_anew == (size > 0)
        path.write_bytes(start[:size])
        if size <= len(MAGIC) + 1:  # it does not say yet whose it is
            continue
        with pytest.raises(cp.CheckpointError, match="is damaged in its first record"):
            ReplyFile(path, {**ABOUT, "seed": 1234}, FACTS)
        assert path.read_bytes() == start[:size]


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({**ABOUT, "seed": 2}, "its seed is 1, this run's is 2"),
        ({**ABOUT, "sampler": "packed"}, 'its sampler is "sequential", this run\'s is "packed"'),
        ({"sampler": "sequential"}, "its seed is 1, this run's is null"),
        ({**ABOUT, "given": "x" * 99}, r"its given is null, this run's is \"x+\.\.\."),
    ],
)
def test_the_log_of_another_run_is_refused_and_left_as_it_was(tmp_path, about, message):
    path = tmp_path / "run.log"
    before = written(path)
    with pytest.raises(cp.CheckpointError, match=message):
        ReplyFile(path, about, FACTS)
    assert path.read_bytes() == before


def test_a_name_that_somebody_made_up_stays_in_its_line(tmp_path):
    path = tmp_path / "run.log"
    for name, shown in (("a\nb", r"its a\nb is 1"), ("x" * 99, f"its {'x' * 56}... is 1")):
        written = {"run": {**ABOUT, name: 1}, "facts": FACTS}
        path.write_bytes(MAGIC + replies.encode_record(Kind.ABOUT, json.dumps(written).encode()))
        with pytest.raises(cp.CheckpointError) as refused:
            ReplyFile(path, ABOUT, FACTS)
        assert shown in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"some text\n", b"counterprobe replies 2\n", b"\0" * 99])
def test_a_file_of_another_kind_is_refused_and_left_as_it_was(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(cp.CheckpointError, match="is not a checkpoint of this format"):
        ReplyFile(path, ABOUT, FACTS)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (Kind.REPLY, b"{}"),
        (Kind.ABOUT, b"{}"),
        (Kind.ABOUT, b"\xff"),
        (Kind.ABOUT, json.dumps({"run": 3, "facts": {}}).encode()),
        *(
            (Kind.ABOUT, json.dumps({"run": ABOUT, "facts": {"row_error": fact}}).encode())
            for fact in (10**400, float("nan"), float("inf"), -0.5)
        ),
    ],
)
def test_a_beginning_that_says_nothing_of_the_run_is_refused(tmp_path, kind, content):
    path = tmp_path / "run.log"
    path.write_bytes(MAGIC + replies.encode_record(kind, content))
    with pytest.raises(cp.CheckpointError, match="does not begin with what run it belongs to"):
        ReplyFile(path, ABOUT, FACTS)


def test_a_length_beyond_the_file_is_not_believed(tmp_path):
    path = tmp_path / "run.log"
    whole = written(path)
    path.write_bytes(whole + RECORD.pack(Kind.REPLY, 2**60, 0) + b"xyz")
    found, log = replies_of(path)
    assert len(found) == 3 and log.num_cut == RECORD.size + 3


def test_a_missing_folder_and_a_folder_are_refused(tmp_path):
    with pytest.raises(cp.CheckpointError, match="there is no folder"):
        ReplyFile(tmp_path / "none" / "run.log", ABOUT, FACTS)
    with pytest.raises(cp.CheckpointError, match="is a folder; a checkpoint must be a regular"):
        ReplyFile(tmp_path, ABOUT, FACTS)


def test_a_log_in_use_by_another_process_is_refused(tmp_path):
    path = tmp_path / "run.log"
    log = ReplyFile(path, ABOUT, FACTS)
    program = (
        "import fcntl, sys\n"
        "try:\n"
        "    fcntl.flock(open(sys.argv[1], 'ab'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError:\n"
        "    print('locked')\n"
    )
    seen = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert seen.stdout == "locked\n"
    with pytest.raises(cp.CheckpointError, match="in use by another run"):
        ReplyFile(path, ABOUT, FACTS)
    log.close()
    ReplyFile(path, ABOUT, FACTS).close()


@pytest.mark.parametrize(
    ("then", "now", "is_same"),
    [
        ("one", "one", True), ("one", "two", False), (None, "two", True), ("one", None, True),
        (None, None, True),
    ],
)  # fmt: skip
def test_what_an_oracle_holds_is_compared_where_both_sides_know_it(tmp_path, then, now, is_same):
    path = tmp_path / "run.log"
    ReplyFile(path, {**ABOUT, replies.CONTENT: then}, FACTS).close()
    if is_same:
        ReplyFile(path, {**ABOUT, replies.CONTENT: now}, FACTS).close()
    else:
        said = 'its oracle_content is "one", this run\'s is "two"; resume with the same settings'
        with pytest.raises(cp.CheckpointError, match=said):
            ReplyFile(path, {**ABOUT, replies.CONTENT: now}, FACTS)
    missing = tmp_path / "older.log"
    ReplyFile(missing, ABOUT, FACTS).close()
    ReplyFile(missing, {**ABOUT, replies.CONTENT: now}, FACTS).close()


def test_the_bytes_of_a_log_are_those_of_its_format(tmp_path):
    path = tmp_path / "run.log"
    log = ReplyFile(path, ABOUT, FACTS)
    assert (log.path, log.num_lives, log.num_cut, log.is_begun_anew) == (path, 1, 0, False)
    log.append(Kind.NOT_KEPT, b"abc")
    log.close()
    log.close()  # a second time is nothing new
    head = json.dumps(WRITTEN).encode()
    expected = b"counterprobe replies 1\n"
    for kind, content in ((0, head), (1, b""), (4, b"abc")):
        start = bytes([kind]) + len(content).to_bytes(8, "little")
        expected += start + zlib.crc32(start + content).to_bytes(4, "little") + content
    assert path.read_bytes() == expected


def test_without_locks_a_log_is_opened_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    path = tmp_path / "run.log"
    first = ReplyFile(path, ABOUT, FACTS)
    second = ReplyFile(path, ABOUT, FACTS)
    assert second.num_lives == 2
    first.close()
    second.close()
