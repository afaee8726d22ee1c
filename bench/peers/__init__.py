"""Processes for measurements. Each reads commands from standard input and answers each with one line.

``native``: sink, the cheapest broker, and blast, the limit of the machine (C). ``controllers``: our channel
and Kafka's. ``codecs``: other codecs for the same bytes. All connect to 127.0.0.1 only and end with the
``with`` block that began them.

``python -m bench.peers kafka --brokers 30 --partitions 100000`` (or ``ours``) runs one controller by itself.
"""
