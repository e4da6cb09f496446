"""Pages whose tables and numbers come from committed files of results.

``sources.py`` reads the files, one module a subject turns them into tables and into numbers with
names, and ``filling.py`` puts both between the marks of a page. ``tools/tables.py`` runs it all.
"""

import sys
from pathlib import Path

# Benchmarks are scripts; the tables of those that have some stand beside them.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
