"""State-change logs of brokers and controllers as data.

In: Kafka's state-change.log files and ours. Out: entries in the order of time, rejected lines with a reason.
``sentences`` and ``fields`` know Kafka's words, ``entries`` one entry, ``grouping`` lines, ``merge`` Spark;
none of them knows a cluster.
"""
