"""A cluster of real processes under faults that overlap: ``python -m tests.chaos`` (``make chaos``).

``plan`` says what happens when, ``hosts`` and ``nodes`` are what it happens to, ``faults`` does it.
``producing``, ``reading``, ``grouping`` and ``topics`` use the cluster meanwhile and remember what they saw;
``checks`` compares that with what a Kafka cluster guarantees. ``run`` puts all together, ``report`` prints.
"""
