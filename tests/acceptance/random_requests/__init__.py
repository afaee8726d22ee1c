"""Random requests of every API and version, which a real Kafka broker and ours must answer alike.

In: the tables of messages in Kafka's jar, a seed. ``values.py`` makes requests that are valid by the tables,
most of them about topics, groups and ids that exist; ``sides.py`` sends them to both brokers and compares the
answers as ``same_answers`` does; ``run.py`` does both, in chunks: each has names of its own, so a chunk with
a difference can be run again alone. ``python -m tests.acceptance.random_requests --help``.
"""
