"""The partitions of a storing broker: who leads, who is in sync, and what Produce and Fetch do with them.

In: requests that a processor has received, and what LeaderAndIsr and StopReplica have decided. Out: answers,
appends to logs, moves of high watermarks, and the ISR changes that a leader wants. Code that runs once per
request is Cython without the GIL.
"""
