# What Python sees: the threads of a server, requests from the queue, answers, a timing wheel for its tests.

cdef class HotHandler:
    """Answers requests on the threads of the processors. A subclass sets ``function`` and ``context``."""


cdef class Poller:
    """Readiness and connections of the operating system. A subclass that sets ``functions`` has others."""

    def __cinit__(self):
        self.functions = &SYSTEM_POLLER_FUNCTIONS


cdef object peer_of(const Peer* peer):
    """Return the address of a peer as text, and its port."""
    address = ipaddress.IPv6Address(PyBytes_FromStringAndSize(<const char*>peer.ip, 16))
    return str(address.ipv4_mapped or address), peer.port


cdef class _Memory:
    """Memory of one large frame, which nobody changes. It is freed with the last memoryview of it."""

    cdef uint8_t* data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, True, flags)


@cython.no_gc_clear
cdef class TakenRequest:
    """One request that a handler thread has taken. It is ended once: by ``answer``, ``skip`` or ``close``.

    Any thread may end it. A request that is never ended closes its connection when it is deleted.
    """

    cdef NetworkThreads threads
    cdef Connection* connection
    cdef bint ended
    #: The request without its size: bytes, or a memoryview of its own memory.
    cdef readonly object frame
    #: The RequestContext of its connection.
    cdef readonly object context
    #: The number of its listener
    cdef readonly int listener
    #: What answers the frames of a peer that authenticates himself, until ``authenticated`` or ``refuse`` is called. None
    #: for a request.
    cdef readonly object authenticator

    def __init__(self):
        raise TypeError("requests are taken from a SocketServer")

    def __dealloc__(self):
        if self.connection != NULL and not self.ended:
            with nogil:
                give_answer(self.connection, CLOSE, NULL, 0)

    def answer(self, parts, int32_t mute_ms=0):
        """Send ``parts``, whose size is written before them: bytes, or a sequence of bytes and file ranges.

        A file range is a tuple: descriptor, position, size in bytes. The server keeps a descriptor of its own.
        ``mute_ms``: for how long the next request of the connection is not handled.
        """
        self._give(parts, DONE, mute_ms)

    def authenticated(self, parts, context, session_ms=None, bint can_renew=True):
        """Send ``parts``, if there are any; requests of the connection go their normal way from here on.

        ``context``: their RequestContext.
        ``session_ms``: how long the session lasts, None for ever. ``can_renew``: whether the client knows that.
        """
        cdef Connection* c = self.connection
        cdef int64_t left
        self._check()
        if self.authenticator is None:
            raise RuntimeError("the peer is authenticated already")
        if session_ms is None:
            c.next_session_end_ns = 0
        else:
            left = min(max(0, session_ms), _MAX_SESSION_MS)
            c.next_session_end_ns = max(1, monotonic_ns_of(self.threads.network.clock) + 1000000 * left)
        c.can_renew = can_renew
        if self.threads.identify is not None:
            c.identity = self.threads.identify(context)
        if self.threads.number_user is not None:
            c.user = self.threads.number_user(context)
        previous = <object>c.context
        Py_INCREF(context)
        c.context = <PyObject*>context
        Py_XDECREF(<PyObject*>previous)
        # From here on another thread may use the connection.
        self._give_if_any(parts, AUTHENTICATED)

    def refuse(self, parts):
        """Send ``parts`` after a pause, if there are any, and close the connection then."""
        self._give_if_any(parts, REFUSE)

    def return_memory(self):
        """Give the memory of the request back to the pool: its handler has returned, and the answer comes later."""
        self._check()
        with nogil:
            give_memory_back(self.connection)
            end_local_time(self.connection, monotonic_ns_of(self.threads.network.clock))

    cdef _give_if_any(self, parts, Result result):
        if parts:
            self._give(parts, result, 0)
        else:
            self._check()
            self.ended = True
            with nogil:
                give_answer(self.connection, result, NULL, 0)

    cdef _give(self, parts, Result result, int32_t mute_ms):
        cdef Answer answer
        cdef const uint8_t[::1] data
        cdef int fd
        self._check()
        memset(&answer, 0, sizeof(Answer))
        try:
            append_room(&answer, SIZE_BYTES)
            if isinstance(parts, (bytes, bytearray, memoryview)):
                parts = (parts,)
            for part in parts:
                if isinstance(part, tuple):
                    file, position, size = part
                    if position < 0 or size < 0:
                        raise ValueError(f"a file range of {size} bytes at {position}")
                    fd = fcntl(<int>file, F_DUPFD_CLOEXEC, 0)
                    if fd < 0:
                        raise OSError(errno, os.strerror(errno))
                    append_file_range(&answer, fd, position, size, close_range, <void*><size_t>fd)
                elif len(part):
                    data = part
                    append_bytes(&answer, &data[0], data.shape[0])
            if not finish_answer(&answer, 0, 0):
                raise MemoryError() if answer.failed else ValueError("an answer of more than 2 GiB")
            # Another thread may have ended the request while a part was read.
            self._check()
        except BaseException:
            free_answer(&answer)
            raise
        self.ended = True
        with nogil:
            give_answer(self.connection, result, &answer, mute_ms)

    def skip(self, int32_t mute_ms=0):
        """Send nothing; the next request of the connection is handled, after ``mute_ms`` milliseconds."""
        self._check()
        self.ended = True
        with nogil:
            give_answer(self.connection, NO_ANSWER, NULL, mute_ms)

    def go_on(self, int64_t answer, int32_t identity):
        """Have the hot handler go on with the request: it sees ``answer``, and the identity of the peer."""
        self._check()
        self.ended = True
        self.connection.go_on_answer, self.connection.identity = answer, identity
        with nogil:
            give_answer(self.connection, AGAIN, NULL, 0)

    def close(self):
        """Close the connection."""
        self._check()
        self.ended = True
        with nogil:
            give_answer(self.connection, CLOSE, NULL, 0)

    cdef int _check(self) except -1:
        if self.ended:
            raise RuntimeError("the request has ended already")
        return 0


