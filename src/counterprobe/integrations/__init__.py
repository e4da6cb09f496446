"""The library's rules inside other people's generation loops; each module needs its own package.

``transformers`` draws by any rule from ``model.generate``, since the model is at hand there.
``diffusers`` and ``sglang`` are handed the rows of forwards that somebody else makes, so that they
take the rules that read rows and plan, and refuse those that probe (``blocks``). Nothing here is
imported before it is named.
"""
