/*
 * sink: the cheapest Kafka broker, so that a benchmark measures only the sender.
 *
 *     sink PORT [PORTS [ADDRESS]]
 *
 * Listens on PORTS (1) neighbouring ports of ADDRESS (127.0.0.1) from PORT on; PORT 0 lets the kernel choose them all.
 * Prints "ready PORT ..." when it listens. Reads frames, discards their bodies inside the kernel (MSG_TRUNC),
 * and answers every ApiVersions, LeaderAndIsr, StopReplica and UpdateMetadata with success.
 *
 * Each line on standard input is answered with a line on standard output: the time of CLOCK_MONOTONIC at which
 * the last frame was answered, in nanoseconds (0: none yet); the bytes received; and for each port the answered
 * LeaderAndIsr, StopReplica and UpdateMetadata requests as "N/N/N". Ends with its standard input, unless that
 * is a file or /dev/null. One thread, epoll, Linux.
 *
 * A request starts with: size int32, api key int16, api version int16, correlation id int32. The sink looks at
 * these 12 bytes only.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
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

/* The requests that were answered on one port. */
struct counts {
    uint64_t leader_and_isr, stop_replica, update_metadata;
};

enum kind { LISTENER, CONNECTION, STANDARD_INPUT };

/* A listening socket, a connection in the middle of a frame, or the standard input. */
struct peer {
    int fd;
    enum kind kind;
    struct counts *counts; /* of the port; none for the standard input */
    int have;              /* bytes of the prefix that arrived */
    int64_t left;          /* bytes of the frame still to be discarded */
    uint8_t prefix[PREFIX];
};

static uint64_t bytes;
static struct timespec last_answer;
static struct counts *port_counts;
static int ports = 1;

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

static void count_answer(const struct peer *peer)
{
    int api = get_int16(peer->prefix + 4);

    peer->counts->leader_and_isr += api == LEADER_AND_ISR;
    peer->counts->stop_replica += api == STOP_REPLICA;
    peer->counts->update_metadata += api == UPDATE_METADATA;
    clock_gettime(CLOCK_MONOTONIC, &last_answer);
}

static void print_report(void)
{
    printf("%lld %llu", last_answer.tv_sec * 1000000000LL + last_answer.tv_nsec, (unsigned long long)bytes);
    for (int i = 0; i < ports; i++) {
        const struct counts *counts = port_counts + i;
        printf(" %llu/%llu/%llu", (unsigned long long)counts->leader_and_isr,
               (unsigned long long)counts->stop_replica, (unsigned long long)counts->update_metadata);
    }
    putchar('\n');
    fflush(stdout);
}

/* Print a report for each line that has come; exit at the end of the input. */
static void read_commands(void)
{
    char input[EVENTS];
    ssize_t count = read(STDIN_FILENO, input, sizeof input);

    if (count == 0)
        exit(0);
    for (ssize_t i = 0; i < count; i++)
        if (input[i] == '\n')
            print_report();
}

/* Returns 0 when epoll cannot watch the descriptor. */
static int watch(int epoll, int fd, enum kind kind, struct counts *counts)
{
    struct peer *peer = calloc(1, sizeof *peer);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};

    if (!peer)
        die("calloc");
    peer->fd = fd;
    peer->kind = kind;
    peer->counts = counts;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static int listen_on(const char *host, int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = inet_addr(host)};

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
        if (!watch(epoll, fd, CONNECTION, listener->counts))
            die("epoll_ctl");
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
            if (!reply(peer))
                return 0;
            count_answer(peer);
            peer->have = 0;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: %s PORT [PORTS [ADDRESS]]\n", argv[0]);
        return 2;
    }
    int port = atoi(argv[1]), epoll = epoll_create1(0);
    if (argc > 2)
        ports = atoi(argv[2]);
    port_counts = calloc((size_t)ports, sizeof *port_counts);
    if (epoll < 0 || !port_counts)
        die("epoll_create1");

    printf("ready");
    for (int i = 0; i < ports; i++) {
        int fd = listen_on(argc > 3 ? argv[3] : "127.0.0.1", port ? port + i : 0);
        struct sockaddr_in address;
        socklen_t length = sizeof address;
        if (!watch(epoll, fd, LISTENER, port_counts + i))
            die("epoll_ctl");
        if (getsockname(fd, (struct sockaddr *)&address, &length))
            die("getsockname");
        printf(" %d", ntohs(address.sin_port));
    }
    /* epoll refuses files and /dev/null: then there are no commands. */
    if (!watch(epoll, STDIN_FILENO, STANDARD_INPUT, NULL) && errno != EPERM)
        die("epoll_ctl");
    putchar('\n');
    fflush(stdout);

    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < count; i++) {
            struct peer *peer = events[i].data.ptr;
            if (peer->kind == LISTENER) {
                accept_all(epoll, peer);
            } else if (peer->kind == STANDARD_INPUT) {
                read_commands();
            } else if (!read_frames(peer)) {
                close(peer->fd);
                free(peer);
            }
        }
    }
}
