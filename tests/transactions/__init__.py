"""A model of transactions, and a cluster of real processes that must keep to it.

``steps.py``: what a history consists of. ``history.py``: does the steps on the cluster, notes what was
answered, and checks what readers see. ``producers.py``: transactional producers of raw requests, so that
each may end between a request and its answer. ``cluster.py``: brokers that are killed, stopped and
forgotten. ``reading.py``: a partition as readers see it.
"""