cdef void close_range(void* owner) noexcept nogil:
    close(<int><size_t>owner)


@cython.no_gc_clear
cdef class NetworkThreads:
    """Acceptors and processors of a server, with the request queue. ``SocketServer`` is its public face.

    ``listeners``: names and listening sockets' descriptors, which belong to this object from here on. ``processors``: of
    each listener, which has an acceptor of its own. ``is_shared``: of all listeners together, which share one acceptor.
    ``idle_ns``: -1 for never. ``quotas``: the limits of connections, None for no limits.
    ``security_protocols``, ``contexts``: of the listeners, their TlsContexts, PythonTlsContexts or None; empty: PLAINTEXT.
    ``namers``: for each listener, what returns the Principal of a peer for the name in its certificate (DER), its address and its port, or None
    if the peer is refused; without a namer certificates name nobody. ``names_all``: for each listener, whether the namer
    names peers without certificates, too (the name is empty then). ``authenticators``: for each listener, what makes the
    authenticator of a connection of its RequestContext, or None where nobody has to authenticate himself; empty: nowhere.
    ``authentication_ms``: how long a peer may take. ``refusal_ms``: how long the answer to one that is refused waits.
    ``memory``: how many bytes the requests may have that were received and are not handled; -1: there is no limit.
    ``control_listener``: the listener whose requests have a queue and one processor of their own (KIP-291); -1: none.
    ``clock``, ``poller``: None for those of the operating system.
    """

    def __cinit__(self, list listeners, HotHandler hot=None, *, int processors, int64_t max_request_bytes,
                  int64_t queue_capacity, int64_t idle_ns, int send_buffer, ConnectionQuotas quotas=None,
                  bint is_shared=False, security_protocols=(), contexts=(), namers=(), names_all=(), authenticators=(),
                  int64_t max_unauthenticated_bytes=524288, int64_t authentication_ms=30000, int64_t refusal_ms=100,
                  int64_t memory=-1, int control_listener=-1, Clock clock=None, Poller poller=None):
        cdef Network* network
        cdef int i, k, acceptors = 1 if is_shared else len(listeners)
        if is_shared and control_listener >= 0:
            raise ValueError("a listener of the controller has threads of its own")
        if not (listeners and 0 < processors * acceptors <= MAX_PROCESSORS):
            raise ValueError(f"{processors} processors for each of {acceptors} acceptors")
        self.hot = hot
        self.clock, self.poller = clock or SYSTEM_CLOCK, poller or Poller()
        self.listener_names = tuple(name for name, _ in listeners)
        self.security_protocols = tuple(security_protocols) or (SecurityProtocol.PLAINTEXT,) * len(listeners)
        self.authenticators = tuple(authenticators) or (None,) * len(listeners)
        self.namers = tuple(namers) or (None,) * len(listeners)
        if not len(self.authenticators) == len(self.security_protocols) == len(self.namers) == len(listeners):
            raise ValueError(f"{len(listeners)} listeners, and the security of another number")
        self.quotas = quotas or ConnectionQuotas(len(listeners), clock=self.clock)
        if self.quotas.quotas.listener_count != len(listeners):
            raise ValueError(f"{len(listeners)} listeners, and limits of another number")
        network = self.network = <Network*>calloc(1, sizeof(Network))
        if network == NULL:
            raise MemoryError()
        network.quotas = self.quotas.quotas
        network.clock, network.poller = self.clock.functions, self.poller.functions
        if hot is not None:
            network.hot, network.hot_context = hot.function, hot.context
        network.max_request_bytes, network.idle_ns, network.send_buffer = max_request_bytes, idle_ns, send_buffer
        network.max_unauthenticated_bytes = min(max_unauthenticated_bytes, max_request_bytes)
        network.memory.size = network.memory.available = max(0, memory)
        network.authentication_ms, network.refusal_ms = authentication_ms, refusal_ms
        for i in range(PLANES):
            open_mutex(&network.queues[i].mutex, REQUEST_QUEUE)
            open_condition(&network.queues[i].changed)
            open_condition(&network.queues[i].next_changed)
            network.queues[i].empty_since = monotonic_ns()
        network.queues[DATA_PLANE].capacity, network.queues[CONTROL_PLANE].capacity = queue_capacity, CONTROL_QUEUE_CAPACITY
        open_mutex(&network.events.mutex, SERVER_EVENTS)
        open_condition(&network.events.changed)
        open_mutex(&network.tls_mutex, CONNECTION_QUOTAS)
        network.listeners = <Listener*>calloc(len(listeners), sizeof(Listener))
        network.acceptors = <Acceptor*>calloc(acceptors, sizeof(Acceptor))
        network.processors = <Processor*>calloc(MAX_PROCESSORS, sizeof(Processor))
        if network.listeners == NULL or network.acceptors == NULL or network.processors == NULL:
            raise MemoryError()
        for i in range(acceptors):
            open_acceptor(network)
            for k in range(1 if i == control_listener else processors):
                add_processor(&network.acceptors[i])
            network.acceptors[i].processor_count = network.acceptors[i].opened_count
        for i in range(len(listeners)):
            open_listener(&network.acceptors[0 if is_shared else i], listeners[i][1])
            network.listeners[i].plane = CONTROL_PLANE if i == control_listener else DATA_PLANE
            network.listeners[i].authenticates = self.authenticators[i] is not None
            network.listeners[i].names_peers = self.namers[i] is not None
            network.listeners[i].names_all = i < len(names_all) and names_all[i]
            if contexts and contexts[i] is not None:
                self.use_context(i, contexts[i])

    def __dealloc__(self):
        cdef Network* network = self.network
        cdef int i
        if network == NULL:
            return
        if network.processors != NULL:
            for i in range(network.processor_count):
                free_processor(&network.processors[i])
        if network.acceptors != NULL:
            for i in range(network.acceptor_count):
                close_acceptor(&network.acceptors[i])
        if network.listeners != NULL:
            for i in range(network.listener_count):
                if network.listeners[i].tls != NULL:
                    openssl_functions().SSL_CTX_free(network.listeners[i].tls)
                Py_XDECREF(network.listeners[i].python_tls)
        for i in range(API_KEYS):
            free(network.times[i])
        free(network.processors)
        free(network.acceptors)
        free(network.listeners)
        free(network)

    def start(self):
        """Start all threads. OSError: a thread or a descriptor could not be had; ``stop`` must be called."""
        cdef Network* network = self.network
        cdef int i, error
        for i in range(network.processor_count):
            check_descriptors(network.processors[i].poller, network.processors[i].waker)
        for i in range(network.acceptor_count):
            check_descriptors(network.acceptors[i].poller, network.acceptors[i].waker)
        for i in range(network.processor_count):
            start_processor(&network.processors[i])
        for i in range(network.acceptor_count):
            error = start_thread(&network.acceptors[i].thread, run_acceptor, &network.acceptors[i])
            if error:
                raise OSError(error, os.strerror(error))
            network.acceptors[i].is_started = True

    def stop(self, double timeout):
        """Stop accepting, let requests in progress end for ``timeout`` seconds, close all, and end all threads.

        Return whether all processors ended. One whose hot handler does not return is left alone; it keeps this
        object. May be called again.
        """
        cdef Network* network = self.network
        cdef int64_t deadline = monotonic_ns() + <int64_t>(timeout * 1e9)
        cdef int i
        cdef bint ended = True
        with nogil:
            count(&network.stopping, 1)
            for i in range(network.acceptor_count):
                if network.acceptors[i].is_started:
                    network.poller.ring(network.poller, network.acceptors[i].waker)
                    pthread_join(network.acceptors[i].thread, NULL)
                    network.acceptors[i].is_started = False
                close_acceptor(&network.acceptors[i])
            for i in range(network.processor_count):
                want_phase(&network.processors[i], DRAINING)
            for i in range(network.processor_count):
                wait_for_end(&network.processors[i], deadline)
            for i in range(network.processor_count):
                want_phase(&network.processors[i], ENDING)
            for i in range(PLANES):
                close_queue(&network.queues[i])
            deadline = monotonic_ns() + 1000000000
            for i in range(network.processor_count):
                if not wait_for_end(&network.processors[i], deadline):
                    ended = False
                elif network.processors[i].is_joinable:
                    pthread_join(network.processors[i].thread, NULL)
                    network.processors[i].is_joinable = False
                    close_polling(&network.processors[i])
            lock(&network.events.mutex)
            network.events.closed = True
            broadcast(&network.events.changed)
            unlock(&network.events.mutex)
        if not ended and not self.is_kept:
            self.is_kept = True
            Py_INCREF(self)
        return ended

    def use_context(self, int listener, context not None):
        """Begin new connections of a TLS listener with ``context``. Others keep the one with which they began.

        A listener has TlsContexts or PythonTlsContexts, never both.
        """
        if not 0 <= listener < self.network.listener_count:
            raise ValueError(f"listener {listener}: there is none")
        if isinstance(context, TlsContext):
            use_openssl(self.network, listener, context)
        else:
            use_python(&self.network.listeners[listener], context)

    def resize(self, int processors):
        """Let each listener have another number of processors for the connections that it accepts from now on.

        That of the controller has one for ever.
        A processor that is one too many keeps its connections, and is used again when there shall be more.
        Raises OSError, and ValueError for more than MAX_PROCESSORS in all. Not while ``stop`` runs or after it.
        """
        cdef Network* network = self.network
        cdef Acceptor* a
        cdef int i, added
        cdef bint runs = network.acceptor_count > 0 and network.acceptors[0].is_started
        added = 0
        for i in range(network.acceptor_count):
            if network.acceptors[i].listeners[0].plane == DATA_PLANE:
                added += max(0, processors - network.acceptors[i].opened_count)
        if processors < 1 or network.processor_count + added > MAX_PROCESSORS:
            raise ValueError(f"{processors} processors for each of {network.acceptor_count} acceptors")
        for i in range(network.acceptor_count):
            a = &network.acceptors[i]
            if a.listeners[0].plane == CONTROL_PLANE:
                continue
            while a.opened_count < processors:
                add_processor(a)
                if runs:
                    start_added(a)
            # The acceptor sees a processor when it is ready.
            store_number(&a.processor_count, processors)

    def limit_connections(self, int64_t max_connections, int64_t max_rate, list listeners):
        """Replace the limits of connections as ``ConnectionQuotas.limit``. Those that are too many now are closed."""
        self.quotas.limit(max_connections, max_rate, listeners)
        with nogil:
            wake_acceptors(self.network)
            if counted(&self.network.quotas.excess):
                wake_processors(self.network)

    # -- without threads

    def turn(self, int index):
        """Take one turn of a processor on this thread. Return after how many milliseconds the next one is due, -1 for never.

        It is due at once when the poller has something for it. Returns None when the server was stopped and the
        processor has ended. Only for servers that were not started; the first turns only prepare the next ones.
        """
        cdef Processor* p = &self.network.processors[index]
        cdef int64_t wait_ms = -1
        if not 0 <= index < self.network.processor_count or p.is_joinable:
            raise ValueError(f"processor {index}: there is none, or its thread runs")
        with nogil:
            if runs(p):
                take_turn(p)
            if runs(p):
                prepare_wait(p)
                wait_ms = p.wait_ms
            else:
                end_processor(p)
        return wait_ms if runs(p) else None

    def accept(self, int index):
        """Take one turn of an acceptor on this thread. Return as ``turn``."""
        cdef Acceptor* a = &self.network.acceptors[index]
        cdef int64_t wait_ms
        if not 0 <= index < self.network.acceptor_count or a.is_started:
            raise ValueError(f"acceptor {index}: there is none, or its thread runs")
        if counted(&self.network.stopping):
            return None
        with nogil:
            wait_for_peers(a, 0)
            wait_ms = prepare_accept(a)
        return wait_ms

    # -- the request queues

    def take(self, double timeout, int plane=DATA_PLANE):
        """Return the oldest request of a plane's queue, or None when none came within ``timeout`` seconds.

        None also when answered requests have left work (``take_work``), and when the server has stopped: see ``closed``.
        """
        cdef Connection* c
        cdef RequestQueue* queue = queue_number(self.network, plane)
        cdef int64_t wait_ns = <int64_t>(min(timeout, 1e9) * 1e9)
        cdef int64_t deadline = monotonic_ns() + wait_ns
        while True:
            with nogil:
                c = take_request(queue, wait_ns)
                if c != NULL:
                    begin_local_time(c)
            if c == NULL:
                return None
            request = request_of(self, c)
            if request is not None:
                return request
            wait_ns = max(0, deadline - monotonic_ns())

    def take_work(self, int plane=DATA_PLANE):
        """Return whether answered requests have left work. The calling thread does it."""
        cdef RequestQueue* queue = queue_number(self.network, plane)
        cdef bint has_work
        with nogil:
            has_work = take_work(queue)
        return has_work

    def wake_idle(self, int plane=DATA_PLANE):
        """Let all threads that wait in ``take`` return."""
        cdef RequestQueue* queue = queue_number(self.network, plane)
        with nogil:
            wake_idle(queue)

    @property
    def closed(self):
        """Whether the request queues are closed: what is left in them can be taken."""
        cdef bint closed
        with nogil:
            # The last one that is closed
            closed = is_closed(&self.network.queues[PLANES - 1])
        return closed

    def queue_size(self, int plane=DATA_PLANE):
        """Return how many requests are in a queue, which no handler thread has taken; held ones are not counted."""
        cdef RequestQueue* queue = queue_number(self.network, plane)
        cdef int64_t size
        with nogil:
            size = count_requests(queue, &queue.waiting)
        return size

    def idle_ns(self, int plane=DATA_PLANE):
        """Return for how many nanoseconds no request waited in a queue since the server was made."""
        cdef RequestQueue* queue = queue_number(self.network, plane)
        cdef int64_t time
        with nogil:
            time = time_without_requests(queue)
        return time

    def held_requests(self, int plane=DATA_PLANE):
        """Return how many requests wait because a queue is full."""
        cdef RequestQueue* queue = queue_number(self.network, plane)
        cdef int64_t size
        with nogil:
            size = count_requests(queue, &queue.held)
        return size

    def memory(self):
        """Return the values of a MemoryPool: bytes, those that are left, and for how many nanoseconds requests found none."""
        cdef const MemoryPool* pool = &self.network.memory
        cdef int64_t since = load_number(&pool.empty_since)
        cdef int64_t empty_ns = counted(&pool.empty_ns) + (monotonic_ns_of(self.network.clock) - since if since else 0)
        return pool.size, load_number(&pool.available), empty_ns

    def request_times(self):
        """Return for each API key the values of its ``RequestTimes``, if there was a request."""
        cdef const RequestTimes* times
        cdef int key
        found = {}
        for key in range(API_KEYS):
            times = <const RequestTimes*>load_pointer(<const void**>&self.network.times[key])
            if times != NULL:
                found[key] = times_as_objects(times)
        return found

    def counters(self):
        """Return the values of a ProcessorCounters for each processor, and of an AcceptorCounters for each acceptor."""
        cdef Network* network = self.network
        cdef const Counters* c
        cdef const Listener* listener
        cdef int64_t idle_ns, blocked_ns, now = monotonic_ns_of(network.clock)
        cdef Processor* p
        cdef int i, k
        processors = []
        for i in range(network.acceptor_count):
            name = ", ".join(self.listener_names) if network.acceptors[i].listener_count > 1 else self.listener_names[i]
            for k in range(network.acceptors[i].opened_count):
                p = &network.processors[network.acceptors[i].processors[k]]
                c = &p.counters
                idle_ns, now = counted(&c.idle_ns), monotonic_ns_of(network.clock)
                processors.append((
                    name, counted(&c.connections), counted(&c.opened), counted(&c.requests), counted(&c.bytes_in),
                    counted(&c.bytes_out) + counted(&c.bytes_of_handlers), idle_ns if idle_ns >= 0 else idle_ns + now,
                    counted(&c.expired),
                    counted(&c.idle_closed), now - p.started_ns,
                    counted(&c.authenticated), counted(&c.authentications_failed), counted(&c.renewed),
                    counted(&c.renewals_failed), counted(&c.cannot_renew), counted(&c.sessions_expired),
                    counted(&c.not_authenticated), counted(&c.handshakes), counted(&c.failed_handshakes),
                    counted(&c.excess_closed),
                ))
        acceptors = []
        for i in range(network.listener_count):
            listener = &network.listeners[i]
            blocked_ns = counted(&listener.blocked_ns)
            acceptors.append((
                self.listener_names[i], counted(&listener.rejected), counted(&listener.accept_errors),
                counted(&listener.ip_throttled), blocked_ns if blocked_ns >= 0 else blocked_ns + now,
            ))
        return processors, acceptors

    def take_event(self):
        """Wait for an event for the log. Return its kind, its number, the peer, how many events were lost, and the listener.

        Returns None when the server has stopped.
        """
        cdef Events* events = &self.network.events
        cdef Event event
        cdef int64_t left_out = 0
        cdef bint found
        with nogil:
            lock(&events.mutex)
            while events.count == 0 and not events.closed:
                wait(&events.changed, &events.mutex, 3600000000000)
            found = events.count > 0
            if found:
                event = events.ring[events.first]
                events.first = (events.first + 1) % EVENTS
                events.count -= 1
                left_out, events.left_out = events.left_out, 0
            unlock(&events.mutex)
        if not found:
            return None
        listener = None if event.listener < 0 else self.listener_names[event.listener]
        return event.kind, event.value, peer_of(&event.peer), left_out, listener


