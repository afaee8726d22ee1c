"""Administration of the cluster by requests: topics, configs, SCRAM users, quotas.

In: parsed requests, on the event loop's thread. Out: nodes in ZooKeeper, written with the check of the
controller epoch; a Kafka error for each refused topic. The loop's watches then do the work. Knows nothing of
sockets and of messages.
"""
