"""The partitions of one broker: leader, leader epoch, ISR, followers and high watermark, and the log behind each.

What runs once per request is in ``_partition_state.pyx``. Python code changes who leads, and appends by
``Partition.append``. A thread of the table calls back into Python: it completes appends that wait for
followers, asks for another ISR, and reports failed logs. Source: kafka.cluster.Partition, kafka.cluster.Replica.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from ctrlchan._c.atomics cimport count_shared
from ctrlchan._c.clock_functions cimport Clock, monotonic_ns_of
from ctrlchan._c.clocks cimport NEVER
from ctrlchan._c.error_codes cimport (
    INVALID_TIMESTAMP,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
)
from ctrlchan._c.locks cimport (
    PARTITION,
    PARTITION_EVENTS,
    PARTITION_TABLE,
    close_condition,
    close_mutex,
    lock,
    open_condition,
    open_mutex,
    signal,
    unlock,
    wait,
)
from ctrlchan.broker.log._batches cimport (
    CLIENT,
    AppendRules,
    Checked,
    Marker,
    Rules,
)
from ctrlchan.broker.log._log cimport Log
from ctrlchan.broker.log._parts cimport DONE
from ctrlchan.broker.log._producers cimport NO_GUARD
from ctrlchan.broker.replica._partition_roles cimport (
    Ids,
    Role,
    TopicSettings,
    Wish,
    become_leader,
    commit_isr,
    follow_watermark,
    larger_isr,
    low_watermark,
    refuse_isr,
    replace_log,
    resign,
    set_future_start,
    set_settings,
    smaller_isr,
)
from ctrlchan.broker.replica._partition_state cimport (
    ASK_FOR_ISR,
    COMPLETE_APPENDS,
    REPORT_FAILURE,
    TELL_LOW_WATERMARK,
    TOPIC_ID_BYTES,
    AppendResult,
    Follower,
    PartitionState,
    Table,
    Watcher,
    add_partition,
    append_marker_to_leader,
    append_to_leader,
    confirm_producer,
    count_refused,
    error_of_leader,
    has_topic_id,
    is_acknowledged,
    is_expected,
    lock_partition,
    open_table,
    release_partition,
    remove_partition,
    set_live,
    set_topic_id,
    unlock_partition,
    update_follower,
    verify_producer,
    wall_ms,
    withdraw_producer,
)

import heapq
import logging
import os
import threading
from collections import namedtuple
from concurrent.futures import Future

from ctrlchan._c.clock_functions import SYSTEM_CLOCK
from ctrlchan.broker.config.log_config import ALL_REPLICAS
from ctrlchan.broker.log._batches import check, record_errors
from ctrlchan.broker.log.old_formats._up_conversion import check_old
from ctrlchan.errors import KafkaError
from ctrlchan.internal_topics import INTERNAL_TOPICS
from ctrlchan.log_context import ContextLogger

cdef enum:
    ALL = -1
    NO_LEADER = -1
    NO_OFFSET = -1
    NO_TIMESTAMP = -1
    ANY_EPOCH = -1
    PRODUCE = 0
    # Kinds of records: of any codec; of a Produce before version 7; of one before version 3, and of any format.
    ANY_CODEC = 0
    WITHOUT_ZSTD = 1
    OLD_FORMATS = 2


logger = logging.getLogger("ctrlchan.broker")

ProduceResult = namedtuple(
    "ProduceResult",
    "error_code base_offset append_time log_start_offset record_errors error_message",
    defaults=(NO_OFFSET, NO_TIMESTAMP, NO_OFFSET, (), None),
)

WantedIsr = namedtuple("WantedIsr", "isr leader_epoch partition_epoch")

_COMPRESSION_TYPES = {"producer": -1, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@cython.no_gc_clear
cdef class PartitionTable:
    """The partitions that the broker ``broker_id`` hosts.

    ``isr_wanted(partition, wanted)`` is called on the table's thread, or by ``shrink_isrs``, when a leader wants another
    ISR (``WantedIsr``: it has the epochs of the state that it was made from); ``Partition.set_isr`` or ``keep_isr`` is
    the answer. Without ``isr_wanted`` only ``make_leader`` changes the ISR.
    ``storage_failed(partition)`` is called on the table's thread when an append has met an I/O error. ``max_lag_ms``:
    replica.lag.time.max.ms. ``clock``: None for the operating system's. ``close`` ends the thread. ``has_thread`` False:
    there is none, and ``serve_events`` does on the caller's thread what it would do.
    """

    def __cinit__(self, *args, **kwargs):
        open_mutex(&self.table.mutex, PARTITION_TABLE)
        open_mutex(&self.table.event_mutex, PARTITION_EVENTS)
        open_condition(&self.table.event_condition)
        self.table.live_count = -1
        self.clock, self.table.clock = SYSTEM_CLOCK, (<Clock>SYSTEM_CLOCK).functions
        cdef bint has_room
        with nogil:
            has_room = open_table(&self.table)
        if not has_room:
            raise MemoryError()

    def __init__(
        self, int32_t broker_id, *, isr_wanted=None, storage_failed=None, int64_t max_lag_ms=30_000, Clock clock=None,
        bint has_thread=True
    ):
        if clock is not None:
            self.clock, self.table.clock = clock, clock.functions
        self.has_thread = has_thread
        self.table.broker_id, self.table.max_lag_ms = broker_id, max_lag_ms
        self.table.changes_isr = isr_wanted is not None
        self.isr_wanted, self.storage_failed = isr_wanted, storage_failed
        self.found, self.removed, self.deadlines = {}, [], []
        self.lock = threading.Lock()

    def __dealloc__(self):
        free(self.table.by_name)
        free(self.table.by_id)
        free(self.table.live)
        close_condition(&self.table.event_condition)
        close_mutex(&self.table.event_mutex)
        close_mutex(&self.table.mutex)

    @property
    def broker_id(self):
        return self.table.broker_id

    def __len__(self):
        return len(self.found)

    @property
    def verifies_transactions(self):
        """Whether a batch may begin a transaction only with the guard of a verification. False at first."""
        return self.table.verifies_transactions

    @verifies_transactions.setter
    def verifies_transactions(self, bint verifies):
        self.table.verifies_transactions = verifies

    def open(self, str topic not None, int32_t partition, bytes topic_id=bytes(TOPIC_ID_BYTES)):
        """Return the partition; add a missing one. A partition without a topic id takes the given id."""
        cdef Partition opened
        cdef const char* id_bytes = topic_id
        if len(topic_id) != TOPIC_ID_BYTES:
            raise ValueError(f"a topic id of {len(topic_id)} bytes")
        with self.lock:
            self._forget_removed()
            opened = self.found.get((topic, partition))
            if opened is None:
                opened = self.found[topic, partition] = self._add(topic, partition, topic_id)
            elif not has_topic_id(&opened.state):
                with nogil:
                    set_topic_id(&self.table, &opened.state, <const uint8_t*>id_bytes)
        if self.isr_wanted is not None or self.storage_failed is not None:
            self._start()
        return opened

    cdef Partition _add(self, str topic, int32_t partition, bytes topic_id):
        cdef Partition added = Partition.__new__(Partition)
        cdef bint has_room
        added.table, added.topic, added.name = self, topic, topic.encode()
        open_state(added, &self.table, topic in INTERNAL_TOPICS)
        added.state.index = partition
        memcpy(added.state.topic_id, PyBytes_AS_STRING(topic_id), TOPIC_ID_BYTES)
        with nogil:
            has_room = add_partition(&self.table, &added.state)
        if not has_room:
            raise MemoryError()
        return added

    def get(self, str topic not None, int32_t partition):
        """Return the partition, or None if it is not hosted."""
        return self.found.get((topic, partition))

    def remove(self, str topic not None, int32_t partition):
        """Remove a partition. Its parked requests get NOT_LEADER_OR_FOLLOWER. Its log stays open."""
        cdef Partition gone
        with self.lock:
            gone = self.found.pop((topic, partition), None)
            if gone is None:
                return
            # From here on no lookup finds the partition. Threads that have pinned it go on using it.
            self.removed.append(gone)
            with nogil:
                remove_partition(&self.table, &gone.state)
        gone._resign(None, NO_LEADER, -1, -1, (), (), False)

    def partitions(self):
        """Return all partitions."""
        return list(self.found.values())

    def _forget_removed(self):
        """Free the removed partitions that no thread has pinned. No lookup finds them any more."""
        cdef Partition gone
        if self.removed:
            self.removed = [gone for gone in self.removed if gone.state.pins]

    def set_live_brokers(self, ids):
        """Set the live brokers: they may join an ISR, and a high watermark waits for those about to join."""
        cdef Ids live = ids_of(ids)
        with nogil:
            free(set_live(&self.table, live.ids, live.count))

    def shrink_isrs(self, now_ms=None):
        """Ask for an ISR without the followers that lag, for each partition led here (Partition.maybeShrinkIsr)."""
        cdef Partition partition
        cdef int64_t now = wall_ms(&self.table) if now_ms is None else now_ms
        if self.isr_wanted is None:
            return
        for partition in self.partitions():
            wanted = partition._wanted_isr(now)
            if wanted is not None:
                self.isr_wanted(partition, wanted)

    # -- the thread

    cdef _start(self):
        """Start the thread if it does not run."""
        with self.lock:
            if self.has_thread and self.thread is None and not self.table.closed:
                self.thread = threading.Thread(target=self._run, name="partition-events", daemon=True)
                self.thread.start()

    def close(self):
        """End the thread. Appends that wait are answered with NOT_LEADER_OR_FOLLOWER."""
        cdef Partition partition
        with nogil:
            lock(&self.table.event_mutex)
            self.table.closed = True
            signal(&self.table.event_condition)
            unlock(&self.table.event_mutex)
        with self.lock:
            thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        for partition in self.partitions():
            partition._resign(None, NO_LEADER, -1, -1, (), (), False)
            partition._complete_appends()

    def _run(self):
        while self._turn(True):
            pass

    def serve_events(self):
        """Do on this thread what the table's thread would do now; return the nanoseconds until an append expires."""
        while self._turn(False):
            pass
        return self._expire()

    def _turn(self, bint may_wait):
        """Answer expired appends and serve one event. Return whether to go on: there may be another one."""
        cdef PartitionState* p
        cdef Partition partition
        cdef int64_t wait_ns = self._expire()
        cdef int events = 0
        cdef bint closed
        with nogil:
            lock(&self.table.event_mutex)
            if may_wait and self.table.first_event == NULL and not self.table.closed and not self.table.has_deadline:
                wait(&self.table.event_condition, &self.table.event_mutex, wait_ns)
            self.table.has_deadline = False
            p = self.table.first_event
            if p != NULL:
                self.table.first_event = p.next_event
                if p.next_event == NULL:
                    self.table.last_event = NULL
                events, p.events = p.events, 0
            closed = self.table.closed
            unlock(&self.table.event_mutex)
        if p == NULL:
            return may_wait and not closed
        # The event has pinned it, so that it lives at least until here.
        partition = <Partition>p.owner
        with nogil:
            release_partition(p)
        if not closed:
            self._serve(partition, events)
        return True

    def _serve(self, Partition partition, int events):
        """Do what ``raise_event`` has asked for."""
        try:
            if events & COMPLETE_APPENDS:
                partition._complete_appends()
            if events & ASK_FOR_ISR and self.isr_wanted is not None:
                wanted = partition._wanted_isr()
                if wanted is not None:
                    self.isr_wanted(partition, wanted)
            if events & REPORT_FAILURE and self.storage_failed is not None:
                self.storage_failed(partition)
            if events & TELL_LOW_WATERMARK:
                for listener in list(partition.low_watermark_listeners):
                    listener()
        except Exception:
            ContextLogger(logger, partition.log_context).exception("an event was not served")

    def _expire(self):
        """Answer the appends whose time is over; return the nanoseconds until the next one."""
        cdef WaitingAppend append
        cdef int64_t now = monotonic_ns_of(self.table.clock)
        expired = []
        with self.lock:
            while self.deadlines:
                deadline, _, append = self.deadlines[0]
                if deadline > now and not append.future.done():
                    break
                heapq.heappop(self.deadlines)
                if append in append.partition.waiting:
                    append.partition.waiting.remove(append)
                    append.error = REQUEST_TIMED_OUT
                    expired.append(append)
            wait_ns = self.deadlines[0][0] - now if self.deadlines else 3600_000_000_000
        for append in expired:
            append.finish()
        return wait_ns


