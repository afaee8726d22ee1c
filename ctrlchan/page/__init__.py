"""A web page of a cluster: topics, messages and groups, read with Kafka's requests, and its controller.

In come the addresses of brokers, a function that describes the controller, and its metrics. Out go files of
``assets`` and answers in JSON. The room knows no part of a broker or controller but the reader of records:
it could show any Kafka.
"""
