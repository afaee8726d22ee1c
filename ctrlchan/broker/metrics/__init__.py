"""The metrics of a broker that stores records, under Kafka's names as the JMX exporter usually gives them.

In: a running ``BrokerServer``, whose counters are read when somebody asks. Out: ``BrokerMetrics``
(``collector.py``), for ``prometheus_client``. A file for each area has all metrics of the area: ``topics``,
``requests``, ``threads``, ``replicas``, ``logs``, ``groups``, ``purgatories``, ``quotas``. No other room of
the broker imports from here.

What is counted once for each request or batch is counted without the GIL: ``Partition.counters``,
``ProduceApi.counters``, ``FetchApi.counters``, ``BrokerHandler.totals`` and the counters of ``SocketServer``.
A new area is a file with a function ``collect``, named in ``_AREAS`` of ``collector``.
"""