cdef void open_state(Partition partition, Table* table, bint is_internal) noexcept:
    cdef PartitionState* p = &partition.state
    p.table, p.owner = table, <void*>partition
    p.name, p.name_size = <const uint8_t*>PyBytes_AS_STRING(partition.name), <int32_t>len(partition.name)
    p.is_internal = is_internal
    p.min_insync_replicas = 1
    p.leader = p.leader_epoch = p.partition_epoch = NO_LEADER
    p.wanted_watermark = NEVER
    p.future_start_offset = NO_OFFSET


# An append that waits for followers, as ``look_at_waiting`` sees it.
cdef struct Waiting:
    int64_t required_offset
    bint is_acknowledged
    int16_t error


cdef void look_at_waiting(PartitionState* p, Waiting* waiting, int32_t count) noexcept nogil:
    """Find which appends are acknowledged; the table's thread is woken for the next one of the others."""
    cdef int64_t least = NEVER
    cdef int32_t i
    lock_partition(p)
    for i in range(count):
        waiting[i].is_acknowledged = is_acknowledged(p, waiting[i].required_offset, &waiting[i].error)
        if not waiting[i].is_acknowledged:
            least = min(least, waiting[i].required_offset)
    p.wanted_watermark = least
    unlock_partition(p)


# -- memory between Python and the state


