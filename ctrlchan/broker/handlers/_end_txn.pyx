"""EndTxn (26) on the thread of a processor: no Python object, and no GIL.

The coordinator lends the right to end an open transaction (``coordinator/transaction/gates.py``). A processor that
reads the EndTxn of its producer takes the right, appends the decision to ``__transaction_state``, and answers. Then a
handler thread of Python has the coordinator take the decision over, which writes the markers.

Only where no other broker has the partition of ``__transaction_state``: else the answer waits for followers. Whatever is
unusual (no right, another epoch, an older connection, a thread in the gate, an append that is refused) goes to the request
queue, and ``end_txn.py`` answers. A right whose append was refused is there again then.

Layouts, from version 3 on with compact strings and with tagged fields:

    request   transactional id, producer id int64, producer epoch int16, committed bool
    response  throttle ms int32, error int16

Source: ``KafkaApis.handleEndTxnRequest``, ``TransactionCoordinator.endTransaction``.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from ctrlchan._c.atomics cimport load_number, store_number
from ctrlchan._c.bytes cimport get_i16, get_i32, put_i16, put_i32, put_i64
from ctrlchan._c.hashing cimport mix
from ctrlchan._c.locks cimport (
    END_RIGHTS,
    broadcast,
    close_condition,
    close_mutex,
    lock,
    open_condition,
    open_mutex,
    require,
    unlock,
    wait,
)
from ctrlchan.broker._decisions cimport MAY_WRITE, TRANSACTIONAL_ID, Decisions
from ctrlchan.broker.coordinator.transaction._values cimport STATE_AT, TOPICS_AT
from ctrlchan.broker.handlers._hot cimport HotApi, RequestHeader, append_header, charge
from ctrlchan.broker.log._batches cimport write_crc, write_header
from ctrlchan.broker.replica._partition_state cimport (
    PartitionState,
    Table,
    append_at_once,
    find_partition,
    is_only_replica,
    lock_partition,
    release_partition,
    unlock_partition,
    wall_ms,
    withdraw_producer,
)
from ctrlchan.broker.replica._partitions cimport PartitionTable
from ctrlchan.server._cursor cimport Cursor, read_i16, read_i64, read_string, skip_tags, take
from ctrlchan.server._processor cimport ARRIVED, DONE, QUEUE, Answer, HotRequest, Result, append_room

import os

from ctrlchan.broker.coordinator.record_batches import encode_batch
from ctrlchan.broker.coordinator.transaction.gates import Decision
from ctrlchan.broker.coordinator.transaction.states import TransactionState
from ctrlchan.internal_topics import TRANSACTIONS_TOPIC

cdef enum:
    END_TXN = 26
    LOWEST = 0
    HIGHEST = 4
    FLEXIBLE_FROM = 3
    LEAST_CAPACITY = 64
    # A batch of so many bytes needs no memory of its own.
    SMALL_BATCH = 4096
    # How long a thread waits at the gate before it looks again. A processor wakes it: this ends no wait.
    LOOK_AGAIN_NS = 1000000000
    NO_QUOTA = -1
    # Of a batch without a producer
    NONE_OF_THEM = -1

cdef bytes _TOPIC = TRANSACTIONS_TOPIC.encode()
cdef const uint8_t* TOPIC = <const uint8_t*>PyBytes_AS_STRING(_TOPIC)
cdef int64_t TOPIC_SIZE = len(_TOPIC)
cdef uint8_t COMMIT_STATE = TransactionState.PREPARE_COMMIT.number
cdef uint8_t ABORT_STATE = TransactionState.PREPARE_ABORT.number


# -- the rights


cdef inline Right** bucket_of(EndTxnApi self, const uint8_t* name, int64_t size) noexcept nogil:
    # Clients choose the names.
    return &self.buckets[mix(self.seed, name, size) & (self.capacity - 1)]


cdef Right* take_right(
    EndTxnApi self, const uint8_t* name, int64_t size, int64_t producer_id, int16_t epoch, int64_t connection
) noexcept nogil:
    """Return the right to end a transaction, for its producer. Until ``end_decision`` Python waits at its gate."""
    cdef Right** place
    cdef Right* right = NULL
    cdef GateState* gate
    lock(&self.mutex)
    if self.count:
        place = bucket_of(self, name, size)
        right = place[0]
        while right != NULL and (
            right.transactional_id_size != size or memcmp(right.transactional_id, name, size)
        ):
            place = &right.following
            right = place[0]
    if right != NULL and (
        right.producer_id != producer_id or right.epoch != epoch or connection < right.first_connection
    ):
        right = NULL
    if right != NULL:
        # In this order; a thread of Python first says that it enters, then looks for processors.
        gate = right.gate
        store_number(&gate.deciding, gate.deciding + 1)
        if load_number(&gate.is_entered):
            leave_gate(self, gate)
            right = NULL
        else:
            place[0] = right.following
            self.count = self.count - 1
    unlock(&self.mutex)
    return right


cdef void leave_gate(EndTxnApi self, GateState* gate) noexcept nogil:
    """Note that a processor decides no more. Requires the mutex."""
    require(&self.mutex)
    store_number(&gate.deciding, gate.deciding - 1)
    if load_number(&gate.is_entered):
        broadcast(&self.changed)


cdef void end_decision(EndTxnApi self, Right* right, bint is_decided) noexcept nogil:
    """Give the decision to the coordinator, or the right back if there is none."""
    cdef GateState* gate = right.gate
    lock(&self.mutex)
    if is_decided:
        right.following = NULL
        if gate.last_decided != NULL:
            gate.last_decided.following = right
        else:
            gate.first_decided = right
        gate.last_decided = right
        store_number(&gate.decided, gate.decided + 1)
    else:
        self.link(right)
    leave_gate(self, gate)
    unlock(&self.mutex)


# -- the decision


cdef void withdraw_confirmations(Table* table, const Right* right) noexcept nogil:
    """Have batches in partitions where the transaction has not begun ask the coordinator, as ``Ending.end``."""
    cdef const uint8_t* at = right.batch + right.value_at + TOPICS_AT
    cdef const uint8_t* name
    cdef int32_t topics = get_i32(at), partitions
    cdef int16_t size
    cdef PartitionState* p
    at += sizeof(int32_t)
    while topics > 0:
        size = get_i16(at)
        name = at + sizeof(int16_t)
        partitions = get_i32(name + size)
        at = name + size + sizeof(int32_t)
        while partitions > 0:
            p = find_partition(table, name, size, get_i32(at))
            if p != NULL:
                if not p.is_internal:
                    withdraw_producer(p, right.producer_id)
                release_partition(p)
            at += sizeof(int32_t)
            partitions -= 1
        topics -= 1


cdef bint append_decision(Table* table, Right* right) noexcept nogil:
    """Append the record of the decision. Return whether it is in the log."""
    cdef uint8_t small[SMALL_BATCH]
    cdef uint8_t* data = small
    cdef PartitionState* p
    cdef bint is_appended = False
    if right.batch_size > SMALL_BATCH:
        data = <uint8_t*>malloc(right.batch_size)
        if data == NULL:
            return False
    memcpy(data, right.batch, right.batch_size)
    data[right.value_at + STATE_AT] = COMMIT_STATE if right.commits else ABORT_STATE
    # The last byte of the batch says that its record has no headers; the time of the start is before it.
    put_i64(data + right.batch_size - 1 - 2 * sizeof(int64_t), right.decided_ms)
    write_header(data, right.batch_size, 1, 0, right.decided_ms, NONE_OF_THEM, NONE_OF_THEM, NONE_OF_THEM)
    write_crc(data, right.batch_size)
    p = find_partition(table, TOPIC, TOPIC_SIZE, right.gate.number)
    if p != NULL:
        is_appended = append_at_once(p, data, right.batch_size, right.gate.epoch, right.decided_ms)
        release_partition(p)
    if data != small:
        free(data)
    return is_appended


cdef Result handle_end_txn(void* context, HotRequest* request, RequestHeader* header, Answer* answer) noexcept nogil:
    return end_transaction(<EndTxnApi>context, request, header, answer)


cdef Result end_transaction(
    EndTxnApi self, HotRequest* request, RequestHeader* header, Answer* answer
) noexcept nogil:
    """End the transaction, if its right is lent, and answer."""
    cdef Cursor c
    cdef const uint8_t* name
    cdef const uint8_t* committed
    cdef uint8_t* room
    cdef int64_t size, producer_id
    cdef int16_t epoch
    cdef Right* right
    cdef bint is_decided
    if request.reason != ARRIVED:
        return QUEUE
    c.at, c.end, c.flexible, c.failed = header.body, header.end, header.flexible, False
    name = read_string(&c, &size)
    producer_id, epoch = read_i64(&c), read_i16(&c)
    committed = take(&c, 1)
    skip_tags(&c)
    if c.failed or name == NULL:
        return QUEUE
    if self.is_restricted and not self.decisions.allows(request.identity, TRANSACTIONAL_ID, name, size, MAY_WRITE):
        return QUEUE
    right = take_right(self, name, size, producer_id, epoch, request.connection)
    if right == NULL:
        return QUEUE
    right.commits, right.decided_ms = committed[0] != 0, wall_ms(&self.table.table)
    withdraw_confirmations(&self.table.table, right)
    is_decided = append_decision(&self.table.table, right)
    end_decision(self, right, is_decided)
    if not is_decided:
        return QUEUE
    request.leaves_work = True
    charge(self, request, header, NO_QUOTA, 0, False)
    append_header(answer, header)
    room = append_room(answer, 7 if header.flexible else 6)
    if room != NULL:
        put_i32(room, header.throttle_time_ms)
        put_i16(room + 4, 0)
        if header.flexible:
            room[6] = 0
    return DONE


cdef class EndTxnApi(HotApi):
    """Answers EndTxn for transactions whose right to end it the coordinator has lent (its ``Gates``).

    ``table``: of the broker's partitions.
    """

    def __cinit__(self):
        open_mutex(&self.mutex, END_RIGHTS)
        open_condition(&self.changed)

    def __init__(self, PartitionTable table not None):
        self.table, self.gates = table, {}
        self.seed = int.from_bytes(os.urandom(4))
        self.entry.key, self.entry.lowest, self.entry.highest = END_TXN, LOWEST, HIGHEST
        self.entry.flexible_from, self.entry.function, self.entry.context = FLEXIBLE_FROM, handle_end_txn, <void*>self

    def __dealloc__(self):
        # Each right has a reference to its gate, and that to this object: there is none left.
        free(self.buckets)
        close_condition(&self.changed)
        close_mutex(&self.mutex)

    def authorize_with(self, Decisions decisions not None):
        """End only transactions of ids that these decisions allow. Called before the first request."""
        self.decisions, self.is_restricted = decisions, True

    def open(self, int32_t number, int32_t epoch, settle):
        """Return the gate of a partition of ``__transaction_state``, as ``Gates``."""
        cdef Gate gate = Gate.__new__(Gate)
        gate.api, gate.settle = self, settle
        gate.state.number, gate.state.epoch = number, epoch
        self.gates[number] = gate
        return gate

    def settle(self):
        """Have the coordinator take over what processors have decided: the work that answers have left."""
        cdef Gate gate
        for each in list(self.gates.values()):
            gate = <Gate>each
            if load_number(&gate.state.decided):
                gate.settle()

    # -- the table of rights. Each requires the mutex.

    cdef bint reserve(self) noexcept nogil:
        """Make room for one more right; return whether there is memory for it."""
        require(&self.mutex)
        cdef Right** old = self.buckets
        cdef Right** place
        cdef Right* right
        cdef Right* following
        cdef int64_t i, before = self.capacity
        if self.count < self.capacity:
            return True
        self.capacity = max(LEAST_CAPACITY, 2 * before)
        self.buckets = <Right**>calloc(self.capacity, sizeof(Right*))
        if self.buckets == NULL:
            self.buckets, self.capacity = old, before
            return False
        for i in range(before):
            right = old[i]
            while right != NULL:
                following = right.following
                place = bucket_of(self, right.transactional_id, right.transactional_id_size)
                right.following = place[0]
                place[0] = right
                right = following
        free(old)
        return True

    cdef void link(self, Right* right) noexcept nogil:
        """Let processors find a right. There was room for it."""
        require(&self.mutex)
        cdef Right** place = bucket_of(self, right.transactional_id, right.transactional_id_size)
        right.following = place[0]
        place[0] = right
        self.count = self.count + 1

    cdef bint unlink(self, Right* right) noexcept nogil:
        """Let processors find a right no more. Return whether they could."""
        require(&self.mutex)
        cdef Right** place
        if self.count == 0:
            return False
        place = bucket_of(self, right.transactional_id, right.transactional_id_size)
        while place[0] != NULL:
            if place[0] == right:
                place[0] = right.following
                self.count = self.count - 1
                return True
            place = &place[0].following
        return False


@cython.final
cdef class EndRight:
    """The right to end one transaction. See ``gates.py``."""

    def __init__(self):
        raise TypeError("rights are lent by a Gate")

    def take_back(self):
        """Let processors find the right no more. Called in the gate."""
        cdef EndTxnApi api = self.gate.api
        cdef bint was_linked
        with nogil:
            lock(&api.mutex)
            was_linked = api.unlink(&self.right)
            unlock(&api.mutex)
        if was_linked:
            Py_DECREF(self)


@cython.final
cdef class Gate:
    """The gate of one partition of ``__transaction_state``. See ``gates.py``."""

    def __init__(self):
        raise TypeError("gates are made by EndTxnApi.open")

    def enter(self):
        """Keep processors out, and return the Decisions of those that were in."""
        cdef EndTxnApi api = self.api
        cdef EndRight used
        cdef Right* right
        # In this order: a processor first counts itself, then looks whether somebody is in the gate.
        store_number(&self.state.is_entered, 1)
        if load_number(&self.state.deciding):
            with nogil:
                lock(&api.mutex)
                while self.state.deciding:
                    wait(&api.changed, &api.mutex, LOOK_AGAIN_NS)
                unlock(&api.mutex)
        if load_number(&self.state.decided) == 0:
            return ()
        right = self.state.first_decided
        self.state.first_decided = self.state.last_decided = NULL
        store_number(&self.state.decided, 0)
        decisions = []
        while right != NULL:
            used = <EndRight>right.owner
            right = right.following
            decisions.append(Decision(used.transaction, used.right.commits, used.right.decided_ms))
            Py_DECREF(used)
        return decisions

    def leave(self):
        """Let processors in."""
        store_number(&self.state.is_entered, 0)

    def lends(self):
        """Whether this broker has the only replica of the partition."""
        cdef Table* table = &self.api.table.table
        cdef PartitionState* p
        cdef bint found = False
        with nogil:
            p = find_partition(table, TOPIC, TOPIC_SIZE, self.state.number)
            if p != NULL:
                lock_partition(p)
                found = is_only_replica(p, self.state.epoch)
                unlock_partition(p)
                release_partition(p)
        return found

    def lend(self, transaction, commit, int64_t first_connection):
        """Let processors end a transaction; return the EndRight, or None without memory."""
        cdef EndTxnApi api = self.api
        cdef EndRight lent = EndRight.__new__(EndRight)
        cdef Right* right = &lent.right
        cdef bint has_room
        lent.gate, lent.transaction = self, transaction
        # Without the version of the key and the size of the id
        lent.transactional_id = (<bytes?>commit.key)[4:]
        lent.batch = encode_batch((commit,), 0)
        right.gate, right.owner, right.first_connection = &self.state, <void*>lent, first_connection
        right.transactional_id = <const uint8_t*>PyBytes_AS_STRING(lent.transactional_id)
        right.transactional_id_size = len(lent.transactional_id)
        right.producer_id, right.epoch = transaction.producer_id, transaction.epoch
        right.batch, right.batch_size = <const uint8_t*>PyBytes_AS_STRING(lent.batch), len(lent.batch)
        # Behind the value is the number of headers, 0.
        right.value_at = right.batch_size - 1 - len(<bytes?>commit.value)
        with nogil:
            lock(&api.mutex)
            has_room = api.reserve()
            if has_room:
                api.link(right)
            unlock(&api.mutex)
        if not has_room:
            return None
        Py_INCREF(lent)
        return lent

    def close(self):
        """Forget the partition: its rights are taken back."""
        if self.api.gates.get(self.state.number) is self:
            del self.api.gates[self.state.number]
