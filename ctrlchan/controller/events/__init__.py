"""Events of a controller: where they come from, the queue, and the thread that processes them.

In: watches of ZooKeeper, calls, timers. Out: calls of handlers, one after the other; notifications for the
controller's listeners. Knows nothing of the cluster.
"""
