"""A diffusion language model of our own: text that Debian ships, training, and the contest.

``text`` turns packages into tokens, ``training`` makes the masked models and the left-to-right
judge, ``contest`` draws by every rule and scores what was drawn. ``benchmarks/language.py`` is the
program.
"""
