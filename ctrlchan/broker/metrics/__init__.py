"""The metrics of a broker that stores records, under Kafka's names as the JMX exporter usually gives them.

In: a running ``BrokerServer``, whose counters are read when somebody asks. Out: ``BrokerMetrics``
(``collector.py``), for ``prometheus_client``. A file for each area has all metrics of the area: ``topics``,
``requests``, ``threads``, ``replicas``, ``logs``, ``groups``, ``purgatories``. No other room of the broker
imports from here.
"""
