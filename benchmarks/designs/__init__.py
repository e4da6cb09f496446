"""Samplers on models of proteins and antibodies, where no law is known.

``record`` keeps what was measured, ``pricing`` prices batches, ``contest`` measures samplers
without a known law, ``judged`` lets another model score designs, ``speed`` times them, ``claims``
says what holds, ``drawing`` draws. ``proteins.py``, ``antibodies.py`` and ``judged.py`` beside
this folder run them.
"""
