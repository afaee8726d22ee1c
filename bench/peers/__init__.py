"""Processes that measurements are made with; each obeys a line on standard input and answers with one.

``native``: sink, the cheapest broker, and blast, the limit of the machine (C). ``controllers``: our channel
and Kafka's, side by side. ``codecs``: other codecs for the same bytes. All talk over 127.0.0.1 only and end
with the ``with`` block that began them.

``python -m bench.peers kafka --brokers 30 --partitions 100000`` (or ``ours``) runs one of the two by itself.
"""
