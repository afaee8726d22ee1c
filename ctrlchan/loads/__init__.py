"""Loads on a Kafka cluster, any cluster: workers, their pace, histograms of latencies, and the guard.

In: a ``Load``, which names the cluster that its user has allowed. Out: a ``Result`` for each worker, which
``Result.merged`` adds up. ``kinds`` has a file for each kind of load; ``run.py`` runs a worker in this
process, ``processes.py`` all of them on this machine. The guard (``guard.py``) makes and deletes topics of
this run alone. This room prints nothing.
"""
