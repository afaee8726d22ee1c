"""The partitions of a storing broker: who leads, who follows, who is in sync, and who waits for that.

In: the roles that LeaderAndIsr and StopReplica give, appends and reads of Produce and Fetch
(``broker/handlers``), and the records of other leaders. Out: changed logs, moves of high watermarks, woken
requests, and the ISR changes that a leader wants. Code that runs once per request is Cython without the GIL.
"""
