"""A Kafka cluster in a real ZooKeeper for the suite ``controller``: server, brokers, controllers, events.

``zookeeper`` runs the server and reads and writes many nodes at once; ``layout`` decides which partition is
where; ``cluster`` is the cluster's nodes and its registered sinks; ``candidates`` are the two controllers;
``events`` are the measured events; ``watch`` decides when an event is over.
"""
