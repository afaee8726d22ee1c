"""The partitions of one broker: leader, leader epoch, ISR, followers and high watermark, and the log behind each.

What runs once per request is in ``_partition_state.pyx``. Python code changes who leads, and appends by
``Partition.append``. A thread of the table calls back into Python: it completes appends that wait for
followers, asks for another ISR, and reports failed logs. Source: kafka.cluster.Partition, kafka.cluster.Replica.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

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
    Appended,
    AppendRules,
    Checked,
)
from ctrlchan.broker.log._log cimport Log
from ctrlchan.broker.replication._partition_state cimport (
    ASK_FOR_ISR,
    COMPLETE_APPENDS,
    NEVER,
    REPORT_FAILURE,
    TELL_LOW_WATERMARK,
    TOPIC_ID_BYTES,
    AppendResult,
    Follower,
    PartitionState,
    Table,
    Watcher,
    advance,
    append_to_leader,
    error_of_leader,
    follower_of,
    has_topic_id,
    is_acknowledged,
    is_caught_up,
    is_live,
    link_id,
    link_name,
    lock_partition,
    release_partition,
    reserve,
    unlink_name,
    unlock_partition,
    update_follower,
    wake,
    wall_ms,
)

import heapq
import logging
import threading
from collections import namedtuple
from concurrent.futures import Future

from ctrlchan.broker.log._batches import check, record_errors
from ctrlchan.errors import KafkaError

cdef extern from "broker/network/_loop/poller.h" nogil:
    int64_t monotonic_ns()

cdef enum:
    # Error codes.
    NONE = 0
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    RECORD_LIST_TOO_LARGE = 18
    INVALID_TIMESTAMP = 32
    KAFKA_STORAGE_ERROR = 56
    INVALID_RECORD = 87

    ALL = -1
    NO_LEADER = -1
    NO_OFFSET = -1
    NO_TIMESTAMP = -1


logger = logging.getLogger("ctrlchan.broker")

ProduceResult = namedtuple(
    "ProduceResult",
    "error_code base_offset append_time log_start_offset record_errors error_message",
    defaults=(NO_OFFSET, NO_TIMESTAMP, NO_OFFSET, (), None),
)

WantedIsr = namedtuple("WantedIsr", "isr leader_epoch partition_epoch")

_COMPRESSION_TYPES = {"producer": -1, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
#: Errors that say nothing of the log: Kafka answers them without the log's start offset.
_WITHOUT_START = frozenset((
    CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
    KAFKA_STORAGE_ERROR,
))


@cython.no_gc_clear
cdef class PartitionTable:
    """The partitions that the broker ``broker_id`` hosts.

    ``isr_wanted(partition, wanted)`` is called on the table's thread, or by ``shrink_isrs``, when a leader wants another
    ISR (``WantedIsr``: it has the epochs of the state that it was made from); ``Partition.set_isr`` or ``keep_isr`` is the answer. None: the ISR only changes by ``make_leader``.
    ``storage_failed(partition)`` is called on the table's thread when an append has met an I/O error. ``max_lag_ms``:
    replica.lag.time.max.ms. ``close`` ends the thread.
    """

    def __cinit__(self, *args, **kwargs):
        open_mutex(&self.table.mutex, PARTITION_TABLE)
        open_mutex(&self.table.event_mutex, PARTITION_EVENTS)
        open_condition(&self.table.event_condition)
        self.table.live_count = -1
        if not reserve(&self.table):
            raise MemoryError()

    def __init__(self, int32_t broker_id, *, isr_wanted=None, storage_failed=None, int64_t max_lag_ms=30_000):
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

    def open(self, str topic not None, int32_t partition, bytes topic_id=bytes(TOPIC_ID_BYTES)):
        """Return the partition, which is added if it is not there. A partition without a topic id takes the given one."""
        cdef Partition opened
        if len(topic_id) != TOPIC_ID_BYTES:
            raise ValueError(f"a topic id of {len(topic_id)} bytes")
        with self.lock:
            self._forget_removed()
            opened = self.found.get((topic, partition))
            if opened is None:
                opened = self.found[topic, partition] = self._add(topic, partition, topic_id)
            elif not has_topic_id(&opened.state):
                self._lock()
                memcpy(opened.state.topic_id, PyBytes_AS_STRING(topic_id), TOPIC_ID_BYTES)
                link_id(&self.table, &opened.state)
                unlock(&self.table.mutex)
        if self.isr_wanted is not None or self.storage_failed is not None:
            self._start()
        return opened

    cdef Partition _add(self, str topic, int32_t partition, bytes topic_id):
        cdef Partition added = Partition.__new__(Partition)
        cdef bint has_room
        added.table, added.topic, added.name = self, topic, topic.encode()
        open_state(added, &self.table, topic in _INTERNAL_TOPICS)
        added.state.index = partition
        memcpy(added.state.topic_id, PyBytes_AS_STRING(topic_id), TOPIC_ID_BYTES)
        self._lock()
        has_room = reserve(&self.table)
        if has_room:
            link_name(&self.table, &added.state)
        unlock(&self.table.mutex)
        if not has_room:
            raise MemoryError()
        return added

    cdef void _lock(self) noexcept:
        with nogil:
            lock(&self.table.mutex)

    def get(self, str topic not None, int32_t partition):
        """Return the partition, None: it is not hosted."""
        return self.found.get((topic, partition))

    def remove(self, str topic not None, int32_t partition):
        """Take a partition out. Requests that wait for it are answered with NOT_LEADER_OR_FOLLOWER. Its log stays open."""
        cdef Partition gone
        with self.lock:
            gone = self.found.pop((topic, partition), None)
            if gone is None:
                return
            self._lock()
            unlink_name(&self.table, &gone.state)
            unlock(&self.table.mutex)
            self.removed.append(gone)
        gone._resign(None, NO_LEADER, -1, -1, (), False)

    def partitions(self):
        """Return all partitions."""
        return list(self.found.values())

    def _forget_removed(self):
        """Let go of the removed partitions that nobody has pinned; nobody finds them any more."""
        cdef Partition gone
        if self.removed:
            self.removed = [gone for gone in self.removed if gone.state.pins]

    def set_live_brokers(self, ids):
        """Set the brokers that may join an ISR, and that a high watermark waits for outside of it."""
        cdef int32_t* live = <int32_t*>malloc(max(1, len(ids)) * sizeof(int32_t))
        cdef int32_t i, broker_id
        if live == NULL:
            raise MemoryError()
        for i, broker_id in enumerate(ids):
            live[i] = broker_id
        self._lock()
        free(self.table.live)
        self.table.live, self.table.live_count = live, <int32_t>len(ids)
        unlock(&self.table.mutex)

    def shrink_isrs(self, now_ms=None):
        """Ask for an ISR without the followers that lag, for each partition led here (Partition.maybeShrinkIsr)."""
        cdef Partition partition
        cdef int64_t now = wall_ms() if now_ms is None else now_ms
        if self.isr_wanted is None:
            return
        for partition in self.partitions():
            wanted = partition._smaller_isr(now)
            if wanted is not None:
                self.isr_wanted(partition, wanted)

    # -- the thread

    cdef _start(self):
        """Start the thread if it does not run."""
        with self.lock:
            if self.thread is None and not self.table.closed:
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
            partition._resign(None, NO_LEADER, -1, -1, (), False)
            partition._complete_appends()

    def _run(self):
        cdef PartitionState* p
        cdef PartitionState* following
        cdef Partition partition
        cdef int64_t wait_ns
        cdef int events = 0
        cdef bint closed
        while True:
            wait_ns = self._expire()
            with nogil:
                lock(&self.table.event_mutex)
                if self.table.first_event == NULL and not self.table.closed and not self.table.has_deadline:
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
            if p != NULL:
                # It is pinned.
                partition = <Partition>p.owner
                release_partition(p)
                if not closed:
                    self._serve(partition, events)
            elif closed:
                return

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
            logger.exception("broker %d: %s-%d", self.broker_id, partition.topic, partition.partition)

    def _expire(self):
        """Answer the appends whose time is over; return the nanoseconds until the next one."""
        cdef WaitingAppend append
        cdef int64_t now = monotonic_ns()
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


cdef class WaitingAppend:
    """An append from Python that waits for followers."""

    cdef finish(self):
        """Give the future its result."""
        self.future.set_result(self.result._replace(error_code=self.error) if self.error else self.result)


@cython.no_gc_clear
cdef class Partition:
    """One partition that the broker hosts. ``PartitionTable.open`` makes it."""

    def __cinit__(self):
        open_mutex(&self.state.mutex, PARTITION)
        self.replicas, self.isr, self.waiting, self.low_watermark_listeners = (), (), [], []

    def __init__(self):
        raise TypeError("PartitionTable.open makes partitions")

    def __dealloc__(self):
        free(self.state.followers)
        close_mutex(&self.state.mutex)

    def __repr__(self):
        role = "leader" if self.state.is_leader else f"follower of {self.state.leader}"
        return f"<Partition {self.topic}-{self.state.index}: {role}, epoch {self.state.leader_epoch}, ISR {list(self.isr)}>"

    cdef void lock(self) noexcept:
        """Wait for the mutex without the GIL, which its owner may be waiting for."""
        with nogil:
            lock_partition(&self.state)

    @property
    def partition(self):
        return self.state.index

    @property
    def topic_id(self):
        return PyBytes_FromStringAndSize(<const char*>self.state.topic_id, TOPIC_ID_BYTES)

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
        cdef PartitionState* p = &self.state
        cdef int64_t offset = NO_OFFSET
        cdef int32_t i
        self.lock()
        if p.is_leader and p.log != NULL:
            offset = (<Log>p.log).start_offset_
            for i in range(p.follower_count):
                if is_live(p.table, p.followers[i].broker_id):
                    offset = min(offset, p.followers[i].start_offset)
        unlock_partition(p)
        return offset

    def add_low_watermark_listener(self, listener):
        """Call ``listener()`` on the table's thread when the low watermark may have moved, or the leader has changed."""
        with self.table.lock:
            self.low_watermark_listeners.append(listener)
        self.lock()
        self.state.tells_low_watermark = True
        unlock_partition(&self.state)
        self.table._start()

    def remove_low_watermark_listener(self, listener):
        """Call ``listener`` no more."""
        with self.table.lock:
            if listener in self.low_watermark_listeners:
                self.low_watermark_listeners.remove(listener)
            none_is_left = not self.low_watermark_listeners
        if none_is_left:
            self.lock()
            self.state.tells_low_watermark = False
            unlock_partition(&self.state)

    def follow_watermark(self, int64_t offset):
        """Move the high watermark of a follower to the leader's, and wake who reads from the follower."""
        cdef PartitionState* p = &self.state
        self.lock()
        if p.log != NULL and not p.is_leader:
            wake(p, False, False, (<Log>p.log).set_high_watermark(offset))
        unlock_partition(p)

    @property
    def counters(self):
        """Appended records, their bytes, and appends that failed, since the partition is hosted here."""
        return self.state.records_in, self.state.bytes_in, self.state.failed_appends

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
        cdef int32_t i
        self.lock()
        try:
            return [
                (self.state.followers[i].broker_id, self.state.followers[i].end_offset, self.state.followers[i].in_isr)
                for i in range(self.state.follower_count)
            ]
        finally:
            unlock_partition(&self.state)

    # -- who leads

    def make_leader(
        self, Log log not None, int32_t leader_epoch, int32_t partition_epoch, replicas, isr
    ):
        """Lead from the end of ``log``. Nothing is done if the partition epoch is older (Partition.makeLeader)."""
        cdef PartitionState* p = &self.state
        cdef Follower* followers
        cdef Follower* before
        cdef int32_t i, count, broker_id
        cdef int64_t now = wall_ms()
        cdef bint is_new_leader, is_new_epoch
        replicas, isr = tuple(replicas), tuple(isr)
        others = [one for one in replicas if one != p.table.broker_id]
        count = <int32_t>len(others)
        followers = <Follower*>calloc(max(1, count), sizeof(Follower))
        if followers == NULL:
            raise MemoryError()
        self.lock()
        try:
            if partition_epoch < p.partition_epoch:
                return
            is_new_leader, is_new_epoch = not p.is_leader, leader_epoch > p.leader_epoch
            if is_new_epoch or is_new_leader:
                log.assign_leader_epoch(leader_epoch)
                p.epoch_start_offset = log.end_offset_
            for i in range(count):
                broker_id = others[i]
                before = NULL if is_new_leader else follower_of(p, broker_id)
                if before != NULL:
                    followers[i] = before[0]
                else:
                    followers[i].broker_id = broker_id
                    followers[i].start_offset = followers[i].end_offset = followers[i].leader_end_offset = NO_OFFSET
                    followers[i].broker_epoch = -1
                followers[i].in_isr, followers[i].is_joining = broker_id in isr, False
                if is_new_epoch or is_new_leader:
                    # One that is not in sync must not hold back the high watermark.
                    followers[i].caught_up_ms = now if followers[i].in_isr else 0
                    if before != NULL:
                        followers[i].leader_end_offset = p.epoch_start_offset
                        followers[i].fetched_ms = followers[i].caught_up_ms
            followers, p.followers = p.followers, followers
            p.follower_count = count
            self._set_log(log)
            self.replicas, self.isr = replicas, isr
            p.isr_size, p.isr_is_pending = <int32_t>len(isr), False
            p.leader, p.is_leader, p.is_offline = p.table.broker_id, True, False
            p.leader_epoch, p.partition_epoch = leader_epoch, partition_epoch
            advance(p, False, now)
        finally:
            unlock_partition(p)
            free(followers)

    def make_follower(
        self, Log log not None, int32_t leader, int32_t leader_epoch, int32_t partition_epoch, replicas, isr=()
    ):
        """Follow ``leader``. Nothing is done if the partition epoch is older (Partition.makeFollower).

        Kafka's followers know no ISR; ``isr`` is only kept for those who ask.
        """
        self._resign(log, leader, leader_epoch, partition_epoch, replicas, False)
        self.isr = tuple(isr)

    def set_offline(self):
        """Answer every request with KAFKA_STORAGE_ERROR: the log's directory has failed."""
        self._resign(None, NO_LEADER, -1, -1, self.replicas, True)

    def _resign(self, log, int32_t leader, int32_t leader_epoch, int32_t partition_epoch, replicas, bint is_offline):
        """Lead no more, and answer everyone who waits. A leader epoch of -1 stays what it is."""
        cdef PartitionState* p = &self.state
        replicas = tuple(replicas)
        self.lock()
        try:
            if log is not None and partition_epoch < p.partition_epoch:
                return
            p.leader, p.is_leader, p.is_offline = leader, False, is_offline
            if log is not None:
                p.leader_epoch, p.partition_epoch = leader_epoch, partition_epoch
            p.follower_count = p.isr_size = 0
            p.isr_is_pending = False
            self._set_log(log)
            self.replicas, self.isr = replicas, ()
            wake(p, True, False, -1)
        finally:
            unlock_partition(p)

    def _set_log(self, log):
        """Take a log and its settings. Requires the mutex."""
        before, self.log = self.log, log
        self.state.log = <void*>log if log is not None else NULL
        if log is not None and log is not before:
            self._set_config(log.config)

    def update_config(self, config):
        """Take new settings of the topic, a LogConfig."""
        config.check()
        self.lock()
        try:
            self._set_config(config)
            if self.state.is_leader:
                advance(&self.state, False, wall_ms())
        finally:
            unlock_partition(&self.state)

    def _set_config(self, config):
        cdef PartitionState* p = &self.state
        p.rules.origin = CLIENT
        p.rules.before_max_ms, p.rules.after_max_ms = config.timestamp_limits_ms
        p.rules.max_message_bytes, p.rules.segment_bytes = config.max_message_bytes, config.segment_bytes
        p.rules.compression = _COMPRESSION_TYPES[config.compression_type]
        p.rules.log_append_time = config.message_timestamp_type == "LogAppendTime"
        p.rules.compacted = config.cleanup_compact
        p.min_insync_replicas = config.min_insync_replicas

    # -- the ISR

    def set_isr(self, isr, int32_t partition_epoch, leader_epoch=None):
        """Take the ISR that the controller has committed. Nothing is done if the answer is older than what is known.

        Source: Partition.handleAlterPartitionUpdate.
        """
        cdef PartitionState* p = &self.state
        cdef int32_t i
        isr = tuple(isr)
        self.lock()
        try:
            if not p.is_leader or partition_epoch < p.partition_epoch:
                return
            if leader_epoch is not None and leader_epoch != p.leader_epoch:
                return
            for i in range(p.follower_count):
                p.followers[i].in_isr, p.followers[i].is_joining = p.followers[i].broker_id in isr, False
            self.isr, p.isr_size = isr, <int32_t>len(isr)
            p.partition_epoch, p.isr_is_pending = partition_epoch, False
            advance(p, False, wall_ms())
        finally:
            unlock_partition(p)

    def keep_isr(self, int32_t leader_epoch, int32_t partition_epoch):
        """The controller has refused another ISR and changed nothing (OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA).

        The epochs are those that it was asked with. Nothing is done if they are no longer the partition's.
        """
        cdef PartitionState* p = &self.state
        cdef int32_t i
        self.lock()
        if p.leader_epoch == leader_epoch and p.partition_epoch == partition_epoch:
            for i in range(p.follower_count):
                p.followers[i].is_joining = False
            p.isr_is_pending = False
        unlock_partition(p)

    def _wanted_isr(self):
        """Return what the controller shall be asked for after ``expand_isr``, None: no longer wanted."""
        cdef PartitionState* p = &self.state
        cdef int32_t i
        self.lock()
        try:
            if not p.isr_is_pending:
                return None
            joining = tuple(p.followers[i].broker_id for i in range(p.follower_count) if p.followers[i].is_joining)
            return WantedIsr(self.isr + joining, p.leader_epoch, p.partition_epoch)
        finally:
            unlock_partition(p)

    def _smaller_isr(self, int64_t now_ms):
        """Return a wish for the ISR without the followers that lag, None: no change. It is pending from here on."""
        cdef PartitionState* p = &self.state
        cdef Follower* follower
        cdef int32_t broker_id
        self.lock()
        try:
            if not p.is_leader or p.log == NULL or p.isr_is_pending:
                return None
            kept = []
            for broker_id in self.isr:
                follower = follower_of(p, broker_id)
                if broker_id == p.table.broker_id or follower != NULL and is_caught_up(
                    follower, (<Log>p.log).end_offset_, now_ms, p.table.max_lag_ms
                ):
                    kept.append(broker_id)
            if len(kept) == len(self.isr):
                return None
            p.isr_is_pending = True
            return WantedIsr(tuple(kept), p.leader_epoch, p.partition_epoch)
        finally:
            unlock_partition(p)

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

    def append(self, data, *, int origin=CLIENT, int required_acks=ALL, int64_t timeout_ms=30_000):
        """Append one batch; the future gives (error code, base offset, append time).

        The append time is -1 with create time. ``required_acks``: 0, 1, or -1: the future waits for the in-sync replicas,
        at most ``timeout_ms``.
        """
        short = Future()
        short.set_running_or_notify_cancel()
        self.append_records(
            data, origin=origin, required_acks=required_acks, timeout_ms=timeout_ms
        ).add_done_callback(lambda future: short.set_result(future.result()[:3]))
        return short

    def append_records(
        self, data, *, int origin=CLIENT, int required_acks=ALL, int64_t timeout_ms=30_000, bint refuses_zstd=False
    ):
        """Append one batch; the future gives a ProduceResult. See ``append``.

        ``refuses_zstd``: the records come with a Produce before version 7.
        """
        cdef WaitingAppend append = WaitingAppend()
        append.future = Future()
        append.future.set_running_or_notify_cancel()
        append.partition = self
        append.result = self._append(data, origin, required_acks, refuses_zstd, &append.required_offset)
        if required_acks != ALL or append.result.error_code != NONE:
            append.finish()
        else:
            self._wait_for_acks(append, timeout_ms)
        return append.future

    cdef object _append(self, data, int origin, int required_acks, bint refuses_zstd, int64_t* required_offset):
        """Check and append; return the ProduceResult, without waiting for followers."""
        cdef PartitionState* p = &self.state
        cdef AppendRules rules = AppendRules(now_ms=0)
        cdef Checked checked
        cdef AppendResult result
        cdef uint8_t[::1] view
        cdef int16_t refused
        cdef int64_t start
        self.lock()
        refused = error_of_leader(p, required_acks)
        start = NO_OFFSET if p.log == NULL else (<Log>p.log).start_offset_
        rules.rules = p.rules
        unlock_partition(p)
        rules.rules.now_ms, rules.rules.origin, rules.rules.refuses_zstd = wall_ms(), origin, refuses_zstd
        if refused == NONE:
            error, checked = check(data, rules)
            if error == NONE:
                view = checked.data
                with nogil:
                    append_to_leader(
                        p, &view[0], &checked.appended, origin, required_acks, rules.rules.now_ms, &result
                    )
                required_offset[0] = result.required_offset
                if result.error == NONE:
                    result.error = self._flush_if_due()
                return ProduceResult(result.error, result.base_offset, result.append_time, result.log_start_offset)
            if checked.appended.bad_records:
                errors = record_errors(data, rules)
                kind = "because of their timestamps" if error == INVALID_TIMESTAMP else f"({len(errors)})"
                message = f"Records were refused {kind}; the first one: {errors[0][1]}"
                return ProduceResult(error, log_start_offset=start, record_errors=errors, error_message=message)
            refused = error
        return ProduceResult(refused, log_start_offset=NO_OFFSET if refused in _WITHOUT_START else start)

    def _flush_if_due(self):
        """Flush the log if flush.messages says so; return Kafka's error code."""
        log = self.log
        try:
            if log is not None:
                log.flush_if_due()
        except KafkaError as error:
            return error.code
        return NONE

    cdef object _wait_for_acks(self, WaitingAppend append, int64_t timeout_ms):
        """Finish the append when it is acknowledged, or its time is over."""
        cdef PartitionTable table = self.table
        cdef bint is_first = False
        with table.lock:
            self.waiting.append(append)
        self._complete_appends()
        if append.future.done():
            return
        table._start()
        with table.lock:
            table.numbers += 1
            heapq.heappush(table.deadlines, (monotonic_ns() + 1_000_000 * max(0, timeout_ms), table.numbers, append))
            is_first = table.deadlines[0][2] is append
        if is_first:
            with nogil:
                lock(&table.table.event_mutex)
                table.table.has_deadline = True
                signal(&table.table.event_condition)
                unlock(&table.table.event_mutex)

    def _complete_appends(self):
        """Finish the appends that are acknowledged; the next one that is, wakes the thread of the table."""
        cdef PartitionState* p = &self.state
        cdef WaitingAppend append
        cdef int64_t least = NEVER
        done, left = [], []
        with self.table.lock:
            self.lock()
            for append in self.waiting:
                if is_acknowledged(p, append.required_offset, &append.error):
                    done.append(append)
                else:
                    left.append(append)
                    least = min(least, append.required_offset)
            p.wanted_watermark = least
            unlock_partition(p)
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
