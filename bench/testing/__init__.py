"""What people use as a Kafka in their tests, ours beside the others: starts, memory, and what each has.

In: a name of ``candidates.CANDIDATES``. Out: figures of one life of such a cluster (``life.py``), and which
of Kafka's semantics it has (``semantics.py``). ``python -m bench.testing`` runs either in a new process.
"""
