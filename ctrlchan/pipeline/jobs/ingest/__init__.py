"""Descriptions of a cluster -> a snapshot of what is sound, and everything else with its reasons.

In: snapshot folders, ``kafka-topics --describe`` text, JSON, dumps of ZooKeeper; many files, of one cluster.
Out: a snapshot's columns and rejects. Each kind of input has a file here that makes items of it; from there
on an item is an item. This room knows nothing of requests.
"""
