"""Small denoisers trained on laws that are known exactly, and what samplers make of them.

Read in this order: ``laws.py`` (which laws, and their exact tables in ``forest.py``, ``grid.py``
and ``topic.py``), ``network.py``, ``training.py``, ``files.py``, then the evaluation:
``row_errors.py``.
"""
