"""The coordinators of a broker: what runs them, around cores that open no file and start no thread.

In: leadership of partitions of ``__consumer_offsets`` and ``__transaction_state``, settings. Out: a
``GroupCoordinator`` and a ``TransactionCoordinator`` that the handlers call, record batches to append, and
requests to other brokers. No file here knows how requests of clients are encoded.

Rooms: ``group`` is the group coordinator, ``transaction`` that of transactions, ``common`` what both share.
Files: ``group_service`` and ``transaction_service`` start and stop everything; ``topic_log`` appends and
reads through ``Partition``, with ``record_batches`` for the record batches; ``offsets_verification`` verifies
commits in transactions; ``timer_thread`` calls the timers; ``marker_sender`` and ``transaction_verifier``
talk to other brokers, ``marker_appends`` writes markers to partitions of this one, ``leaders`` finds who
leads.
"""
