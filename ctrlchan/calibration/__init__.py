"""Measures what this machine needs for control requests.

In: a minute of the machine, perhaps the address of a ZooKeeper server. Out: ``planning.costs.Costs``, kept
in a file of the user's cache. Brokers are sinks: one process that discards requests and acknowledges
them. Nothing outside this machine is connected to, but the ZooKeeper server that was named.
"""
