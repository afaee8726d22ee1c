"""Builds the history of one partition from merged state-change logs, a journal and a snapshot.

``job`` fetches the data with Spark. ``epochs`` groups log entries by leader epoch, ``findings`` looks for
faults, ``text`` prints; these three are plain Python. The result is a ``PartitionHistory`` (``model``).
"""
