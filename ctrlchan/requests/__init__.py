"""What the batch's requests say: the parts that ``ctrlchan.batch`` puts together.

In: rows of a ClusterState with flags, brokers, versions. Out: merged row selections, the brokers' endpoints a
request names, StopReplica's columns, state-change log lines. It must not know queues, connections or when
anything is sent.
"""