cdef RequestQueue* queue_number(Network* network, int plane) except NULL:
    if not 0 <= plane < PLANES:
        raise ValueError(f"request queue {plane}: there is none")
    return &network.queues[plane]


cdef int use_openssl(Network* network, int listener, TlsContext context) except -1:
    cdef SSL_CTX* before
    cdef SSL_CTX* after = context.context
    openssl_functions().SSL_CTX_up_ref(after)
    with nogil:
        lock(&network.tls_mutex)
        before = network.listeners[listener].tls
        network.listeners[listener].tls = after
        unlock(&network.tls_mutex)
    if before != NULL:
        openssl_functions().SSL_CTX_free(before)
    network.listeners[listener].transport = &TLS
    return 0


cdef int use_python(Listener* listener, object context) except -1:
    cdef PyObject* before = listener.python_tls
    Py_INCREF(context)
    listener.python_tls = <PyObject*>context
    listener.transport = &PYTHON_TLS
    Py_XDECREF(before)
    return 0


cdef TakenRequest request_of(NetworkThreads threads, Connection* c):
    """Return the request that was taken; None if it has ended, or if the hot handler shall see it first."""
    cdef TakenRequest request
    try:
        request = TakenRequest.__new__(TakenRequest)
        request.frame = frame_of(threads, c)
        request.context = context_of(threads, c)
        if request.context is None:
            with nogil:
                give_answer(c, CLOSE, NULL, 0)
            return None
        if c.stage != OPEN:
            request.authenticator = <object>c.authenticator
        else:
            if threads.identify is not None:
                c.identity = threads.identify(request.context)
            if threads.number_user is not None:
                c.user = threads.number_user(request.context)
        if c.is_unknown:
            c.is_unknown = False
            if threads.hot is not None and c.stage == OPEN:
                with nogil:
                    give_answer(c, AGAIN, NULL, 0)
                return None
    except Exception:
        with nogil:
            give_answer(c, CLOSE, NULL, 0)
        raise
    request.threads, request.connection, request.listener = threads, c, c.listener
    return request


