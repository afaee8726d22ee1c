/*
 * blast: the limit. Sends one buffer to many connections with several threads and does nothing else.
 *
 *     blast PORT BROKERS BODY_BYTES THREADS ROUNDS [ADDRESS]
 *
 * Opens BROKERS connections to PORT of ADDRESS (127.0.0.1): a sink. A round sends one UpdateMetadata v8 frame of
 * BODY_BYTES to each and waits for every reply. ROUNDS > 0: runs them and prints
 * "BLAST B= L= W= min ms median ms mean ms GB/s". ROUNDS 0: reads commands from standard input and prints
 * milliseconds, so that a benchmark can alternate it with other sides:
 *
 *     awaited N   N rounds
 *     queued N    one round of N frames to each connection, each after the reply to the frame before; no
 *                 connection waits for another
 *
 * A sink discards bodies unread, so the body is filler; only the frame's size and API are right.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    UPDATE_METADATA = 6,
    VERSION = 8,
    HEAD = 34,            /* size, request header v2 with a short client id, body head */
    EVENTS = 64,          /* taken from epoll at once */
    MAX_THREADS = 64,
};

static int brokers, threads;
static int frames_each = 1;
static size_t frame_size;
static uint8_t *frame;
static int *sockets, *more;     /* by broker; frames that are to follow in this round */
static size_t *left;            /* by broker: bytes of the frame that are still to be sent */
static int epolls[MAX_THREADS];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory)
        die("calloc");
    return memory;
}

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static void make_frame(size_t body_size)
{
    uint32_t size = htonl((uint32_t)(HEAD - sizeof(uint32_t) + body_size));

    frame_size = HEAD + body_size;
    frame = allocate(frame_size, 1);
    memset(frame + HEAD, 1, body_size);
    memcpy(frame, &size, sizeof size);
    frame[5] = UPDATE_METADATA;
    frame[7] = VERSION;
}

/* Send as much of the rest of the frame as the kernel takes; epoll reports when it takes more. */
static void send_frame(int broker)
{
    while (left[broker]) {
        const uint8_t *at = frame + (frame_size - left[broker]);
        ssize_t sent = send(sockets[broker], at, left[broker], MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return;
        if (sent < 0)
            die("send");
        left[broker] -= (size_t)sent;
    }
}

/* Run one thread's part of a round: every `threads`-th connection, with all their frames in flight at once. */
static void *round_of_thread(void *argument)
{
    int first = (int)(intptr_t)argument, waiting = 0;
    struct epoll_event events[EVENTS];

    for (int broker = first; broker < brokers; broker += threads) {
        left[broker] = frame_size;
        more[broker] = frames_each - 1;
        send_frame(broker);
        waiting++;
    }
    while (waiting) {
        int count = epoll_wait(epolls[first], events, EVENTS, -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < count; i++) {
            int broker = events[i].data.fd;
            if (events[i].events & EPOLLIN) {
                uint8_t reply[64];
                ssize_t received = recv(sockets[broker], reply, sizeof reply, 0);
                if (received == 0 || (received < 0 && errno != EAGAIN))
                    die("recv");
                if (received > 0 && more[broker]) {
                    more[broker]--;
                    left[broker] = frame_size;
                } else if (received > 0) {
                    waiting--;
                }
            }
            send_frame(broker);
        }
    }
    return NULL;
}

static double one_round(void)
{
    pthread_t running[MAX_THREADS];
    double begin = now_ms();

    if (threads == 1) {
        round_of_thread(0);
        return now_ms() - begin;
    }
    for (int i = 0; i < threads; i++)
        if (pthread_create(&running[i], NULL, round_of_thread, (void *)(intptr_t)i))
            die("pthread_create");
    for (int i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    return now_ms() - begin;
}

static void connect_all(const char *host, int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = inet_addr(host)};

    for (int thread = 0; thread < threads; thread++)
        if ((epolls[thread] = epoll_create1(0)) < 0)
            die("epoll_create1");
    for (int broker = 0; broker < brokers; broker++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = broker};
        int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
            die("connect");
        if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) || fcntl(fd, F_SETFL, O_NONBLOCK))
            die("TCP_NODELAY");
        if (epoll_ctl(epolls[broker % threads], EPOLL_CTL_ADD, fd, &event))
            die("epoll_ctl");
        sockets[broker] = fd;
    }
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void report(int rounds)
{
    double *times = allocate((size_t)rounds, sizeof *times), sum = 0;

    for (int i = 0; i < rounds; i++)
        sum += times[i] = one_round();
    qsort(times, (size_t)rounds, sizeof *times, by_value);
    printf("BLAST B=%d L=%zu W=%d min %.2f ms median %.2f ms mean %.2f ms %.2f GB/s\n", brokers, frame_size - HEAD,
           threads, times[0], times[rounds / 2], sum / rounds,
           (double)frame_size * brokers / times[0] * 1e-6);
    free(times);
}

static void obey_standard_input(void)
{
    char line[64];
    int count;

    while (fgets(line, sizeof line, stdin)) {
        double took = 0;
        if (sscanf(line, "queued %d", &count) == 1) {
            frames_each = count;
            took = one_round();
            frames_each = 1;
        } else if (sscanf(line, "awaited %d", &count) == 1) {
            while (count-- > 0)
                took += one_round();
        }
        printf("%.3f\n", took);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    if (argc < 6 || argc > 7) {
        fprintf(stderr, "usage: %s PORT BROKERS BODY_BYTES THREADS ROUNDS [ADDRESS]\n", argv[0]);
        return 2;
    }
    int rounds = atoi(argv[5]);
    brokers = atoi(argv[2]);
    size_t body_size = (size_t)strtoull(argv[3], NULL, 10);
    threads = atoi(argv[4]);
    if (brokers < 1 || threads < 1 || threads > MAX_THREADS || rounds < 0) {
        fprintf(stderr, "%s: a number is out of range\n", argv[0]);
        return 2;
    }
    make_frame(body_size);
    sockets = allocate((size_t)brokers, sizeof *sockets);
    more = allocate((size_t)brokers, sizeof *more);
    left = allocate((size_t)brokers, sizeof *left);
    connect_all(argc > 6 ? argv[6] : "127.0.0.1", atoi(argv[1]));
    if (rounds)
        report(rounds);
    else
        obey_standard_input();
    return 0;
}
