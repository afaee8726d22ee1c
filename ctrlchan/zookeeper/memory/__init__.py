"""ZooKeeper's protocol over nodes that are kept in memory, for a cluster that runs without ZooKeeper.

In: the requests that kazoo and ``zookeeper.session`` send. Out: answers and watch events. One server, no
quorum, no ACLs; connections of this machine alone. ``tree`` is sans-io, ``wire`` has the bytes, ``server``
the sockets.
"""
