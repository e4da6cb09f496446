"""Samplers on models of proteins and antibodies, where no law is known.

``record`` keeps what was measured, ``pricing`` prices batches, ``contest`` measures samplers
without a known law, ``speed`` times designs against ProteinMPNN's own sampler, ``claims`` judges,
``drawing`` draws. ``proteins.py`` and ``antibodies.py`` beside this folder run them.
"""
