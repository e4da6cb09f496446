"""A command in a process of its own that is sent a real SIGINT, as Ctrl-C does."""

import signal
import subprocess
import sys
from collections.abc import Callable

# A background shell may have left SIGINT ignored.
HEARS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def interrupted(program: str, *words: object, when: Callable[[str], bool]) -> str:
    """Interrupt a program at a line on standard error; return its last line there.

    It must end with exit code 130, print nothing else and show no traceback.

    Parameters
    ----------
    program : str
        Python.
    *words
        Its arguments.
    when : callable
        Says of a line whether it is the one.
    """
    running = subprocess.Popen(
        [sys.executable, "-c", HEARS + program, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert any(map(when, running.stderr)), "it ended before it was interrupted"
        running.send_signal(signal.SIGINT)
        output, errors = running.communicate(timeout=120)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert "Traceback" not in errors
    assert output == ""
    return str(errors.strip().splitlines()[-1])
