"""The transaction coordinator: transactional ids and their transactions, kept in ``__transaction_state``.

In: decoded requests, leadership of partitions of ``__transaction_state``, a clock, timers that are due. Out:
answers, at once or through callbacks, records to append, and ended transactions that need markers. This
package opens no socket and no file, starts no thread and reads no clock of its own. It does not know how
requests are encoded and how a log is stored.

Behaviour is that of Kafka 3.9 (``kafka.coordinator.transaction``) without ``transaction.version``.
"""
