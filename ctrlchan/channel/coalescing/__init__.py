"""Coalescing: merges, splits and collapses requests, and transcodes them to other versions.

In: requests that wait for a broker. Out: fewer or smaller requests, or another version, that leave the broker
in the same state. ``bodies``, ``merge``, ``split`` and ``transcode`` are pure functions of columns.
``merger``, ``collapser`` and ``adapter`` (each a ``rewriter``) use them for the queues, once for all brokers
that need the same request. ``internal_entries`` are the queue entries for these requests.
"""
