"""``ingest``: descriptions of a cluster -> a snapshot of the valid rows, and rejects with their reasons.

In: snapshot folders, ``kafka-topics --describe`` text, JSON, dumps of ZooKeeper; many files of one cluster.
Out: a snapshot's columns, and the rejects. Each kind of input has a file here that makes entries of it; all
entries are validated and merged in the same way. This room knows nothing of requests.
"""