cdef object frame_of(NetworkThreads threads, Connection* c):
    """Return the frame of a request that a handler thread has taken. A large one is not copied: the thread gets its memory."""
    cdef _Memory memory
    # A hot handler may go on with the request, and then needs it.
    if threads.hot is not None or c.stage != OPEN or c.capacity <= BUFFER_BYTES:
        return PyBytes_FromStringAndSize(<const char*>c.data + c.begin + SIZE_BYTES, c.request_size)
    memory = _Memory.__new__(_Memory)
    memory.data, memory.size = c.data, c.end
    frame = memoryview(memory)[c.begin + SIZE_BYTES : c.begin + SIZE_BYTES + c.request_size]
    # The processor finds that the whole request was received, and has no memory to free.
    c.data = NULL
    c.capacity = 0
    return frame


cdef object context_of(NetworkThreads threads, Connection* c):
    """Return the RequestContext of a connection whose request the caller has taken: nobody else uses the field.

    None: the name in the peer's certificate is refused.
    """
    if c.context == NULL or (<object>c.context).connection_id != c.number:
        host, port = peer_of(&c.peer)
        principal = ANONYMOUS
        maker = threads.authenticators[c.listener]
        namer = threads.namers[c.listener]
        subject = b""
        if c.subject != NULL:
            subject = PyBytes_FromStringAndSize(<const char*>c.subject, c.subject_size)
        if namer is not None and maker is None:
            principal = namer(subject, host, port)
            if principal is None:
                return None
        protocol = threads.security_protocols[c.listener]
        context = RequestContext(threads.listener_names[c.listener], protocol, host, port, c.number, principal)
        authenticator = None if maker is None else maker(context, subject)
        Py_INCREF(context)
        Py_INCREF(authenticator)
        Py_XDECREF(c.context)
        Py_XDECREF(c.authenticator)
        c.context, c.authenticator = <PyObject*>context, <PyObject*>authenticator
    return <object>c.context


