"""The store: durable, keyed, shared; foreign, damaged and full files are refused untouched."""

import os
import sqlite3
import threading
from dataclasses import replace

import pytest

from counterprobe.errors import CounterprobeError
from counterprobe.plain import canonical
from counterprobe.study.config import config_from_dict
from counterprobe.study.protocol import Study
from counterprobe.study.store import Store, StoreError

CONFIG = config_from_dict({"name": "mine", "families": ["path"], "sizes": [64]}, "here")
SECONDS = {"total": 1.5}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "study.db"


def test_runs_come_back_as_they_went_in(file):
    key = {"work": "run", "b": [1, 2.5], "a": {"x": None, "y": True}}
    result = {"total": 7, "batch_kl": 1e-300, "text": "é"}
    with Store(file, create=True) as store:
        assert store.get(key) is None
        assert store.add(key, result, SECONDS)
        assert len(store) == 1
    with Store(file) as store:
        record = store.get({"a": {"y": True, "x": None}, "b": [1, 2.5], "work": "run"})
        assert record.key == key
        assert record.result == result
        assert record.seconds == SECONDS
        assert record.versions["streams"]
        assert record.machine["cores"] == os.cpu_count()
        assert record.finished.startswith("20")
        assert store.records() == {canonical(key): record}


def test_a_run_is_kept_once_whatever_its_seconds(file):
    with Store(file, create=True) as store:
        assert store.add({"k": 1}, {"total": 1}, {"total": 1.0})
        assert not store.add({"k": 1}, {"total": 1}, {"total": 2.0})
        assert len(store) == 1
        assert store.get({"k": 1}).seconds == {"total": 1.0}
        with pytest.raises(StoreError, match="gave another result; the first is kept"):
            store.add({"k": 1}, {"total": 2}, {"total": 1.0})
        assert store.get({"k": 1}).result == {"total": 1}


def test_a_reported_run_is_on_disk_before_the_store_is_closed(file):
    store = Store(file, create=True)
    store.add({"k": 1}, {"total": 1}, SECONDS)
    settings = [store._database.execute(f"PRAGMA {n}").fetchone()[0]
                for n in ("journal_mode", "synchronous")]  # fmt: skip
    assert settings == ["wal", 2]
    with Store(file) as other:  # another connection, as another process would have
        assert len(other) == 1
    store.close()


def test_studies_are_registered_once_and_a_changed_one_is_refused(file):
    with Store(file, create=True) as store:
        store.register(CONFIG)
        store.register(CONFIG)
        assert store.studies() == ["mine"]
        assert store.config("mine") == CONFIG
        changed = config_from_dict({**CONFIG.as_dict(), "sizes": [65], "candidates": 2}, "x")
        with pytest.raises(StoreError, match="'mine' with another candidates, sizes; give the"):
            store.register(changed)
        assert store.config("mine") == CONFIG
        renamed = config_from_dict({**changed.as_dict(), "name": "other"}, "x")
        store.register(renamed)
        assert store.studies() == ["mine", "other"]
        with pytest.raises(StoreError, match="no study 'third'; its studies: mine, other"):
            store.config("third")


def test_retuning_counts_up(file):
    with Store(file, create=True) as store:
        store.register(CONFIG, retune=True)  # nothing to repeat yet
        assert store.tuning("mine") == 0
        store.register(CONFIG, retune=True)
        assert store.tuning("mine") == 1
        store.register(CONFIG)
        assert store.tuning("mine") == 1


def test_a_missing_store_is_not_made_by_reading(file):
    with pytest.raises(StoreError, match="there is no store"):
        Store(file)
    assert not file.exists()


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"family,n\npath,64\n", "is not a study's store"),
        (b"SQLite format 3\0 and no more", "is damaged"),
        (b"SQLite format 3\0" + bytes(4080), "is damaged"),
        (b"\0" * 8192, "is not a study's store"),
    ],
)
def test_files_that_are_no_database_are_refused_untouched(file, content, message, create):
    file.write_bytes(content)
    with pytest.raises(StoreError, match=message):
        Store(file, create=create)
    assert file.read_bytes() == content


@pytest.mark.parametrize("identity", [0, 77])
def test_another_programs_database_is_refused_untouched(file, identity):
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE runs (key TEXT)")
        database.execute(f"PRAGMA application_id = {identity}")
    database.close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match="SQLite file of another program"):
        Store(file, create=True)
    assert file.read_bytes() == before


