"""What requests cost a cluster, before there is one.

In: the columns of a cluster (``ClusterState``) and the measured costs of a machine. Out: the exact bytes of
each event, the estimated time and memory, and from where on one machine is not enough. The requests are made
by the batch and the state machines of the controller themselves, with a channel that counts them and nodes
that accept every write; so no size is computed in a second way. Nothing here opens a file or a socket, starts
a process, or looks at a clock.
"""
