/*
 * link: a slow link between two network interfaces: delay, loss, a rate, and a queue of frames in front of it.
 *
 *     link ONE OTHER SEED
 *
 * ONE and OTHER are interfaces of the namespace in which it runs, without addresses: what comes in at one goes
 * out at the other. Frames must not be larger than the MTU allows: senders have segmentation offload off, so
 * that a lost frame is one segment. Checksums may be left to the hardware (PACKET_VNET_HDR).
 *
 * Prints "ready". Each line on standard input is answered with a line on standard output:
 *
 *     set DELAY_US LOSS RATE QUEUE   microseconds in each direction, share of the frames (0.01), bits a second
 *                                    (0: no limit), frames that wait for the rate: "set"
 *     report                         for each direction "FRAMES BYTES LOST OVERFLOWED MISSED LATE_US WORST_US"
 *
 * FRAMES and BYTES came in, with Ethernet headers; LOST by the seeded generator; OVERFLOWED the queue; MISSED:
 * the kernel had no room for them, because this process did not run. LATE_US: mean and WORST_US: most
 * microseconds that a frame left later than it should. All count from the last "set" on. Frames never leave too
 * early. The rate counts frames with Ethernet header, without preamble, checksum and gap, as Linux does.
 *
 * Ends with its standard input. One thread, of the class SCHED_FIFO where allowed: a link does not wait for
 * processors. Needs CAP_NET_RAW. Linux.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    ONE_TO_OTHER,
    OTHER_TO_ONE,
    DIRECTIONS,

    BATCH = 64,                  /* frames of one system call */
    SPACE = 2048,                /* virtio header, Ethernet header, MTU */
    HEADER = sizeof(struct virtio_net_hdr),
    ON_THE_WAY = 1 << 15,        /* frames of a direction: 64 MB, of which only used pages exist */
    KERNEL_QUEUE = 64 << 20,     /* bytes: 40 ms of a fast sender, if this process does not run */
    SHORTEST_SLEEP_NS = 50000,   /* several frames leave at once rather than one at each wake-up */
    LINE = 256,
};

static const uint64_t SECOND_NS = 1000000000;

/* A frame on the way: it has left the queue at `sent_at` and leaves the link at `due_at` (CLOCK_MONOTONIC). */
struct frame {
    uint64_t sent_at, due_at;
    uint32_t size; /* with the virtio header */
    uint8_t bytes[SPACE];
};

struct counts {
    uint64_t frames, bytes, lost, overflowed, missed, left, late_ns, worst_ns;
};

/* Frames `first` to `end` (modulo ON_THE_WAY) are on the way; those from `waiting` on wait for the rate. */
struct direction {
    int in, out;
    uint64_t random;
    uint64_t free_at; /* when the rate lets the next frame begin */
    uint64_t first, waiting, end;
    struct frame *frames;
    struct counts counts;
};

static struct direction directions[DIRECTIONS];
static uint64_t delay_ns, loss_below, queue_limit = 1000;
static double ns_per_byte;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* xorshift64*: the upper 32 bits. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (*state * 2685821657736338717ULL) >> 32;
}

static int open_interface(const char *name)
{
    int on = 1, room = KERNEL_QUEUE;
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, 0);

    if (fd < 0)
        die("socket(AF_PACKET)");
    address.sll_ifindex = (int)if_nametoindex(name);
    if (!address.sll_ifindex)
        die(name);
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) ||
        setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on))
        die("setsockopt(SOL_PACKET)");
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room))
        die("SO_RCVBUFFORCE");
    if (bind(fd, (struct sockaddr *)&address, sizeof address))
        die("bind");
    return fd;
}

static uint64_t missed(int fd)
{
    struct tpacket_stats stats;
    socklen_t size = sizeof stats;

    /* The kernel sets its counters back. */
    if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size))
        die("PACKET_STATISTICS");
    return stats.tp_drops;
}

/* Frames that the rate has let go no longer wait. */
static void advance(struct direction *d, uint64_t now)
{
    while (d->waiting < d->end && d->frames[d->waiting % ON_THE_WAY].sent_at <= now)
        d->waiting++;
}

static void take(struct direction *d, const uint8_t *bytes, uint32_t size, uint64_t now)
{
    struct frame *frame;
    uint32_t length = size - HEADER;

    d->counts.frames++;
    d->counts.bytes += length;
    if (loss_below && next_random(&d->random) < loss_below) {
        d->counts.lost++;
        return;
    }
    if (d->end - d->waiting >= queue_limit || d->end - d->first >= ON_THE_WAY) {
        d->counts.overflowed++;
        return;
    }
    frame = &d->frames[d->end % ON_THE_WAY];
    if (d->free_at < now)
        d->free_at = now;
    d->free_at += (uint64_t)(ns_per_byte * length);
    frame->sent_at = d->free_at;
    frame->due_at = d->free_at + delay_ns;
    frame->size = size;
    memcpy(frame->bytes, bytes, size);
    d->end++;
}

static void receive(struct direction *d)
{
    static uint8_t space[BATCH][SPACE];
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    uint64_t now;
    int count;

    memset(messages, 0, sizeof messages);
    for (int i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){space[i], SPACE};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    count = recvmmsg(d->in, messages, BATCH, 0, NULL);
    if (count < 0 && errno != EAGAIN && errno != EINTR && errno != ENETDOWN)
        die("recvmmsg");
    now = now_ns();
    advance(d, now);
    for (int i = 0; i < count; i++) {
        if (messages[i].msg_hdr.msg_flags & MSG_TRUNC) {
            fprintf(stderr, "link: a frame of more than %d bytes: segmentation offload is on\n", SPACE - HEADER);
            exit(1);
        }
        take(d, space[i], messages[i].msg_len, now);
    }
}