def test_another_layout_is_refused(file):
    Store(file, create=True).close()
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match="has layout 99, this version of counterprobe reads"):
        Store(file)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(StoreError, match="is a folder"):
        Store(tmp_path, create=True)


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9])
def test_a_damaged_store_is_refused_and_left_alone(file, place):
    with Store(file, create=True) as store:
        for k in range(300):
            store.add({"k": k, "pad": "x" * 200}, {"total": k}, SECONDS)
    content = bytearray(file.read_bytes())
    page = int(len(content) * place) // 4096 * 4096
    content[page : page + 4096] = bytes(k * k % 251 for k in range(1, 4097))
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"is damaged .*nothing was changed"):
        Store(file)
    assert file.read_bytes() == bytes(content)


def test_a_store_cut_short_is_refused(file):
    with Store(file, create=True) as store:
        for k in range(300):
            store.add({"k": k, "pad": "x" * 200}, {"total": k}, SECONDS)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(StoreError, match="is damaged"):
        Store(file)


def test_a_full_disk_keeps_what_was_reported(file):
    kept = 0
    with Store(file, create=True) as store:
        pages = store._database.execute("PRAGMA page_count").fetchone()[0]
        store._database.execute(f"PRAGMA max_page_count = {pages + 3}")
        with pytest.raises(StoreError, match=r"full.*free some space and continue"):
            for k in range(1000):
                store.add({"k": k}, {"pad": "x" * 500}, SECONDS)
                kept += 1
    assert kept > 0
    with Store(file) as store:  # room again
        assert len(store) == kept
        assert store.add({"k": kept}, {"pad": "x"}, SECONDS)


def test_a_read_only_store_says_so(file):
    with Store(file, create=True) as store:
        store._database.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreError, match=f"cannot write {file}"):
            store.add({"k": 1}, {}, SECONDS)


def test_many_writers_share_one_store(file):
    Store(file, create=True).close()
    problems = []

    def write(first: int) -> None:
        try:
            with Store(file) as store:
                for k in range(first, first + 40):
                    store.add({"k": k}, {"total": k}, {"total": float(first)})
        except CounterprobeError as problem:
            problems.append(problem)

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 20, 40, 0)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert problems == []
    with Store(file) as store:
        assert sorted(record.key["k"] for record in store.records().values()) == list(range(80))


@pytest.mark.parametrize("attempt", range(10))
def test_many_may_make_the_store_at_once(file, attempt):
    stores = []
    threads = [
        threading.Thread(target=lambda: stores.append(_size(Store(file, create=True))))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stores == [0] * 6


def _size(store: Store) -> int:
    size = len(store)
    store.close()
    return size


@pytest.mark.parametrize("text", ["{", "[]", "3", None, "[" * 100_000])
def test_an_entry_that_no_study_wrote_is_damage(file, text):
    with Store(file, create=True) as store:
        store.register(CONFIG)
        store.add({"a": 1}, {}, SECONDS)
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute("UPDATE studies SET config = coalesce(?, x'ff')", (text,))
        database.execute("UPDATE runs SET result = coalesce(?, x'ff')", (text,))
    with Store(file) as store:
        for read in (lambda: store.config("mine"), store.records, lambda: store.get({"a": 1})):
            with pytest.raises(StoreError, match=r"is damaged \(an entry is not .*nothing was"):
                read()


def test_text_that_is_no_text_is_damage_told_in_one_line(file):
    with Store(file, create=True) as store:
        store.add({"a": 1}, {}, SECONDS)
    with sqlite3.connect(file) as database:
        database.execute("UPDATE runs SET result = CAST(x'0aff0a' AS TEXT)")
    with Store(file) as store, pytest.raises(StoreError, match="is damaged") as problem:
        store.records()
    assert "\n" not in str(problem.value)


def test_a_study_is_found_by_its_name_or_by_being_the_only_one(file):
    with Store(file, create=True) as store:
        with pytest.raises(ValueError, match="holds the studies none; choose one with --study"):
            Study.from_store(store)
        store.register(CONFIG)
        assert (
            Study.from_store(store).config == Study.from_store(store, CONFIG.name).config == CONFIG
        )
        store.register(replace(CONFIG, name="other"))
        with pytest.raises(ValueError, match=f"{CONFIG.name}, other; choose one with --study"):
            Study.from_store(store)
        assert Study.from_store(store, "other").config.name == "other"
