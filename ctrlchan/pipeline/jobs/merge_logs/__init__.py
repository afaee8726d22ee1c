"""Merges state-change logs of brokers and controllers into one stream of entries.

In: Kafka's state-change.log files and ours. Out: entries ordered by time, and rejected lines with a reason.
``messages`` and ``values`` parse Kafka's text, ``entries`` parses one entry, ``grouping`` turns lines into
entries, ``job`` runs all of it in Spark.
"""
