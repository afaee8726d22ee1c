"""The operating system of a simulated broker: time, connections that are bytes in memory, and a disk that fails on demand.

A broker uses it through ``PollerFunctions``, ``ClockFunctions`` and ``set_disk_fault``, on the thread that calls
``NetworkThreads.turn``. How many bytes a read or write moves, and which connections are ready first, a generator with a seed
decides. Nothing happens by itself: the simulator connects, writes, reads, resets, and moves the time.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, ECONNABORTED, ECONNRESET, EINTR, EIO, EMFILE, ENOSPC, EPIPE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove, memset
from posix.unistd cimport pread

from ctrlchan._c.clock_functions cimport Clock, ClockFunctions
from ctrlchan.broker.log._files cimport set_disk_fault
from ctrlchan.server._processor cimport BROKEN, READABLE, WRITABLE, Peer, Poller, PollerFunctions, Ready

cdef extern from *:
    """
    #include <errno.h>
    static inline int fail(int error) { errno = error; return -1; }
    """
    int fail(int error) nogil

cdef enum:
    MOST_POLLERS = 16
    # Descriptors of connections are their places and this, so that no other number is one by accident.
    FIRST_FD = 1000000
    LISTENER = 999999
    LEAST_ROOM = 64


# -- time

cdef struct SimulatedTime:
    ClockFunctions functions
    int64_t now_ns


cdef int64_t simulated_ns(const ClockFunctions* self) noexcept nogil:
    return (<const SimulatedTime*>self).now_ns


cdef int64_t simulated_ms(const ClockFunctions* self) noexcept nogil:
    return (<const SimulatedTime*>self).now_ns // 1000000


cdef class SimulatedClock(Clock):
    """A clock that stands until ``advance``. Both of its times are the same."""

    cdef SimulatedTime time

    def __cinit__(self, int64_t start_ms):
        self.time.functions.monotonic_ns, self.time.functions.wall_ms = simulated_ns, simulated_ms
        self.time.now_ns = 1000000 * start_ms
        self.functions = &self.time.functions

    @property
    def now_ms(self):
        return self.time.now_ns // 1000000

    @property
    def now_ns(self):
        return self.time.now_ns

    def advance(self, int64_t ns):
        self.time.now_ns += ns


# -- connections

cdef struct Bytes:
    uint8_t* data
    int64_t begin
    int64_t end
    int64_t capacity


cdef bint put(Bytes* bytes, const void* data, int64_t size) noexcept nogil:
    cdef uint8_t* grown
    cdef int64_t capacity
    if bytes.begin:
        memmove(bytes.data, bytes.data + bytes.begin, bytes.end - bytes.begin)
        bytes.begin, bytes.end = 0, bytes.end - bytes.begin
    if bytes.capacity - bytes.end < size:
        capacity = 2 * bytes.capacity + size
        grown = <uint8_t*>realloc(bytes.data, capacity)
        if grown == NULL:
            return False
        bytes.data, bytes.capacity = grown, capacity
    if size:
        memcpy(bytes.data + bytes.end, data, size)
    bytes.end += size
    return True


cdef struct Connection:
    Bytes inward
    # Sent by the server, and not read by the client
    Bytes outward
    # Of the kernel's buffer for ``outward``
    int64_t room
    bint is_shut
    bint is_reset
    bint is_accepted
    # By the server
    bint is_closed
    int poller
    int events
    void* owner


cdef struct System:
    PollerFunctions functions
    uint64_t state
    # All bytes at once, no error: what a machine without load does
    bint is_calm
    bint is_dead
    # Changes of files until the disk fails; -1: it does not
    int64_t changes_left
    bint dies_with_disk
    bint is_full
    int64_t changes
    Connection** connections
    int count
    int room
    # The first connection that was not accepted
    int next_accepted
    int pollers
    bint rung[MOST_POLLERS]
    # The poller of the acceptor, and what it watches
    int listening_poller
    int listening_events
    void* listening_owner
    int64_t calls


@cython.overflowcheck(False)
cdef uint64_t draw(System* system, uint64_t limit) noexcept nogil:
    """Return a number below ``limit`` (SplitMix64)."""
    cdef uint64_t z
    system.state += <uint64_t>0x9E3779B97F4A7C15
    z = system.state
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return (z ^ (z >> 31)) % limit


cdef int64_t part_of(System* system, int64_t size) noexcept nogil:
    """Return how many of ``size`` bytes are moved: some of them, or all."""
    if size <= 1 or system.is_calm or draw(system, 3) == 0:
        return size
    return 1 + <int64_t>draw(system, <uint64_t>size)


cdef inline Connection* connection_of(const PollerFunctions* self, int fd) noexcept nogil:
    cdef System* system = <System*>self
    fd -= FIRST_FD
    return system.connections[fd] if 0 <= fd < system.count else NULL


cdef void sim_open(const PollerFunctions* self, int* poller, int* waker) noexcept nogil:
    cdef System* system = <System*>self
    poller[0] = waker[0] = waker[1] = system.pollers
    system.pollers += 1


cdef void sim_close(const PollerFunctions* self, int poller, const int* waker) noexcept nogil:
    pass


cdef int sim_add(const PollerFunctions* self, int poller, int fd, int events, void* owner) noexcept nogil:
    cdef System* system = <System*>self
    cdef Connection* c
    if fd == LISTENER:
        system.listening_poller, system.listening_events, system.listening_owner = poller, events, owner
        return 0
    c = connection_of(self, fd)
    c.poller, c.events, c.owner = poller, events, owner
    return 0


cdef int sim_change(const PollerFunctions* self, int poller, int fd, int before, int events, void* owner) noexcept nogil:
    return sim_add(self, poller, fd, events, owner)


cdef void sim_remove(const PollerFunctions* self, int poller, int fd) noexcept nogil:
    connection_of(self, fd).poller = -1


cdef int events_of(const System* system, const Connection* c) noexcept nogil:
    cdef int events = BROKEN if c.is_reset else 0
    if c.is_closed or c.poller < 0:
        return 0
    if c.events & READABLE and (c.is_reset or c.is_shut or c.inward.end > c.inward.begin):
        events |= READABLE
    if c.events & WRITABLE and (c.is_reset or c.outward.end - c.outward.begin < c.room):
        events |= WRITABLE
    return events


cdef int sim_wait(const PollerFunctions* self, int poller, Ready* ready, int size, int64_t timeout_ms) noexcept nogil:
    """Report some of the ready connections, in any order; the others are ready again."""
    cdef System* system = <System*>self
    cdef Connection* c
    cdef Ready swapped
    cdef int i, k, events, count = 0
    system.calls += 1
    for i in range(system.count):
        c = system.connections[i]
        events = events_of(system, c) if c.poller == poller else 0
        if events and count < size and (system.is_calm or draw(system, 4)):
            ready[count].owner, ready[count].events = c.owner, events
            k = <int>draw(system, count + 1)
            swapped = ready[k]
            ready[k] = ready[count]
            ready[count] = swapped
            count += 1
    if poller == system.listening_poller and has_peer(system) and system.listening_events and count < size:
        ready[count].owner, ready[count].events = system.listening_owner, READABLE
        count += 1
    if system.rung[poller] and count < size:
        ready[count].owner, ready[count].events = NULL, READABLE
        count += 1
    return count


cdef void sim_ring(const PollerFunctions* self, const int* waker) noexcept nogil:
    if waker[0] >= 0:
        (<System*>self).rung[waker[0]] = True


cdef void sim_clear(const PollerFunctions* self, const int* waker) noexcept nogil:
    (<System*>self).rung[waker[0]] = False


cdef bint has_peer(const System* system) noexcept nogil:
    return system.next_accepted < system.count


cdef int sim_accept(const PollerFunctions* self, int listener, Peer* peer) noexcept nogil:
    cdef System* system = <System*>self
    cdef int number = system.next_accepted
    memset(peer, 0, sizeof(Peer))
    if not has_peer(system):
        return fail(EAGAIN)
    if not system.is_calm and draw(system, 16) == 0:
        return fail(ECONNABORTED if draw(system, 2) else EMFILE)
    system.next_accepted += 1
    system.connections[number].is_accepted = True
    # 127.0.0.n
    peer.ip[10] = peer.ip[11] = 0xff
    peer.ip[12], peer.ip[15], peer.port = 127, 1, FIRST_FD + number
    return FIRST_FD + number


cdef void sim_configure(const PollerFunctions* self, int fd, int send_buffer) noexcept nogil:
    pass


cdef int64_t sim_receive(const PollerFunctions* self, int fd, void* data, int64_t size) noexcept nogil:
    cdef System* system = <System*>self
    cdef Connection* c = connection_of(self, fd)
    if c.is_reset or system.is_dead:
        return fail(ECONNRESET)
    size = min(size, c.inward.end - c.inward.begin)
    if size == 0:
        return 0 if c.is_shut else fail(EAGAIN)
    if not system.is_calm and draw(system, 32) == 0:
        return fail(EINTR)
    size = part_of(system, size)
    memcpy(data, c.inward.data + c.inward.begin, size)
    c.inward.begin += size
    return size


cdef int64_t writable_part(System* system, Connection* c, int64_t size) noexcept nogil:
    """Return how many bytes the connection takes now, or -1 with errno."""
    cdef int64_t room = c.room - (c.outward.end - c.outward.begin)
    if c.is_reset or system.is_dead:
        return fail(EPIPE)
    if room <= 0:
        return fail(EAGAIN)
    if not system.is_calm and draw(system, 32) == 0:
        return fail(EINTR)
    return part_of(system, min(size, room))


cdef int64_t sim_send(const PollerFunctions* self, int fd, const void* data, int64_t size, bint more) noexcept nogil:
    cdef Connection* c = connection_of(self, fd)
    cdef int64_t part = writable_part(<System*>self, c, size)
    if part > 0 and not put(&c.outward, data, part):
        return fail(EPIPE)
    return part


cdef int64_t sim_send_file(
    const PollerFunctions* self, int fd, int file, int64_t position, int64_t size
) noexcept nogil:
    cdef Connection* c = connection_of(self, fd)
    cdef uint8_t data[4096]
    cdef int64_t part = writable_part(<System*>self, c, min(size, <int64_t>sizeof(data)))
    if part > 0:
        part = pread(file, data, part, position)
        if part > 0 and not put(&c.outward, data, part):
            return fail(EPIPE)
    return part


cdef void sim_hold_back(const PollerFunctions* self, int fd, bint on) noexcept nogil:
    pass


cdef void sim_close_connection(const PollerFunctions* self, int fd) noexcept nogil:
    if fd != LISTENER:
        connection_of(self, fd).is_closed = True


# -- the disk

cdef int disk_fault(void* context, int64_t* size) noexcept nogil:
    cdef System* system = <System*>context
    cdef int64_t before = size[0]
    if system.is_dead:
        size[0] = 0
        return EIO
    if system.is_full:
        size[0] = 0
        return ENOSPC if before else 0
    system.changes += 1
    if system.changes_left < 0 or before == 0 and not system.dies_with_disk:
        return 0
    if system.changes_left > 0:
        system.changes_left -= 1
        return 0
    system.changes_left = -1
    size[0] = <int64_t>draw(system, <uint64_t>before + 1)
    if system.dies_with_disk:
        system.is_dead = True
        return EIO
    system.is_full = True
    return ENOSPC


cdef class OperatingSystem(Poller):
    """Connections and disk of one broker. ``seed``: of the generator."""

    cdef System system

    #: The descriptor of the one listener.
    listener = LISTENER

    def __cinit__(self, uint64_t seed):
        cdef PollerFunctions* functions = &self.system.functions
        functions.open, functions.close, functions.add, functions.change = sim_open, sim_close, sim_add, sim_change
        functions.remove, functions.wait, functions.ring, functions.clear = sim_remove, sim_wait, sim_ring, sim_clear
        functions.accept, functions.configure, functions.receive = sim_accept, sim_configure, sim_receive
        functions.send, functions.send_file, functions.hold_back = sim_send, sim_send_file, sim_hold_back
        functions.close_connection = sim_close_connection
        self.functions = functions
        self.system.state, self.system.changes_left, self.system.listening_poller = seed, -1, -1

    def __dealloc__(self):
        cdef int i
        for i in range(self.system.count):
            free(self.system.connections[i].inward.data)
            free(self.system.connections[i].outward.data)
            free(self.system.connections[i])
        free(self.system.connections)

    cdef Connection* _get(self, int number) except NULL:
        if not 0 <= number < self.system.count:
            raise IndexError(number)
        return self.system.connections[number]

    # -- the client's side of connections

    def connect(self, int64_t room):
        """Return the number of a new connection, which waits to be accepted. ``room``: bytes of the send buffer."""
        cdef Connection** grown
        cdef Connection* c
        if self.system.count == self.system.room:
            grown = <Connection**>realloc(self.system.connections, (2 * self.system.room + 8) * sizeof(Connection*))
            if grown == NULL:
                raise MemoryError()
            self.system.connections, self.system.room = grown, 2 * self.system.room + 8
        c = <Connection*>calloc(1, sizeof(Connection))
        if c == NULL:
            raise MemoryError()
        c.poller, c.room = -1, max(room, <int64_t>LEAST_ROOM)
        self.system.connections[self.system.count] = c
        self.system.count += 1
        return self.system.count - 1

    def write(self, int number, bytes data not None):
        """Send bytes to the server. They are lost if it has closed the connection."""
        cdef Connection* c = self._get(number)
        if not c.is_closed and not put(&c.inward, PyBytes_AS_STRING(data), len(data)):
            raise MemoryError()

    def read(self, int number, int64_t size):
        """Return what the server has sent, at most ``size`` bytes."""
        cdef Connection* c = self._get(number)
        size = min(size, c.outward.end - c.outward.begin)
        data = PyBytes_FromStringAndSize(<const char*>c.outward.data + c.outward.begin if size else NULL, size)
        c.outward.begin += size
        return data

    def shut(self, int number):
        """Send no more: the server reads what was sent, then the end."""
        self._get(number).is_shut = True

    def reset(self, int number):
        """End the connection at once. Bytes on the way are lost, in both directions."""
        cdef Connection* c = self._get(number)
        c.is_reset = True
        c.inward.begin = c.inward.end
        c.outward.begin = c.outward.end

    def pending(self, int number):
        """Return the bytes that the client can read now."""
        cdef Connection* c = self._get(number)
        return c.outward.end - c.outward.begin

    def is_served(self, int number):
        """Whether a processor has had the connection: one that is accepted may wait for a free place."""
        return self._get(number).owner != NULL

    def is_closed(self, int number):
        """Whether the server has closed the connection."""
        return self._get(number).is_closed

    @property
    def open_connections(self):
        """The connections that the server has accepted and not closed."""
        cdef int i
        return sum([
            self.system.connections[i].is_accepted and not self.system.connections[i].is_closed
            for i in range(self.system.count)
        ])

    # -- who has something to do

    def is_due(self, int poller):
        """Whether a poller, counted from 0 in the order of their opening, would report something now."""
        cdef int i
        if self.system.rung[poller]:
            return True
        if poller == self.system.listening_poller and self.system.listening_events and has_peer(&self.system):
            return True
        for i in range(self.system.count):
            if self.system.connections[i].poller == poller and events_of(&self.system, self.system.connections[i]):
                return True
        return False

    def calm(self):
        """Move all bytes at once from now on, without errors."""
        self.system.is_calm = True

    # -- the disk, and the end

    def enter(self):
        """Let the disk of this broker be the one that the process changes next."""
        set_disk_fault(disk_fault, &self.system)

    @staticmethod
    def leave():
        """Let no disk fail."""
        set_disk_fault(NULL, NULL)

    def die_at(self, int64_t changes):
        """End the broker after so many more changes of its files: nothing of it is written or sent from then on."""
        self.system.changes_left, self.system.dies_with_disk = changes, True

    def fill_disk(self, int64_t changes):
        """Let the disk be full after so many more writes; the last one is cut."""
        if not self.system.dies_with_disk:
            self.system.changes_left = changes

    def free_disk(self):
        """Let the disk have room again."""
        self.system.is_full = False

    def die(self):
        self.system.is_dead = True

    @property
    def is_dead(self):
        return self.system.is_dead

    @property
    def changes(self):
        """Changes of files so far."""
        return self.system.changes
