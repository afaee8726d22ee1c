"""Watches a journal that is being written: rolling figures of each broker and API, and alerts.

In: a journal folder with the channel files in it, optionally a snapshot. Out: ``Figures`` at any time.
``aggregates`` sums rows, ``checkpoint`` stores the sums so that each row counts once even after kill -9,
``unfinished`` reads the requests without an answer, ``rules`` finds alerts, ``job`` runs it in Spark,
``prometheus`` writes a metrics file.
"""
