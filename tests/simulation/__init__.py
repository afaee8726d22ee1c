"""Simulated brokers on one thread: a seed decides every read, write, wait, fault and time of a history.

The processors, Produce, Fetch, partitions, logs and followers are the product's. The operating system
(``_operating_system.pyx``), the controller and the clients are simulated. ``history.py`` makes the choices,
``record.py`` knows what must never be contradicted. A history ends with all faults healed, and everything
that was acknowledged must be there. The same seed makes the same history, byte for byte.

Learned from FoundationDB's simulator, TigerBeetle's VOPR and MadSim: one thread, one generator, time that
only the simulator moves, and faults that stop before the last checks.
"""