cdef void release_log(void* log) noexcept:
    """Give the reference to a log back; nothing happens for NULL."""
    if log != NULL:
        Py_DECREF(<object>log)


cdef Ids ids_of(brokers):
    """Return ids in new memory. Raises MemoryError."""
    cdef Ids ids
    cdef int32_t i, broker_id
    brokers = tuple(brokers)
    ids.count = <int32_t>len(brokers)
    ids.ids = <int32_t*>malloc(max(1, ids.count) * sizeof(int32_t))
    if ids.ids == NULL:
        raise MemoryError()
    try:
        for i, broker_id in enumerate(brokers):
            ids.ids[i] = broker_id
    except BaseException:
        free(ids.ids)
        raise
    return ids


cdef Ids copy_of(const int32_t* brokers, int32_t count) noexcept nogil:
    """Return a copy of ids; its memory is NULL if none could be allocated."""
    cdef Ids ids
    ids.count = count
    ids.ids = <int32_t*>malloc(max(1, count) * sizeof(int32_t))
    if ids.ids != NULL and count:
        memcpy(ids.ids, brokers, count * sizeof(int32_t))
    return ids


cdef tuple take_tuple(Ids* ids):
    """Return ids as a tuple, and free their memory. Raises MemoryError."""
    cdef int32_t i
    if ids.ids == NULL:
        raise MemoryError()
    try:
        return tuple([ids.ids[i] for i in range(ids.count)])
    finally:
        free(ids.ids)


