"""The transaction coordinator: transactional ids and their transactions, kept in ``__transaction_state``.

In: decoded requests, leadership of partitions of ``__transaction_state``, a clock, timers that are due. Out:
answers, at once or through callbacks, records to append, and ended transactions that need markers. This
package opens no socket and no file, starts no thread and reads no clock of its own. It does not know how
requests are encoded and how a log is stored.

Behaviour is that of Kafka 3.9 (``kafka.coordinator.transaction``) without ``transaction.version``.

Files: ``coordinator`` (the requests) uses ``ending`` and ``expiration``. All use ``registry`` (the
partitions that this broker leads) with ``ids`` (their transactional ids), ``store`` (appends) and
``transaction`` (one id, with ``states``); ``loading`` (with ``_values``) and ``records`` read and write
them. ``first_batches`` confirms transactions to partitions of this broker. ``pending_markers`` and
``verifications`` are what other brokers get; they know nothing of the rest but ``requests``.

Locks, in the order in which they are taken: the lock of one ``StatePartition``; then that of the registry or
the timers, each alone. No lock is held while an answer is given, markers are sent or a timer's callback is
called.
"""
