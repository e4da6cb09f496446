"""The audit fails when it audited nothing, names what it found, and passes only what it saw."""

import json
import sys

import audit
import pytest
from audit import CLEAN, NOTHING_AUDITED, VULNERABLE, Answer


@pytest.fixture
def pins(tmp_path):
    file = tmp_path / "constraints.txt"
    file.write_text("# pins\nnumpy==2.0.0\nTyper==0.12.4  # words\n")
    return file


def answered(file, *packages, code=0, out=None, err=""):
    """Return the exit code and what is said when the program answers this."""
    said = []
    text = json.dumps({"dependencies": list(packages)}) if out is None else out
    code = audit.audit(file, ask=lambda command: Answer(code, text, err), say=said.append)
    return code, "\n".join(said)


NUMPY = {"name": "numpy", "version": "2.0.0", "vulns": []}
TYPER = {"name": "typer", "version": "0.12.4", "vulns": []}


def test_packages_without_an_advisory_pass(pins):
    code, said = answered(pins, NUMPY, TYPER)
    assert code == CLEAN
    assert said == "audit: 2 of 2 packages audited, 0 advisories"


def test_an_advisory_fails_and_is_named_with_its_remedy(pins):
    vulns = [{"id": "PYSEC-1", "fix_versions": ["2.0.1"]}, {"id": "GHSA-2"}]
    code, said = answered(pins, {**NUMPY, "vulns": vulns}, TYPER, code=1)
    assert code == VULNERABLE
    assert "numpy 2.0.0 has PYSEC-1; fixed in 2.0.1" in said
    assert "numpy 2.0.0 has GHSA-2; no fixed version is published" in said


@pytest.mark.parametrize("out", ["", "{", "[]", "{}", '{"dependencies": 3}'])
def test_no_answer_is_nothing_audited_and_says_why(pins, out):
    code, said = answered(pins, code=1, out=out, err="Traceback\nConnectionError: no route\n")
    assert code == NOTHING_AUDITED
    assert said.startswith("audit: nothing audited: pip-audit ended with 1: ConnectionError")


def test_packages_that_were_all_skipped_are_nothing_audited(pins):
    skipped = {"name": "numpy", "skip_reason": "could not be found"}
    code, said = answered(pins, skipped)
    assert code == NOTHING_AUDITED
    assert "all of 2 pinned packages were skipped" in said


def test_what_was_not_audited_is_named(pins):
    code, said = answered(pins, NUMPY)
    assert code == CLEAN
    assert "not audited: typer" in said and "1 of 2 packages audited" in said


def test_a_file_without_pins_and_a_missing_file_are_nothing_audited(tmp_path):
    (tmp_path / "empty.txt").write_text("numpy>=2\n")
    assert answered(tmp_path / "empty.txt", NUMPY)[0] == NOTHING_AUDITED
    assert answered(tmp_path / "none.txt", NUMPY)[0] == NOTHING_AUDITED


def test_a_program_that_is_missing_or_fails_is_an_answer_not_a_crash():
    assert audit.run_program(["/nowhere/pip-audit"]).code == -1
    assert audit.run_program([sys.executable, "-c", "raise SystemExit(3)"]).code == 3