cdef bint is_throttled(replicas, const PartitionState* partition) except -1:
    """Return whether a set of throttled replicas has this broker's of the partition, or all."""
    return (partition.index, partition.table.broker_id) in replicas or replicas == ALL_REPLICAS


cdef TopicSettings settings_of(config, const PartitionState* partition):
    """Return the settings that a partition takes from a LogConfig."""
    cdef TopicSettings settings
    memset(&settings, 0, sizeof(TopicSettings))
    settings.rules.origin = CLIENT
    settings.rules.before_max_ms, settings.rules.after_max_ms = config.timestamp_limits_ms
    settings.rules.max_message_bytes, settings.rules.segment_bytes = config.max_message_bytes, config.segment_bytes
    settings.rules.compression = _COMPRESSION_TYPES[config.compression_type]
    settings.rules.compression_level = config.compression_level
    settings.rules.log_append_time = config.message_timestamp_type == "LogAppendTime"
    settings.rules.compacted = config.cleanup_compact
    settings.min_insync_replicas = config.min_insync_replicas
    settings.leader_is_throttled = is_throttled(config.leader_throttled_replicas, partition)
    settings.follower_is_throttled = is_throttled(config.follower_throttled_replicas, partition)
    return settings


cdef int fill_role(Role* role, const PartitionState* partition, Log log, replicas, isr) except -1:
    """Set the Python objects of a role. ``log`` may be None."""
    role.replicas, role.isr = ids_of(replicas), ids_of(isr)
    if log is not None:
        role.settings = settings_of(log.config, partition)
        Py_INCREF(log)
        role.log = <void*>log
    return 0


cdef void free_role(Role* role) noexcept:
    """Free the memory of a role. A role that was taken has the former memory of the partition."""
    free(role.replicas.ids)
    free(role.isr.ids)
    free(role.followers)
    release_log(role.log)


class EndedAppend(Future):
    """The future of an append that has ended before anybody sees it: it needs no lock, and costs a tenth."""

    def __init__(self, result):
        # What the methods of Future use, besides those here, is missing.
        self._result = result

    def cancel(self):
        return False

    def cancelled(self):
        return False

    def running(self):
        return False

    def done(self):
        return True

    def result(self, timeout=None):
        return self._result

    def exception(self, timeout=None):
        return None

    def add_done_callback(self, function):
        try:
            function(self)
        except Exception:
            logger.exception("the callback of an append failed")

    def __repr__(self):
        return f"<EndedAppend: {self._result}>"


cdef class WaitingAppend:
    """An append from Python that waits for followers."""

    cdef finish(self):
        """Give the future its result."""
        result = self.result._replace(error_code=self.error) if self.error else self.result
        self.future.set_result(result[:3] if self.is_short else result)


