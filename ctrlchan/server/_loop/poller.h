/* What a server needs of the operating system: polling, waking a thread, connections and their bytes.
 *
 * Polling is level-triggered. A poller never reports a descriptor that was removed before poller_wait.
 * PollerFunctions, at the end, are all that the loops call. SYSTEM_POLLER_FUNCTIONS are those of this file. */
#ifndef CTRLCHAN_POLLER_H
#define CTRLCHAN_POLLER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "_c/thread_signals.h"

enum { READABLE = 1, WRITABLE = 2, BROKEN = 4 };

typedef struct {
    void *owner;
    int events;
} Ready;

static inline int set_flags(int fd) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return -1;
    return fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* -- polling: functions return 0, or -1 with errno */

#ifdef __linux__
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>

static inline uint32_t epoll_events(int events) {
    return (events & READABLE ? EPOLLIN : 0) | (events & WRITABLE ? EPOLLOUT : 0);
}

static inline int poller_open(void) { return epoll_create1(EPOLL_CLOEXEC); }

static inline int poller_add(int poller, int fd, int events, void *owner) {
    struct epoll_event event = {.events = epoll_events(events), .data = {.ptr = owner}};
    return epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

static inline int poller_change(int poller, int fd, int before, int events, void *owner) {
    struct epoll_event event = {.events = epoll_events(events), .data = {.ptr = owner}};
    (void)before;
    return epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event);
}

/* A child that was forked and has not yet executed a program may share the descriptor: closing it is not enough. */
static inline void poller_remove(int poller, int fd) { epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL); }

/* Returns how many of the `size` entries of `ready` were set. timeout_ms: -1 waits for ever. */
static inline int poller_wait(int poller, Ready *ready, int size, int64_t timeout_ms) {
    struct epoll_event events[size];
    int i, n = epoll_wait(poller, events, size, timeout_ms > INT_MAX ? INT_MAX : (int)timeout_ms);
    for (i = 0; i < n; i++) {
        ready[i].owner = events[i].data.ptr;
        ready[i].events = (events[i].events & EPOLLIN ? READABLE : 0) | (events[i].events & EPOLLOUT ? WRITABLE : 0) |
                          (events[i].events & (EPOLLERR | EPOLLHUP) ? BROKEN : 0);
    }
    return n < 0 ? 0 : n;
}

/* A waker has one descriptor for reading and one for writing, which may be the same. */
static inline int waker_open(int fds[2]) { return fds[0] = fds[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); }

/* Returns the bytes sent, 0 at the end of the file, or -1 with errno. */
static inline int64_t send_file(int socket, int file, int64_t position, int64_t size) {
    off_t offset = position;
    return sendfile(socket, file, &offset, size);
}

static inline int accept_connection(int listener, struct sockaddr *address, socklen_t *size) {
    return accept4(listener, address, size, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

static inline const void *this_thread(void) {
    static __thread char own;
    return &own;
}
static inline void name_thread(const char *name) { pthread_setname_np(pthread_self(), name); }

#else /* macOS and the BSDs */
#include <sys/event.h>

#ifndef MSG_MORE
#define MSG_MORE 0
#endif
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

static inline int poller_open(void) {
    int poller = kqueue();
    if (poller >= 0) fcntl(poller, F_SETFD, FD_CLOEXEC);
    return poller;
}

static inline int poller_change(int poller, int fd, int before, int events, void *owner) {
    struct kevent changes[2];
    int n = 0;
    if ((before ^ events) & READABLE)
        EV_SET(&changes[n++], fd, EVFILT_READ, events & READABLE ? EV_ADD : EV_DELETE, 0, 0, owner);
    if ((before ^ events) & WRITABLE)
        EV_SET(&changes[n++], fd, EVFILT_WRITE, events & WRITABLE ? EV_ADD : EV_DELETE, 0, 0, owner);
    return kevent(poller, changes, n, NULL, 0, NULL) < 0 ? -1 : 0;
}

static inline int poller_add(int poller, int fd, int events, void *owner) {
    return poller_change(poller, fd, 0, events, owner);
}

/* Closing the descriptor removes it. */
static inline void poller_remove(int poller, int fd) { (void)poller, (void)fd; }

static inline int poller_wait(int poller, Ready *ready, int size, int64_t timeout_ms) {
    struct kevent events[size];
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000};
    int i, n = kevent(poller, NULL, 0, events, size, timeout_ms < 0 ? NULL : &timeout);
    for (i = 0; i < n; i++) {
        ready[i].owner = events[i].udata;
        ready[i].events = events[i].filter == EVFILT_READ ? READABLE : WRITABLE;
        /* fflags has the error of a connection that was reset; a peer that has only stopped sending has none. */
        if (events[i].flags & EV_EOF && events[i].fflags) ready[i].events |= BROKEN;
    }
    return n < 0 ? 0 : n;
}

static inline int waker_open(int fds[2]) {
    if (pipe(fds) < 0) return -1;
    return set_flags(fds[0]) < 0 || set_flags(fds[1]) < 0 ? -1 : 0;
}

static inline int64_t send_file(int socket, int file, int64_t position, int64_t size) {
    off_t sent = size;
    if (sendfile(file, socket, position, &sent, NULL, 0) < 0 && sent == 0) return -1;
    return sent;
}

static inline int accept_connection(int listener, struct sockaddr *address, socklen_t *size) {
    int fd = accept(listener, address, size);
    int one = 1;
    if (fd >= 0) {
        set_flags(fd);
#ifdef SO_NOSIGPIPE
        setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
    }
    return fd;
}

static inline void name_thread(const char *name) { pthread_setname_np(name); }
#endif

static inline void waker_ring(const int fds[2]) {
    uint64_t one = 1;
    /* A full pipe wakes the reader all the same. */
    if (write(fds[1], &one, sizeof one) < 0) return;
}

static inline void waker_clear(const int fds[2]) {
    uint64_t bytes[16];
    while (read(fds[0], bytes, sizeof bytes) == (ssize_t)sizeof bytes) continue;
}

static inline void waker_close(const int fds[2]) {
    if (fds[0] >= 0) close(fds[0]);
    if (fds[1] >= 0 && fds[1] != fds[0]) close(fds[1]);
}

/* -- sockets */

/* The address of a peer: IPv4 addresses are kept in the form that IPv6 has for them. */
typedef struct {
    uint8_t ip[16];
    int32_t port;
} Peer;

static inline int accept_peer(int listener, Peer *peer) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    int fd = accept_connection(listener, (struct sockaddr *)&address, &size);
    memset(peer, 0, sizeof *peer);
    if (fd >= 0 && address.ss_family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)&address;
        peer->ip[10] = peer->ip[11] = 0xff;
        memcpy(peer->ip + 12, &v4->sin_addr, 4);
        peer->port = ntohs(v4->sin_port);
    } else if (fd >= 0 && address.ss_family == AF_INET6) {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address;
        memcpy(peer->ip, &v6->sin6_addr, 16);
        peer->port = ntohs(v6->sin6_port);
    }
    return fd;
}

