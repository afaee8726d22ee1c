"""Quotas: how much clients, users, addresses and followers may use of a broker.

In: the quotas in ZooKeeper (``entities.py`` parses them), and what requests have used. Out: throttle times.
``_client_quotas.pyx`` has the sensors of users and client ids, for processors and handler threads alike;
``_replication_quota.pyx`` and ``replication.py`` have those of throttled replicas;
``requests.py`` charges the requests of handler threads; ``mutations.py`` has the quota of changes to topics.
"""
