"""The group coordinator: consumer groups and their committed offsets, kept in ``__consumer_offsets``.

In: decoded requests, leadership of partitions of ``__consumer_offsets``, a clock, timers that are due. Out:
answers, at once or through callbacks, and records to append. This package opens no socket and no file,
starts no thread and reads no clock of its own. It does not know how requests are encoded and how a log is
stored.

Behaviour is that of Kafka 3.9's classic coordinator (``kafka.coordinator.group``). Offsets of a transaction
wait in ``group_offsets`` for its marker, also when the marker is known before the end of their append.

Files: ``coordinator`` (the requests) uses ``joining``, ``syncing``, ``rebalance`` and ``offsets``. All use
``registry`` (the groups of the partitions that this broker leads, and their transactions), ``verification``
(whether a commit belongs to an open transaction), ``store`` (appends) and ``group`` (the state of one group,
with ``members`` and ``group_offsets``). ``purgatory`` and ``timing_wheel`` let them wait; Produce and Fetch
requests that wait are in the processors, on a timing wheel without the GIL.

Locks, in the order in which they are taken: the lock of one group; then that of the registry, the purgatory
or the timers, each alone. No lock is held while an answer is given or the callback of a timer is called.
"""
