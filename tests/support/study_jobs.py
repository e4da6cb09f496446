"""What workers of a study do in tests, importable in other processes too."""

import os

from counterprobe.study.work import do_work


def make_deadly():
    """Do a study's work, except that one kind of run ends its process whenever it is begun."""
    return _deadly


def _deadly(key):
    if key["work"] == "run" and key["family"] == "path" and key["draw"] == 196:
        if key["length"] == 48:
            os._exit(3)
    return do_work(key)
