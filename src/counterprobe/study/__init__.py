"""The paper's fixed-accuracy study: tuned proposal against random budgets, resumable.

``config`` says what to run, ``protocol`` which run comes next, ``work`` does one run, ``store``
keeps it, ``execute`` drives them all; ``table``, ``growth``, ``figure`` and ``export`` read what
is in the store. See ``docs/study.md``.
"""

from counterprobe.study.config import StudyConfig, load_preset, read_config
from counterprobe.study.execute import run_study
from counterprobe.study.protocol import Study
from counterprobe.study.store import Store, StoreError

__all__ = [
    "Store",
    "StoreError",
    "Study",
    "StudyConfig",
    "load_preset",
    "read_config",
    "run_study",
]