/* Send all frames that are due; returns when the next one is, UINT64_MAX without one. */
static uint64_t deliver(struct direction *d)
{
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];

    while (d->first < d->end) {
        uint64_t now = now_ns();
        int due = 0, sent;

        memset(messages, 0, sizeof messages);
        while (due < BATCH && d->first + (uint64_t)due < d->end) {
            struct frame *frame = &d->frames[(d->first + (uint64_t)due) % ON_THE_WAY];
            if (frame->due_at > now)
                break;
            parts[due] = (struct iovec){frame->bytes, frame->size};
            messages[due].msg_hdr.msg_iov = &parts[due];
            messages[due].msg_hdr.msg_iovlen = 1;
            due++;
        }
        if (!due)
            return d->frames[d->first % ON_THE_WAY].due_at;
        sent = sendmmsg(d->out, messages, (unsigned)due, 0);
        if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR))
            return now;
        if (sent < 0 && errno != ENETDOWN)
            die("sendmmsg");
        if (sent < 0)
            sent = due; /* nobody is there any more */
        for (int i = 0; i < sent; i++, d->first++) {
            uint64_t late = now - d->frames[d->first % ON_THE_WAY].due_at;
            d->counts.left++;
            d->counts.late_ns += late;
            if (late > d->counts.worst_ns)
                d->counts.worst_ns = late;
        }
        if (d->waiting < d->first)
            d->waiting = d->first;
    }
    return UINT64_MAX;
}

static void obey(const char *line)
{
    unsigned long long delay_us, rate, queue;
    double loss;

    if (sscanf(line, "set %llu %lf %llu %llu", &delay_us, &loss, &rate, &queue) == 4) {
        delay_ns = delay_us * 1000;
        loss_below = (uint64_t)(loss * 4294967296.0);
        ns_per_byte = rate ? 8e9 / (double)rate : 0;
        queue_limit = queue;
        for (int i = 0; i < DIRECTIONS; i++) {
            missed(directions[i].in);
            memset(&directions[i].counts, 0, sizeof directions[i].counts);
        }
        puts("set");
    } else if (!strcmp(line, "report")) {
        for (int i = 0; i < DIRECTIONS; i++) {
            struct counts *c = &directions[i].counts;
            c->missed += missed(directions[i].in);
            printf("%s%llu %llu %llu %llu %llu %llu %llu", i ? " " : "", (unsigned long long)c->frames,
                   (unsigned long long)c->bytes, (unsigned long long)c->lost, (unsigned long long)c->overflowed,
                   (unsigned long long)c->missed, (unsigned long long)(c->left ? c->late_ns / c->left / 1000 : 0),
                   (unsigned long long)(c->worst_ns / 1000));
        }
        putchar('\n');
    } else {
        fprintf(stderr, "link: no such command: %s\n", line);
        exit(2);
    }
    fflush(stdout);
}

/* Obey the whole lines of standard input; exit at its end. */
static void read_commands(void)
{
    static char line[LINE];
    static size_t have;
    ssize_t count = read(STDIN_FILENO, line + have, sizeof line - 1 - have);
    char *end;

    if (count <= 0)
        exit(0);
    have += (size_t)count;
    line[have] = 0;
    while ((end = strchr(line, '\n'))) {
        *end = 0;
        obey(line);
        have -= (size_t)(end + 1 - line);
        memmove(line, end + 1, have + 1);
    }
}

int main(int argc, char **argv)
{
    const struct sched_param priority = {.sched_priority = 1};
    struct pollfd watched[DIRECTIONS + 1];

    if (argc != 4) {
        fprintf(stderr, "usage: %s ONE OTHER SEED\n", argv[0]);
        return 2;
    }
    directions[ONE_TO_OTHER].in = directions[OTHER_TO_ONE].out = open_interface(argv[1]);
    directions[OTHER_TO_ONE].in = directions[ONE_TO_OTHER].out = open_interface(argv[2]);
    for (int i = 0; i < DIRECTIONS; i++) {
        /* Never 0, and far apart for neighbouring seeds. */
        directions[i].random = (strtoull(argv[3], NULL, 10) * 2 + (uint64_t)i + 1) * 0x9E3779B97F4A7C15ULL;
        directions[i].frames = calloc(ON_THE_WAY, sizeof(struct frame));
        if (!directions[i].frames)
            die("calloc");
        watched[i] = (struct pollfd){.fd = directions[i].in, .events = POLLIN};
    }
    watched[DIRECTIONS] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    sched_setscheduler(0, SCHED_FIFO, &priority); /* without it frames are later, and the report says so */
    prctl(PR_SET_TIMERSLACK, 1);
    puts("ready");
    fflush(stdout);

    for (;;) {
        uint64_t next = UINT64_MAX;
        struct timespec timeout, *until = NULL;

        for (int i = 0; i < DIRECTIONS; i++) {
            uint64_t due = deliver(&directions[i]);
            if (due < next)
                next = due;
        }
        if (next != UINT64_MAX) {
            uint64_t now = now_ns(), sleep = next > now ? next - now : 0;
            if (sleep < SHORTEST_SLEEP_NS)
                sleep = SHORTEST_SLEEP_NS;
            timeout = (struct timespec){(time_t)(sleep / SECOND_NS), (long)(sleep % SECOND_NS)};
            until = &timeout;
        }
        if (ppoll(watched, DIRECTIONS + 1, until, NULL) < 0 && errno != EINTR)
            die("ppoll");
        for (int i = 0; i < DIRECTIONS; i++)
            if (watched[i].revents)
                receive(&directions[i]);
        if (watched[DIRECTIONS].revents)
            read_commands();
    }
}