cdef void add_processor(Acceptor* a) noexcept:
    """Open one more processor of an acceptor, which does not use it yet."""
    cdef Network* network = a.network
    cdef int index = <int>network.processor_count
    cdef Processor* p = &network.processors[index]
    p.network, p.index, p.ended = network, index, True
    p.waker[0] = p.waker[1] = -1
    open_mutex(&p.mutex, PROCESSOR)
    open_condition(&p.changed)
    p.now = monotonic_ns_of(network.clock)
    open_wheel(&p.wheel, p.now // 1000000)
    network.poller.open(network.poller, &p.poller, p.waker)
    store_number(&network.processor_count, index + 1)
    a.processors[a.opened_count] = index
    a.opened_count += 1


cdef int start_processor(Processor* p) except -1:
    cdef int error
    p.started_ns = monotonic_ns_of(p.network.clock)
    p.ended = False
    error = start_thread(&p.thread, run_processor, p)
    if error:
        p.ended = True
        raise OSError(error, os.strerror(error))
    p.is_joinable = True
    return 0


cdef int start_added(Acceptor* a) except -1:
    """Start the processor that was added last; without a descriptor or a thread it is none."""
    cdef Processor* p = &a.network.processors[a.processors[a.opened_count - 1]]
    try:
        check_descriptors(p.poller, p.waker)
        start_processor(p)
    except BaseException:
        # No other thread has seen it: its number is the highest.
        a.opened_count -= 1
        store_number(&a.network.processor_count, p.index)
        free_processor(p)
        raise
    return 0


cdef void close_polling(Processor* p) noexcept nogil:
    """Close what the thread polled. Nobody wakes a thread that has ended. May be called again."""
    p.network.poller.close(p.network.poller, p.poller, p.waker)
    p.poller = p.waker[0] = p.waker[1] = -1


cdef void free_processor(Processor* p) noexcept:
    cdef uint32_t i, k
    cdef Connection* c
    for i in range(p.chunk_count):
        for k in range(SLOTS_PER_CHUNK):
            c = &p.chunks[i][k]
            if c.new_fd >= 0:
                p.network.poller.close_connection(p.network.poller, c.new_fd)
            free_answer(&c.answer)
            free_answer(&c.out)
            free(c.data)
            free(c.subject)
            free(c.records)
            free(c.sealed)
            Py_XDECREF(c.session)
            Py_XDECREF(c.context)
            Py_XDECREF(c.authenticator)
        free(p.chunks[i])
    for i in range(<uint32_t>p.pool_count):
        free(p.pool[i])
    close_polling(p)
    close_condition(&p.changed)
    close_mutex(&p.mutex)


cdef void open_acceptor(Network* network) noexcept:
    cdef Acceptor* a = &network.acceptors[network.acceptor_count]
    a.network = network
    a.next_processor = -1
    open_wheel(&a.throttled, now_ms(network))
    a.waker[0] = a.waker[1] = -1
    network.poller.open(network.poller, &a.poller, a.waker)
    network.acceptor_count += 1


cdef void open_listener(Acceptor* a, int fd) noexcept:
    """Give an acceptor one more listener. Those of an acceptor are opened one after the other."""
    cdef Network* network = a.network
    cdef Listener* listener = &network.listeners[network.listener_count]
    listener.acceptor, listener.index, listener.fd = a, network.listener_count, fd
    listener.interest, listener.waiting_fd = READABLE, -1
    listener.transport = &PLAINTEXT
    if a.poller >= 0:
        network.poller.add(network.poller, a.poller, fd, READABLE, listener)
    if a.listener_count == 0:
        a.listeners = listener
    a.listener_count += 1
    network.listener_count += 1


cdef void close_acceptor(Acceptor* a) noexcept nogil:
    """Close the listening sockets and what the thread used. May be called again."""
    cdef const PollerFunctions* poller = a.network.poller
    cdef int i
    for i in range(a.listener_count):
        if a.listeners[i].fd >= 0:
            poller.close_connection(poller, a.listeners[i].fd)
        if a.listeners[i].waiting_fd >= 0:
            reject_connection(&a.listeners[i])
        a.listeners[i].fd = -1
    # 2**46 ms are 2,000 years: no time of a clock, and none that the wheel cannot have.
    close_throttled(a, <int64_t>1 << 46)
    poller.close(poller, a.poller, a.waker)
    a.poller = a.waker[0] = a.waker[1] = -1


cdef int check_descriptors(int poller, const int* waker) except -1:
    if poller < 0 or waker[0] < 0 or waker[1] < 0:
        raise OSError(EMFILE, os.strerror(EMFILE))
    return 0


cdef class PlainTimingWheel:
    """A timing wheel of plain numbers, for tests."""

    cdef TimingWheel wheel
    cdef list timers

    def __cinit__(self, int64_t now):
        open_wheel(&self.wheel, now)
        self.timers = []

    def start(self, int64_t deadline):
        """Start a timer and return its number."""
        timer = bytearray(sizeof(Timer))
        cdef uint8_t[::1] memory = timer
        self.timers.append(timer)
        start_timer(&self.wheel, <Timer*>&memory[0], deadline)
        return len(self.timers) - 1

    def stop(self, number):
        """Stop a timer. Return whether it was running."""
        cdef uint8_t[::1] memory = self.timers[number]
        return stop_timer(&self.wheel, <Timer*>&memory[0])

    def next_at(self):
        """Return when the wheel must be looked at next, or -1."""
        cdef int slot = 0
        return next_slot(&self.wheel, &slot)

    def advance(self, int64_t now):
        """Return the numbers of the timers that expire, in order."""
        cdef Timer* timer
        cdef uint8_t[::1] memory
        addresses = {}
        for i, buffer in enumerate(self.timers):
            memory = buffer
            addresses[<size_t>&memory[0]] = i
        expired = []
        while True:
            timer = expired_timer(&self.wheel, now)
            if timer == NULL:
                return expired
            expired.append(addresses[<size_t>timer])
