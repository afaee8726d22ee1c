"""Reports by broker and API what was sent, how long it took and how it ended, and which brokers are stale.

In: a journal folder, and a snapshot of the state that every broker should have. Out: tables (``Report``,
Parquet) and one HTML page. ``figures`` adds up, ``acknowledged`` and ``divergence`` compare, ``findings``
writes sentences, ``page`` and ``charts`` make the page.
"""
