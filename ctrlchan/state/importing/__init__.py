"""States from elsewhere: ZooKeeper, describe text, a generator of synthetic clusters.

In: a ZooKeeper client, lines of text, or settings. Out: a state or its contents. Paths and JSON forms of
ZooKeeper's nodes are those of ``ctrlchan.zookeeper``.
"""
