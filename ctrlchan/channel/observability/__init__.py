"""What a channel lets people see: metrics, rows for the journal, descriptions, lines of logs.

In: ended requests and the queues as they are. Out: numbers and words. Nothing here changes anything, and what
is not asked for costs nothing: without metrics and journal there is no ``recorder``.
"""
