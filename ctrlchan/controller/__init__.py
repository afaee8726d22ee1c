"""The controller: wins the election in ZooKeeper, holds the cluster as columns, and directs its brokers.

In: ZooKeeper's watches, requests of brokers and clients, outcomes of the channel. Out: writes to ZooKeeper,
control requests through the channel, answers. All events are processed in order on one thread, which owns the
state. Paths and JSON forms of ZooKeeper stand in ``zookeeper`` alone, bytes of control requests in ``batch``.
"""
