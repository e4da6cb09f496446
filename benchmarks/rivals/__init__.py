"""Every sampler of the registry on laws that are known exactly, at its strongest setting.

``strongest.py`` finds the setting, ``measuring.py`` goes through families, sizes and samplers,
``exponents.py`` fits how what they cost grows, ``published.py`` holds what papers state, and
``report.py`` with ``drawing.py`` writes the tables of docs/peers.md and its figure.
"""
