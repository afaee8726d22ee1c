"""Metrics, rows for the journal, descriptions and log lines of a channel.

In: ended requests, and the queues as they are (``observed``). Out: numbers and text. Nothing here changes the
channel, and a channel without metrics and journal has no ``recorder``.
"""
