"""Audit the pinned dependencies for published advisories, and fail when nothing was audited.

    .venv/bin/python tools/audit.py constraints.txt

``pip-audit`` looks every pinned version up at an advisory service. An audit that could not reach
the service, or that skipped every package, has found nothing because it looked at nothing: that is
a failure here, with exit code 2. Exit code 1 stands for advisories that were found.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

CLEAN, VULNERABLE, NOTHING_AUDITED = 0, 1, 2
# An audit of some hundred packages takes seconds where the service answers.
LONGEST_SECONDS = 600


@dataclass(frozen=True)
class Answer:
    """What the auditing program said: its exit code, its output and its complaints."""

    code: int
    out: str
    err: str


Ask = Callable[[Sequence[str]], Answer]


def run_program(command: Sequence[str]) -> Answer:
    """Run the auditing program; one that is missing or hangs has audited nothing."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Answer(-1, "", str(problem))
    return Answer(done.returncode, done.stdout, done.stderr)


def pinned(text: str) -> list[str]:
    """Return the names that a constraints file pins."""
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return [line.split("==")[0].strip().lower() for line in lines if "==" in line]


def audit(file: Path, *, ask: Ask = run_program, say: Callable[[str], object] = print) -> int:
    """Audit a constraints file; return the exit code, after saying why."""
    try:
        names = pinned(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        say(f"audit: nothing audited: cannot read {file}: {problem}")
        return NOTHING_AUDITED
    if not names:
        say(f"audit: nothing audited: {file} pins no version")
        return NOTHING_AUDITED
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(file), "--no-deps",
               "--disable-pip", "--format", "json", "--progress-spinner", "off"]  # fmt: skip
    answer = ask(command)
    try:
        packages = json.loads(answer.out)["dependencies"]
        audited = [one for one in packages if "vulns" in one and "skip_reason" not in one]
        found = [(one["name"], one["version"], vuln["id"], vuln.get("fix_versions", []))
                 for one in audited for vuln in one["vulns"]]  # fmt: skip
    except (ValueError, KeyError, TypeError):
        reason = (answer.err.strip().splitlines() or ["it said nothing"])[-1]
        say(f"audit: nothing audited: pip-audit ended with {answer.code}: {reason:.300}")
        return NOTHING_AUDITED
    if not audited:
        reason = packages[0].get("skip_reason", "no reason given") if packages else "none answered"
        say(f"audit: nothing audited: all of {len(names)} pinned packages were skipped: {reason}")
        return NOTHING_AUDITED
    for name, version, identity, fixes in found:
        remedy = f"fixed in {', '.join(fixes)}" if fixes else "no fixed version is published"
        say(f"audit: {name} {version} has {identity}; {remedy}")
    skipped = sorted(set(names) - {str(one["name"]).lower() for one in audited})
    if skipped:
        say(f"audit: not audited: {', '.join(skipped)}")
    say(f"audit: {len(audited)} of {len(names)} packages audited, {len(found)} advisories")
    return VULNERABLE if found else CLEAN


def main() -> None:
    """Read the command line."""
    sys.exit(audit(Path(sys.argv[1] if len(sys.argv) > 1 else "constraints.txt")))


if __name__ == "__main__":
    main()
