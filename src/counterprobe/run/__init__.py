"""Runs: how oracles are asked and charged, one sequence at a time, in lockstep or gathered.

``door.py`` asks, checks and charges. An ``Unmasking`` is one run through it; ``Lockstep`` commits
the same positions in many sequences; ``gathered.py`` lets any runs meet at the oracle.
"""