/* send_buffer: bytes, or -1 for the system's default. */
static inline void configure_connection(int fd, int send_buffer) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    if (send_buffer != -1) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
}

/* On: bytes that do not fill a segment wait, so that a file range leaves together with the bytes around it. */
static inline void hold_back(int fd, int on) {
#ifdef TCP_CORK
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
#else
    (void)fd, (void)on;
#endif
}

/* -- the functions that the owner of a server may replace */

typedef struct PollerFunctions PollerFunctions;
struct PollerFunctions {
    /* Opens a poller that `ring` wakes: its waker is reported with the owner NULL. Numbers are -1 after an error. */
    void (*open)(const PollerFunctions *self, int *poller, int waker[2]);
    void (*close)(const PollerFunctions *self, int poller, const int waker[2]);
    int (*add)(const PollerFunctions *self, int poller, int fd, int events, void *owner);
    int (*change)(const PollerFunctions *self, int poller, int fd, int before, int events, void *owner);
    void (*remove)(const PollerFunctions *self, int poller, int fd);
    int (*wait)(const PollerFunctions *self, int poller, Ready *ready, int size, int64_t timeout_ms);
    /* Any thread may call it. */
    void (*ring)(const PollerFunctions *self, const int waker[2]);
    void (*clear)(const PollerFunctions *self, const int waker[2]);

    /* Returns a connection of a listener that was added, or -1 with errno. */
    int (*accept)(const PollerFunctions *self, int listener, Peer *peer);
    void (*configure)(const PollerFunctions *self, int fd, int send_buffer);
    /* Return how many bytes were moved, or -1 with errno. */
    int64_t (*receive)(const PollerFunctions *self, int fd, void *data, int64_t size);
    int64_t (*send)(const PollerFunctions *self, int fd, const void *data, int64_t size, int more);
    int64_t (*send_file)(const PollerFunctions *self, int fd, int file, int64_t position, int64_t size);
    void (*hold_back)(const PollerFunctions *self, int fd, int on);
    void (*close_connection)(const PollerFunctions *self, int fd);
};

#define SELF const PollerFunctions *self

static void system_open(SELF, int *poller, int waker[2]) {
    (void)self;
    *poller = poller_open();
    if (*poller >= 0 && waker_open(waker) >= 0) poller_add(*poller, waker[0], READABLE, NULL);
}
static void system_close(SELF, int poller, const int waker[2]) {
    (void)self;
    waker_close(waker);
    if (poller >= 0) close(poller);
}
static int system_add(SELF, int poller, int fd, int events, void *owner) {
    (void)self;
    return poller_add(poller, fd, events, owner);
}
static int system_change(SELF, int poller, int fd, int before, int events, void *owner) {
    (void)self;
    return poller_change(poller, fd, before, events, owner);
}
static void system_remove(SELF, int poller, int fd) { (void)self, poller_remove(poller, fd); }
static int system_wait(SELF, int poller, Ready *ready, int size, int64_t timeout_ms) {
    (void)self;
    return poller_wait(poller, ready, size, timeout_ms);
}
static void system_ring(SELF, const int waker[2]) { (void)self, waker_ring(waker); }
static void system_clear(SELF, const int waker[2]) { (void)self, waker_clear(waker); }
static int system_accept(SELF, int listener, Peer *peer) { return (void)self, accept_peer(listener, peer); }
static void system_configure(SELF, int fd, int send_buffer) { (void)self, configure_connection(fd, send_buffer); }
static int64_t system_receive(SELF, int fd, void *data, int64_t size) { return (void)self, recv(fd, data, size, 0); }
static int64_t system_send(SELF, int fd, const void *data, int64_t size, int more) {
    return (void)self, send(fd, data, size, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
}
static int64_t system_send_file(SELF, int fd, int file, int64_t position, int64_t size) {
    return (void)self, send_file(fd, file, position, size);
}
static void system_hold_back(SELF, int fd, int on) { (void)self, hold_back(fd, on); }
static void system_close_connection(SELF, int fd) { (void)self, close(fd); }

#undef SELF

static const PollerFunctions SYSTEM_POLLER_FUNCTIONS = {
    system_open,      system_close, system_add,       system_change,  system_remove,
    system_wait,      system_ring,  system_clear,     system_accept,  system_configure,
    system_receive,   system_send,  system_send_file, system_hold_back, system_close_connection,
};

#endif
