"""Small denoisers trained on laws that are known exactly, and what samplers make of them.

Training reads in this order: ``laws.py`` (with the exact tables of ``forest.py``, ``grid.py`` and
``topic.py``), ``network.py``, ``training.py``, ``row_errors.py``, ``files.py``. Then the
evaluation: ``oracle.py``, ``discovery.py``, ``contestants.py``, ``scoring.py``, all of it in
``evaluation.py``, kept by ``store.py``, judged by ``claims.py`` and shown by ``report.py``.
"""
