/*
 * sink: the cheapest Kafka broker, so that a benchmark measures only the sender.
 *
 *     sink PORT [PORTS]
 *
 * Listens on PORTS (1) neighbouring ports of 127.0.0.1 from PORT on; PORT 0 lets the kernel choose one.
 * Prints "ready PORT" when it listens. Reads frames, discards their bodies inside the kernel (MSG_TRUNC),
 * and answers every ApiVersions, LeaderAndIsr, StopReplica and UpdateMetadata with success. SIGUSR1 prints
 * "frames N bytes N" on standard error. One thread, epoll, Linux.
 *
 * A request starts with: size int32, api key int16, api version int16, correlation id int32. The sink looks at
 * these 12 bytes only.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LEADER_AND_ISR = 4,
    STOP_REPLICA = 5,
    UPDATE_METADATA = 6,
    API_VERSIONS = 18,

    PREFIX = 12,          /* size, api key, api version, correlation id */
    AFTER_SIZE = 8,       /* bytes of the prefix that the size counts */
    REPLY_SPACE = 64,     /* the longest reply, ApiVersions, has 43 bytes */
    EVENTS = 64,          /* taken from epoll at once */
    BACKLOG = 4096,       /* a thousand senders may connect at the same time */
    DISCARD_AT_ONCE = 1 << 30,
};

/* A listening socket, or a connection in the middle of a frame. */
struct peer {
    int fd;
    int listening;
    int have;             /* bytes of the prefix that arrived */
    int64_t left;         /* bytes of the frame still to be discarded */
    uint8_t prefix[PREFIX];
};

static uint64_t frames, bytes;
static volatile sig_atomic_t report_wanted;

static void on_sigusr1(int signal_number)
{
    (void)signal_number;
    report_wanted = 1;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int32_t get_int32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return (int32_t)ntohl(value);
}

static int16_t get_int16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return (int16_t)ntohs(value);
}

static uint8_t *put_int32(uint8_t *at, int32_t value)
{
    uint32_t wire = htonl((uint32_t)value);
    memcpy(at, &wire, sizeof wire);
    return at + sizeof wire;
}

static uint8_t *put_int16(uint8_t *at, int16_t value)
{
    uint16_t wire = htons((uint16_t)value);
    memcpy(at, &wire, sizeof wire);
    return at + sizeof wire;
}

/* ApiVersions: error code, the four APIs with their ranges, throttle time (v1+), tag buffers (v3+). */
static uint8_t *put_api_versions(uint8_t *at, int version)
{
    static const int16_t ranges[][3] = {
        {LEADER_AND_ISR, 0, 7}, {STOP_REPLICA, 0, 4}, {UPDATE_METADATA, 0, 8}, {API_VERSIONS, 0, 3}};
    const int count = sizeof ranges / sizeof *ranges;

    at = put_int16(at, 0);
    if (version >= 3)
        *at++ = count + 1;
    else
        at = put_int32(at, count);
    for (int i = 0; i < count; i++) {
        for (int field = 0; field < 3; field++)
            at = put_int16(at, ranges[i][field]);
        if (version >= 3)
            *at++ = 0;
    }
    if (version >= 1)
        at = put_int32(at, 0);
    if (version >= 3)
        *at++ = 0;
    return at;
}

/* A control response without errors: [header tags], error code, [empty partition array], [tags]. */
static uint8_t *put_success(uint8_t *at, int api, int version)
{
    int flexible = (api == LEADER_AND_ISR && version >= 4) || (api == STOP_REPLICA && version >= 2) ||
                   (api == UPDATE_METADATA && version >= 6);

    if (flexible)
        *at++ = 0;
    at = put_int16(at, 0);
    if (api != UPDATE_METADATA) {
        if (flexible)
            *at++ = 1;
        else
            at = put_int32(at, 0);
    }
    if (flexible)
        *at++ = 0;
    return at;
}

/* Answer the frame whose prefix is in `peer`; 0 when the reply could not be written completely. */
static int reply(const struct peer *peer)
{
    uint8_t out[REPLY_SPACE];
    int api = get_int16(peer->prefix + 4);
    int version = get_int16(peer->prefix + 6);
    uint8_t *end = out + sizeof(int32_t);

    memcpy(end, peer->prefix + 8, sizeof(int32_t));
    end += sizeof(int32_t);
    end = api == API_VERSIONS ? put_api_versions(end, version) : put_success(end, api, version);
    put_int32(out, (int32_t)(end - out) - (int32_t)sizeof(int32_t));
    return send(peer->fd, out, (size_t)(end - out), MSG_NOSIGNAL) == end - out;
}

static void watch(int epoll, int fd, int listening)
{
    struct peer *peer = calloc(1, sizeof *peer);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};

    if (!peer)
        die("calloc");
    peer->fd = fd;
    peer->listening = listening;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
        die("epoll_ctl");
}

static int listen_on(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on))
        die("socket");
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, BACKLOG))
        die("bind");
    return fd;
}

static void accept_all(int epoll, const struct peer *listener)
{
    int fd, on = 1;

    while ((fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
            die("TCP_NODELAY");
        watch(epoll, fd, 0);
    }
    if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
        die("accept4");
}

/* Reads until the socket is empty; 0 when the connection is to be closed. */
static int read_frames(struct peer *peer)
{
    for (;;) {
        ssize_t count;

        if (peer->have < PREFIX) {
            count = recv(peer->fd, peer->prefix + peer->have, (size_t)(PREFIX - peer->have), 0);
            if (count > 0 && (peer->have += (int)count) == PREFIX) {
                peer->left = (int64_t)get_int32(peer->prefix) - AFTER_SIZE;
                if (peer->left < 0)
                    return 0;
            }
        } else {
            size_t want = peer->left > DISCARD_AT_ONCE ? DISCARD_AT_ONCE : (size_t)peer->left;
            count = recv(peer->fd, NULL, want, MSG_TRUNC);
            if (count > 0)
                peer->left -= count;
        }
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN)
            return 1;
        if (count <= 0)
            return 0;
        bytes += (uint64_t)count;
        if (peer->have == PREFIX && peer->left == 0) {
            frames++;
            if (!reply(peer))
                return 0;
            peer->have = 0;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: %s PORT [PORTS]\n", argv[0]);
        return 2;
    }
    int port = atoi(argv[1]), ports = argc > 2 ? atoi(argv[2]) : 1;
    struct sigaction action = {.sa_handler = on_sigusr1};
    int epoll = epoll_create1(0);
    if (epoll < 0 || sigaction(SIGUSR1, &action, NULL))
        die("epoll_create1");

    for (int i = 0; i < ports; i++) {
        int fd = listen_on(port ? port + i : 0);
        watch(epoll, fd, 1);
        if (port == 0) {
            struct sockaddr_in address;
            socklen_t length = sizeof address;
            if (getsockname(fd, (struct sockaddr *)&address, &length))
                die("getsockname");
            port = ntohs(address.sin_port);
        }
    }
    printf("ready %d\n", port);
    fflush(stdout);

    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        if (report_wanted) {
            report_wanted = 0;
            fprintf(stderr, "frames %llu bytes %llu\n", (unsigned long long)frames, (unsigned long long)bytes);
        }
        for (int i = 0; i < count; i++) {
            struct peer *peer = events[i].data.ptr;
            if (peer->listening) {
                accept_all(epoll, peer);
            } else if (!read_frames(peer)) {
                close(peer->fd);
                free(peer);
            }
        }
    }
}