@cython.no_gc_clear
cdef class Partition:
    """One partition that the broker hosts. ``PartitionTable.open`` makes it."""

    def __cinit__(self):
        open_mutex(&self.state.mutex, PARTITION)
        self.waiting, self.low_watermark_listeners = [], []

    def __init__(self):
        raise TypeError("PartitionTable.open makes partitions")

    def __dealloc__(self):
        free(self.state.followers)
        free(self.state.replicas)
        free(self.state.isr)
        release_log(self.state.log)
        close_mutex(&self.state.mutex)

    def __repr__(self):
        role = "leader" if self.state.is_leader else f"follower of {self.state.leader}"
        return f"<Partition {self.topic}-{self.state.index}: {role}, epoch {self.state.leader_epoch}, ISR {list(self.isr)}>"

    @property
    def partition(self):
        return self.state.index

    @property
    def log_context(self):
        """What log lines about the partition begin with."""
        return f"[Partition {self.topic}-{self.state.index} broker={self.table.table.broker_id}] "

    @property
    def topic_id(self):
        return PyBytes_FromStringAndSize(<const char*>self.state.topic_id, TOPIC_ID_BYTES)

    @property
    def log(self):
        """The Log, or None if the partition has no role or its log directory has failed."""
        # No other thread can release the log meanwhile: that needs the GIL.
        cdef void* log = self.state.log
        return None if log == NULL else <object>log

    @property
    def replicas(self):
        """The ids of the brokers with a replica."""
        cdef Ids ids
        with nogil:
            lock_partition(&self.state)
            ids = copy_of(self.state.replicas, self.state.replica_count)
            unlock_partition(&self.state)
        return take_tuple(&ids)

    @property
    def isr(self):
        """The ISR that the controller has committed."""
        cdef Ids ids
        with nogil:
            lock_partition(&self.state)
            ids = copy_of(self.state.isr, self.state.isr_size)
            unlock_partition(&self.state)
        return take_tuple(&ids)

    @property
    def leader(self):
        return self.state.leader

    @property
    def leader_epoch(self):
        return self.state.leader_epoch

    @property
    def partition_epoch(self):
        return self.state.partition_epoch

    @property
    def is_leader(self):
        return self.state.is_leader

    @property
    def follower_is_throttled(self):
        """Whether what this broker gets of the partition counts for the replication quota."""
        return self.state.follower_is_throttled

    @property
    def is_offline(self):
        return self.state.is_offline

    @property
    def isr_is_pending(self):
        """Whether the controller was asked for another ISR and has not answered."""
        return self.state.isr_is_pending

    @property
    def high_watermark(self):
        """The offset that consumers may read up to, -1 without a log."""
        log = self.log
        return -1 if log is None else log.high_watermark

    @property
    def epoch_start_offset(self):
        """The end of the log when this broker began to lead in this epoch."""
        return self.state.epoch_start_offset

    @property
    def low_watermark(self):
        """The least start offset of the leader's log and of those of the live followers, -1: not known, or no leader."""
        cdef int64_t offset
        with nogil:
            offset = low_watermark(&self.state)
        return offset

    def add_low_watermark_listener(self, listener):
        """Call ``listener()`` on the table's thread when the low watermark may have moved, or the leader has changed."""
        with self.table.lock:
            self.low_watermark_listeners.append(listener)
            self._set_tells_low_watermark(True)
        self.table._start()

    def remove_low_watermark_listener(self, listener):
        """Stop calling ``listener``."""
        with self.table.lock:
            if listener in self.low_watermark_listeners:
                self.low_watermark_listeners.remove(listener)
            if not self.low_watermark_listeners:
                self._set_tells_low_watermark(False)

    cdef void _set_tells_low_watermark(self, bint tells) noexcept:
        with nogil:
            lock_partition(&self.state)
            self.state.tells_low_watermark = tells
            unlock_partition(&self.state)

    def follow_watermark(self, int64_t offset):
        """Move the high watermark of a follower to the leader's, and wake the readers of the follower."""
        with nogil:
            follow_watermark(&self.state, offset)

    @property
    def counters(self):
        """Records appended, their bytes, appends that failed, bytes of batches too large, bytes to consumers.

        Since the partition is hosted here.
        """
        cdef const PartitionState* p = &self.state
        return p.records_in, p.bytes_in, p.failed_appends, p.bytes_rejected, p.bytes_out

    def count_bytes_out(self, int64_t size):
        """Count bytes of converted records for a consumer."""
        count_shared(&self.state.bytes_out, size)

    @property
    def watchers(self):
        """Parked requests that wait for the partition."""
        cdef Watcher* watcher
        cdef int64_t number = 0
        with nogil:
            lock_partition(&self.state)
            watcher = self.state.watchers
            while watcher != NULL:
                number += 1
                watcher = watcher.later
            unlock_partition(&self.state)
        return number

    def followers(self):
        """Return (broker id, end offset, whether in sync) of each follower, as the leader knows it."""
        cdef Follower* followers
        cdef int32_t i, count
        with nogil:
            lock_partition(&self.state)
            count = self.state.follower_count
            followers = <Follower*>malloc(max(1, count) * sizeof(Follower))
            if followers != NULL and count:
                memcpy(followers, self.state.followers, count * sizeof(Follower))
            unlock_partition(&self.state)
        if followers == NULL:
            raise MemoryError()
        try:
            return [(followers[i].broker_id, followers[i].end_offset, followers[i].in_isr) for i in range(count)]
        finally:
            free(followers)

    # -- who leads

    def make_leader(
        self, Log log not None, int32_t leader_epoch, int32_t partition_epoch, replicas, isr
    ):
        """Lead from the end of ``log``. Nothing is done if the partition epoch is older (Partition.makeLeader).

        Raises KafkaError where the leader epoch cannot be written.
        """
        cdef Role role
        cdef int64_t now = wall_ms(self.state.table)
        cdef int result
        if leader_epoch < 0:
            raise ValueError(f"{self.topic}-{self.state.index}: leader epoch {leader_epoch}")
        memset(&role, 0, sizeof(Role))
        try:
            fill_role(&role, &self.state, log, replicas, isr)
            role.leader, role.leader_epoch, role.partition_epoch = self.state.table.broker_id, leader_epoch, partition_epoch
            role.followers = <Follower*>calloc(max(1, role.replicas.count), sizeof(Follower))
            if role.followers == NULL:
                raise MemoryError()
            with nogil:
                result = become_leader(&self.state, &role, now)
            log.check(result)
        finally:
            free_role(&role)

    def make_follower(
        self, Log log not None, int32_t leader, int32_t leader_epoch, int32_t partition_epoch, replicas, isr=()
    ):
        """Follow ``leader``. Nothing is done if the partition epoch is older (Partition.makeFollower).

        Kafka's followers do not use the ISR; ``isr`` is only kept to be shown.
        """
        self._resign(log, leader, leader_epoch, partition_epoch, replicas, isr, False)

    def set_offline(self):
        """Answer every request with KAFKA_STORAGE_ERROR: the log's directory has failed."""
        self._resign(None, NO_LEADER, -1, -1, self.replicas, (), True)

    def _resign(
        self, log, int32_t leader, int32_t leader_epoch, int32_t partition_epoch, replicas, isr, bint is_offline
    ):
        """Stop leading, and answer all waiting requests. Without a log the epochs stay unchanged."""
        cdef Role role
        memset(&role, 0, sizeof(Role))
        try:
            fill_role(&role, &self.state, log, replicas, isr)
            role.leader, role.leader_epoch, role.partition_epoch = leader, leader_epoch, partition_epoch
            role.is_offline = is_offline
            with nogil:
                resign(&self.state, &role)
        finally:
            free_role(&role)

    def replace_log(self, Log log not None, str name not None):
        """Use a log of another log directory if it has the same end as the partition's; return whether it is used now.

        Its folder gets the name ``name``; the caller flushes that of the log directory. The log takes the high watermark,
        and the former log changes no more. Raises KafkaError where the folder cannot be renamed.
        """
        cdef bytes encoded
        cdef const char* path
        cdef void* former
        cdef bint is_moved
        cdef int result
        with log.changing:
            folder = log.folder.with_name(name)
            encoded = os.fsencode(folder)
            path = encoded
            # For the partition.
            Py_INCREF(log)
            with nogil:
                result = replace_log(&self.state, log, path, &former, &is_moved)
            if former == NULL:
                Py_DECREF(log)
            else:
                release_log(former)
            if is_moved:
                log.use_folder(folder)
            if former == NULL:
                log.check(result)
            elif result != DONE:
                # Its log directory goes offline, and the partition with it.
                log.fail(result)
        return former != NULL

    def set_future_start(self, offset):
        """Note where the log begins that is to take the place of this one; None: there is none."""
        cdef int64_t start = NO_OFFSET if offset is None else offset
        with nogil:
            set_future_start(&self.state, start)

    def update_config(self, config):
        """Take new settings of the topic, a LogConfig."""
        cdef TopicSettings settings = settings_of(config.check(), &self.state)
        cdef int64_t now = wall_ms(self.state.table)
        with nogil:
            set_settings(&self.state, &settings, now)

    # -- the ISR

    def set_isr(self, isr, int32_t partition_epoch, leader_epoch=None):
        """Take the ISR that the controller has committed. Nothing is done if the answer is older than what is known.

        Source: Partition.handleAlterPartitionUpdate.
        """
        cdef int32_t epoch = ANY_EPOCH if leader_epoch is None else leader_epoch
        cdef int64_t now = wall_ms(self.state.table)
        cdef Ids ids = ids_of(isr)
        with nogil:
            commit_isr(&self.state, &ids, partition_epoch, epoch, now)
            free(ids.ids)

    def keep_isr(self, int32_t leader_epoch, int32_t partition_epoch):
        """The controller has refused another ISR and changed nothing (OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA).

        The epochs are those of the request. Nothing is done if the partition has others now.
        """
        with nogil:
            refuse_isr(&self.state, leader_epoch, partition_epoch)

    def _wanted_isr(self, now_ms=None):
        """Return the ISR to ask the controller for after ``expand_isr``, or None if it is no longer wanted.

        ``now_ms``: the ISR is without the followers that lag at this time. The wish is pending from here on.
        """
        cdef Wish wish
        cdef bint is_smaller = now_ms is not None
        cdef int64_t now = now_ms if is_smaller else 0
        cdef int found
        with nogil:
            found = smaller_isr(&self.state, &wish, now) if is_smaller else larger_isr(&self.state, &wish)
        if found <= 0:
            free(wish.isr.ids)
            if found < 0:
                raise MemoryError()
            return None
        return WantedIsr(take_tuple(&wish.isr), wish.leader_epoch, wish.partition_epoch)

    def update_follower(
        self, int32_t replica_id, int64_t fetch_offset, int64_t broker_epoch, int64_t now_ms, *, int64_t start_offset=0
    ):
        """Note what a follower has fetched. Raises KafkaError."""
        cdef int16_t error
        with nogil:
            error = update_follower(&self.state, replica_id, fetch_offset, start_offset, broker_epoch, now_ms)
        if error != NONE:
            raise KafkaError(error)

    # -- records

    def append(
        self, data, *, int origin=CLIENT, int required_acks=ALL, int64_t timeout_ms=30_000,
        int64_t verification_guard=NO_GUARD
    ):
        """Append one batch; the future gives (error code, base offset, append time).

        The append time is -1 with create time. ``required_acks``: 0, 1, or -1: the future waits for the in-sync replicas,
        at most ``timeout_ms``.
        """
        return self._begin(True, data, origin, verification_guard, required_acks, timeout_ms, ANY_CODEC)

    def append_records(
        self, data, *, int origin=CLIENT, int required_acks=ALL, int64_t timeout_ms=30_000, bint refuses_zstd=False,
        bint takes_old_formats=False, int64_t verification_guard=NO_GUARD
    ):
        """Append one batch; the future gives a ProduceResult. See ``append``.

        ``refuses_zstd``: the records come with a Produce before version 7. ``takes_old_formats``: before version 3, which
        may have records of format 0 and 1, or none. ``verification_guard``: what
        ``begin_verification`` has returned for the transaction that the batch begins. Where transactions are verified,
        another one gets INVALID_TXN_STATE.
        """
        kind = OLD_FORMATS if takes_old_formats else WITHOUT_ZSTD if refuses_zstd else ANY_CODEC
        return self._begin(False, data, origin, verification_guard, required_acks, timeout_ms, kind)

    cdef object _begin(
        self, bint is_short, data, int origin, int64_t guard, int required_acks, int64_t timeout_ms, int kind
    ):
        """Append one batch; return its future, of three fields of the result if ``is_short``."""
        cdef bint is_acknowledged = False
        cdef int64_t required_offset = 0
        result = self._append(data, origin, guard, required_acks, kind, &required_offset, &is_acknowledged)
        # One that is acknowledged at once ends after those that wait, if there are any.
        if required_acks != ALL or result.error_code != NONE or (is_acknowledged and not self.waiting):
            return EndedAppend(result[:3] if is_short else result)
        return self._wait_for_acks(result, is_short, required_offset, timeout_ms)

    cdef object _append(
        self, data, int origin, int64_t guard, int required_acks, int kind, int64_t* required_offset,
        bint* is_acknowledged
    ):
        """Check and append; return the ProduceResult, without waiting for followers. ``kind``: of records."""
        cdef PartitionState* p = &self.state
        cdef AppendRules rules = AppendRules(now_ms=0)
        cdef Checked checked = None
        cdef AppendResult result
        cdef Rules copied
        cdef int64_t size = len(data)
        cdef uint8_t[::1] view
        cdef int16_t refused
        cdef int64_t start
        with nogil:
            lock_partition(p)
            refused = error_of_leader(p, required_acks)
            start = NO_OFFSET if p.log == NULL else (<Log>p.log).local.start_offset
            copied = p.rules
            unlock_partition(p)
        rules.rules = copied
        rules.rules.now_ms, rules.rules.origin, rules.rules.refuses_zstd = wall_ms(p.table), origin, kind == WITHOUT_ZSTD
        if refused == NONE:
            error, checked = check_old(data, rules) if kind == OLD_FORMATS else check(data, rules)
            if error == NONE and checked.appended.batches == 0:
                # Kafka appends nothing, and says so.
                is_acknowledged[0] = True
                return ProduceResult(NONE, log_start_offset=start)
            if error == NONE:
                view = checked.data
                with nogil:
                    append_to_leader(
                        p, &view[0], &checked.appended, origin, guard, required_acks, rules.rules.now_ms, &result
                    )
                required_offset[0], is_acknowledged[0] = result.required_offset, result.is_acknowledged
                if result.error == NONE and checked.temporary_bytes:
                    self.count_conversion(
                        PRODUCE, checked.converted_records, checked.conversion_ns, checked.temporary_bytes
                    )
                if result.error == NONE:
                    result.error = self._flush_if_due()
                return ProduceResult(result.error, result.base_offset, result.append_time, result.log_start_offset)
            refused = error
        with nogil:
            lock_partition(p)
            count_refused(p, refused, size)
            unlock_partition(p)
        if checked is not None and checked.appended.bad_records:
            errors = record_errors(data, rules)
            reason = f"{len(errors)} record errors; the first one: {errors[0][1]}"
            if refused == INVALID_TIMESTAMP:
                reason = "invalid timestamp"
            message = f"One or more records have been rejected due to {reason}"
            return ProduceResult(refused, log_start_offset=start, record_errors=errors, error_message=message)
        return ProduceResult(refused, log_start_offset=NO_OFFSET if is_expected(refused) else start)

    def count_conversion(self, int api_key, int64_t records, int64_t time_ns, int64_t temporary_bytes):
        """Count records of a Produce (0) or a Fetch (1) that were written anew (RecordValidationStats)."""
        cdef int64_t* counted = self.conversions[api_key]
        counted[0], counted[1], counted[2] = counted[0] + records, counted[1] + time_ns, counted[2] + temporary_bytes

    def converted(self, int api_key):
        """Return records of Produce (0) or Fetch (1) that were written anew, in how many nanoseconds, with how many bytes."""
        cdef int64_t* counted = self.conversions[api_key]
        return counted[0], counted[1], counted[2]

    def begin_verification(self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence):
        """Return the guard with which a batch may begin a transaction once the coordinator has confirmed it (KIP-890).

        0: no verification is needed. The producer has a transaction here, or transactions are not verified. Raises
        KafkaError.
        """
        cdef int64_t guard
        cdef int16_t error
        with nogil:
            error = verify_producer(&self.state, producer_id, producer_epoch, base_sequence, &guard)
        if error != NONE:
            raise KafkaError(error)
        return guard

    def confirm_verification(
        self, int64_t producer_id, int16_t producer_epoch, int64_t guard, bytes transactional_id not None
    ):
        """Let the first batch of a transaction be appended, and nobody be asked, since this broker coordinates it.

        The partition is part of the transaction, and ``guard`` was taken before it became so. Nothing happens if the
        verification has ended, or another broker leads.
        """
        cdef const uint8_t* name = <const uint8_t*>PyBytes_AS_STRING(transactional_id)
        cdef int64_t size = len(transactional_id)
        with nogil:
            confirm_producer(&self.state, producer_id, producer_epoch, guard, name, size)

    def withdraw_verification(self, int64_t producer_id):
        """Have the coordinator asked again: the end of a producer's transaction is going to be decided."""
        with nogil:
            withdraw_producer(&self.state, producer_id)

    def append_marker(
        self, int64_t producer_id, int16_t producer_epoch, bint commit, int32_t coordinator_epoch, *,
        int required_acks=ALL, int64_t timeout_ms
    ):
        """Append the marker that ends a transaction of a producer; the future gives a ProduceResult.

        ``required_acks``, ``timeout_ms``: as ``append``. Source: KafkaApis.handleWriteTxnMarkersRequest.
        """
        cdef AppendResult result
        cdef Marker marker
        marker.is_aborted, marker.coordinator_epoch = not commit, coordinator_epoch
        marker.timestamp = wall_ms(self.state.table)
        with nogil:
            append_marker_to_leader(&self.state, producer_id, producer_epoch, &marker, required_acks, &result)
        if result.error == NONE:
            result.error = self._flush_if_due()
        appended = ProduceResult(result.error, result.base_offset, result.append_time, result.log_start_offset)
        if required_acks != ALL or result.is_acknowledged or result.error != NONE:
            return EndedAppend(appended)
        return self._wait_for_acks(appended, False, result.required_offset, timeout_ms)

    def _flush_if_due(self):
        """Flush the log if flush.messages says so; return Kafka's error code."""
        log = self.log
        try:
            if log is not None:
                log.flush_if_due()
        except KafkaError as error:
            return error.code
        return NONE

    cdef object _wait_for_acks(self, result, bint is_short, int64_t required_offset, int64_t timeout_ms):
        """Return the future of an append; it ends when the append is acknowledged, or its time is over."""
        cdef WaitingAppend append = WaitingAppend()
        cdef PartitionTable table = self.table
        cdef bint is_first = False
        append.future = Future()
        append.future.set_running_or_notify_cancel()
        append.partition, append.required_offset = self, required_offset
        append.result, append.is_short = result, is_short
        with table.lock:
            self.waiting.append(append)
        self._complete_appends()
        if append.future.done():
            return append.future
        table._start()
        with table.lock:
            table.numbers += 1
            heapq.heappush(table.deadlines, (monotonic_ns_of(table.table.clock) + 1_000_000 * max(0, timeout_ms), table.numbers, append))
            is_first = table.deadlines[0][2] is append
        if is_first:
            with nogil:
                lock(&table.table.event_mutex)
                table.table.has_deadline = True
                signal(&table.table.event_condition)
                unlock(&table.table.event_mutex)
        return append.future

    def _complete_appends(self):
        """Finish the acknowledged appends, and have the next acknowledgement wake the table's thread."""
        cdef WaitingAppend append
        cdef Waiting* waiting
        cdef int32_t i, count
        done, left = [], []
        with self.table.lock:
            count = <int32_t>len(self.waiting)
            waiting = <Waiting*>malloc(max(1, count) * sizeof(Waiting))
            if waiting == NULL:
                raise MemoryError()
            for i, append in enumerate(self.waiting):
                waiting[i].required_offset = append.required_offset
            with nogil:
                look_at_waiting(&self.state, waiting, count)
            for i, append in enumerate(self.waiting):
                append.error = waiting[i].error
                if waiting[i].is_acknowledged:
                    done.append(append)
                else:
                    left.append(append)
            free(waiting)
            self.waiting = left
        for append in done:
            append.finish()

    def read(self, int64_t offset, int64_t max_bytes, *, int isolation=0):
        """Return whole batches from the one that holds ``offset`` on; more than ``max_bytes`` if the first is larger.

        Raises KafkaError. ``isolation``: READ_LOG_END, READ_HIGH_WATERMARK or READ_LAST_STABLE_OFFSET of the log.
        """
        found = self.read_range(offset, max_bytes, isolation=isolation)
        try:
            return found.read()
        finally:
            found.close()

    def read_range(self, int64_t offset, int64_t max_bytes, *, int isolation=0):
        """Return the FileRange that ``read`` reads. Raises KafkaError."""
        log = self.log
        if log is None:
            raise KafkaError(KAFKA_STORAGE_ERROR if self.state.is_offline else NOT_LEADER_OR_FOLLOWER)
        return log.read_file_range(offset, max_bytes, isolation=isolation)
