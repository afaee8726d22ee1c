"""Runs the group coordinator in a broker: its threads, and ``__consumer_offsets`` on the broker's partitions.

In: leadership of partitions of ``__consumer_offsets``, settings. Out: a ``GroupCoordinator`` that the APIs
call, record batches to append. This package does not know how requests are encoded.

Files: ``service`` starts and stops everything; ``offsets_log`` appends and reads through ``Partition``, with
``batches`` for the record batches; ``timer_thread`` calls the timers.
"""
