/*
 * transact: a transactional producer, and a consumer, that cost little and measure what they wait for.
 *
 *     transact PORT
 *
 * Reads commands from standard input and answers each with a line; ends with its input. All topics have one
 * partition, whose leader and whose coordinator is the broker on PORT of 127.0.0.1.
 *
 *     begin ID                                    FindCoordinator, InitProducerId; "PRODUCER_ID EPOCH"
 *     run TOPIC COUNT REQUESTS RECORDS RATE VISIBLE
 *         COUNT transactions, RATE a second (0: one after the other): AddPartitionsToTxn, REQUESTS Produce of
 *         one batch of RECORDS records of 100 bytes (at most five in flight), EndTxn, which commits.
 *         "SECONDS CONCURRENT", then for each transaction the microseconds from EndTxn to its answer and, if
 *         VISIBLE is 1, to the answer of a read_committed Fetch that waits for the transaction's records.
 *         CONCURRENT counts CONCURRENT_TRANSACTIONS of AddPartitionsToTxn, which is sent again after 20 ms, as
 *         Java's producer does.
 *     fetch TOPIC ISOLATION MAX_BYTES OFFSET COUNT ADVANCE
 *         at most COUNT Fetch requests, each from OFFSET or (ADVANCE 1) from where the last one ended, until the
 *         end of what the isolation shows. "REQUESTS BYTES OFFSET ABORTED": ABORTED transactions were named.
 *
 * Any other error ends the program. Requests: FindCoordinator 3, InitProducerId 4, AddPartitionsToTxn 3,
 * Produce 9 (acks=-1), EndTxn 3, Fetch 12.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../../ctrlchan/_c/bytes.h"
#include "../../ctrlchan/_c/crc32c.h"

enum {
    PRODUCE = 0,
    FETCH = 1,
    FIND_COORDINATOR = 10,
    INIT_PRODUCER_ID = 22,
    ADD_PARTITIONS = 24,
    END = 26,
    LOADING = 14,
    NOT_AVAILABLE = 15,
    NOT_COORDINATOR = 16,
    CONCURRENT = 51,
    IN_FLIGHT = 5,
    RETRY_MS = 20,          /* TransactionManager.ADD_PARTITIONS_RETRY_BACKOFF_MS */
    ATTEMPTS = 3000,
    RECORD_BYTES = 100,
    BATCH_HEADER = 61,
    CHECKED_FROM = 21,      /* the CRC of a batch covers what follows */
    RESPONSE_HEADER = 5,    /* correlation id, tagged fields */
    TRANSACTIONAL = 0x10,
    NAMES = 250,
    TOPICS = 64,
    ROOM = 1 << 22,
    MAX_TRANSACTIONS = 100000,
    MAX_RECORDS = 10000,
};

struct peer {
    int fd;
    uint8_t *answer; /* the last response, without its size */
    int32_t size;
};

static struct peer producer, consumer;
static uint8_t *request, *batch;
static char transactional_id[NAMES];
static int64_t producer_id;
static int16_t epoch;
static struct {
    char name[NAMES];
    int32_t next;
} sequences[TOPICS];
static int topics;
static double commits[MAX_TRANSACTIONS], visible[MAX_TRANSACTIONS];

static void die(const char *what, long code)
{
    fprintf(stderr, "transact: %s: %ld\n", what, code);
    exit(1);
}

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static void sleep_us(double us)
{
    if (us > 0)
        usleep((useconds_t)us);
}

static void connect_to(struct peer *peer, int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int yes = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    peer->fd = socket(AF_INET, SOCK_STREAM, 0);
    peer->answer = malloc(ROOM);
    if (peer->fd < 0 || !peer->answer || connect(peer->fd, (struct sockaddr *)&address, sizeof address))
        die("connect", port);
    setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static void receive_bytes(int fd, uint8_t *to, size_t size)
{
    while (size) {
        ssize_t got = recv(fd, to, size, 0);

        if (got <= 0)
            die("the connection has ended", got);
        to += got;
        size -= (size_t)got;
    }
}

static void receive(struct peer *peer)
{
    uint8_t size[4];

    receive_bytes(peer->fd, size, sizeof size);
    peer->size = get_i32(size);
    if (peer->size < RESPONSE_HEADER || peer->size > ROOM)
        die("size of a response", peer->size);
    receive_bytes(peer->fd, peer->answer, (size_t)peer->size);
}

static void send_request(struct peer *peer, const uint8_t *end)
{
    const uint8_t *at = request;

    put_i32(request, (int32_t)(end - request - 4));
    while (at < end) {
        ssize_t sent = send(peer->fd, at, (size_t)(end - at), 0);

        if (sent <= 0)
            die("send", sent);
        at += sent;
    }
}

static void ask(struct peer *peer, const uint8_t *end)
{
    send_request(peer, end);
    receive(peer);
}

/* Begins a request; returns where its body goes. */
static uint8_t *head(int16_t key, int16_t version)
{
    uint8_t *at = request + 4;

    put_i16(at, key);
    put_i16(at + 2, version);
    put_i32(at + 4, 7); /* correlation id */
    put_i16(at + 8, 4);
    memcpy(at + 10, "load", 4);
    at[14] = 0;
    return at + 15;
}

static uint8_t *put_text(uint8_t *at, const char *text)
{
    size_t size = strlen(text);

    at = put_uvarint(at, (uint32_t)size + 1);
    memcpy(at, text, size);
    return at + size;
}

static uint8_t *put_producer(uint8_t *at)
{
    at = put_text(at, transactional_id);
    put_i64(at, producer_id);
    put_i16(at + 8, epoch);
    return at + 10;
}

static uint8_t *put_topic(uint8_t *at, const char *topic)
{
    *at++ = 2;
    at = put_text(at, topic);
    *at++ = 2;
    put_i32(at, 0);
    return at + 4;
}

/* Returns what follows the topic's name and the partition's number in a response with one topic. */
static const uint8_t *after_topic(const uint8_t *at, const char *topic)
{
    return at + 1 + 1 + strlen(topic) + 1 + 4;
}

static int is_temporary(int error)
{
    return error == LOADING || error == NOT_AVAILABLE || error == NOT_COORDINATOR || error == CONCURRENT;
}

static void begin(const char *id)
{
    int error = 0;
    const uint8_t *at;

    strcpy(transactional_id, id);
    for (int i = 0; i < ATTEMPTS; i++) {
        uint8_t *end = put_text(head(FIND_COORDINATOR, 3), id);

        *end++ = 1; /* a transactional id */
        *end++ = 0;
        ask(&producer, end);
        error = get_i16(producer.answer + RESPONSE_HEADER + 4);
        if (!error) {
            end = put_text(head(INIT_PRODUCER_ID, 4), id);
            put_i32(end, 60000);
            put_i64(end + 4, -1);
            put_i16(end + 12, -1);
            end[14] = 0;
            ask(&producer, end + 15);
            at = producer.answer + RESPONSE_HEADER + 4;
            error = get_i16(at);
            if (!error) {
                producer_id = get_i64(at + 2);
                epoch = get_i16(at + 10);
                topics = 0;
                printf("%lld %d\n", (long long)producer_id, epoch);
                return;
            }
        }
        if (!is_temporary(error))
            break;
        sleep_us(RETRY_MS * 1e3);
    }
    die("InitProducerId", error);
}

static uint8_t *put_varint(uint8_t *at, int32_t value)
{
    return put_uvarint(at, (uint32_t)value << 1); /* zig-zag of what is not negative */
}

/* Makes a batch; `finish_batch` completes it. Returns its size. */
static size_t make_batch(int records)
{
    uint8_t *at = batch + BATCH_HEADER, body[32], *end;
    struct timespec time;
    int64_t now;

    clock_gettime(CLOCK_REALTIME, &time);
    now = (int64_t)time.tv_sec * 1000;
    for (int i = 0; i < records; i++) {
        end = body;
        *end++ = 0;                     /* attributes */
        end = put_varint(end, 0);       /* timestamp */
        end = put_varint(end, i);       /* offset */
        *end++ = 1;                     /* no key: -1 */
        end = put_varint(end, RECORD_BYTES);
        at = put_varint(at, (int32_t)(end - body) + RECORD_BYTES + 1);
        memcpy(at, body, (size_t)(end - body));
        at += end - body;
        for (int j = 0; j < RECORD_BYTES; j++)
            *at++ = (uint8_t)('a' + (i + j) % 26);
        *at++ = 0;                      /* headers */
    }
    memset(batch, 0, BATCH_HEADER);
    put_i32(batch + 8, (int32_t)(at - batch - 12));
    put_i32(batch + 12, -1);
    batch[16] = 2;
    put_i16(batch + 21, TRANSACTIONAL);
    put_i32(batch + 23, records - 1);
    put_i64(batch + 27, now);
    put_i64(batch + 35, now);
    put_i64(batch + 43, producer_id);
    put_i16(batch + 51, epoch);
    put_i32(batch + 57, records);
    return (size_t)(at - batch);
}

/* Returns the next sequence of this producer in a topic. */
static int32_t *sequence_of(const char *topic)
{
    for (int i = 0; i < topics; i++)
        if (!strcmp(sequences[i].name, topic))
            return &sequences[i].next;
    if (topics == TOPICS)
        die("too many topics", TOPICS);
    strcpy(sequences[topics].name, topic);
    sequences[topics].next = 0;
    return &sequences[topics++].next;
}

static void send_batch(const char *topic, size_t size, int records, int32_t *sequence)
{
    uint8_t *at = put_text(head(PRODUCE, 9), transactional_id);

    put_i32(batch + 53, *sequence);
    *sequence = (int32_t)(((int64_t)*sequence + records) & 0x7fffffff);
    put_i32(batch + 17, (int32_t)crc32c(batch + CHECKED_FROM, size - CHECKED_FROM));
    put_i16(at, -1);
    put_i32(at + 2, 30000);
    at = put_topic(at + 6, topic);
    at = put_uvarint(at, (uint32_t)size + 1);
    memcpy(at, batch, size);
    at += size;
    memset(at, 0, 3);
    send_request(&producer, at + 3);
}

/* Returns the base offset of the next response. */
static int64_t produced(const char *topic)
{
    const uint8_t *at;

    receive(&producer);
    at = after_topic(producer.answer + RESPONSE_HEADER, topic);
    if (get_i16(at))
        die("Produce", get_i16(at));
    return get_i64(at + 2);
}

static uint8_t *fetch_request(const char *topic, int isolation, int32_t max_bytes, int64_t offset)
{
    uint8_t *at = head(FETCH, 12);

    put_i32(at, -1);
    put_i32(at + 4, 500);
    put_i32(at + 8, 1);
    put_i32(at + 12, max_bytes);
    at[16] = (uint8_t)isolation;
    put_i32(at + 17, 0);
    put_i32(at + 21, -1);
    at = put_topic(at + 25, topic);
    put_i32(at, -1);
    put_i64(at + 4, offset);
    put_i32(at + 12, -1);
    put_i64(at + 16, -1);
    put_i32(at + 24, max_bytes);
    memset(at + 28, 0, 2);
    at[30] = at[31] = 1;
    at[32] = 0;
    return at + 33;
}

struct fetched {
    int64_t bytes, next, end; /* next: offset after the last whole batch; end: of what the isolation shows */
    uint32_t aborted;
};

static struct fetched read_fetched(const char *topic, int isolation, int64_t offset)
{
    struct fetched one = { 0, offset, 0, 0 };
    const uint8_t *end = consumer.answer + consumer.size, *at, *records;
    uint32_t count = 0, size = 0;

    if (get_i16(consumer.answer + RESPONSE_HEADER + 4))
        die("Fetch", get_i16(consumer.answer + RESPONSE_HEADER + 4));
    at = after_topic(consumer.answer + RESPONSE_HEADER + 10, topic);
    if (get_i16(at))
        die("Fetch of the partition", get_i16(at));
    one.end = get_i64(at + (isolation ? 10 : 2));
    at += 26;
    at += get_uvarint(at, end, &count);
    if (count) {
        one.aborted = count - 1;
        at += 17 * (int64_t)one.aborted;
    }
    at += 4;
    at += get_uvarint(at, end, &size);
    one.bytes = size ? size - 1 : 0;
    for (records = at; one.bytes - (at - records) >= BATCH_HEADER;) {
        int64_t whole = (int64_t)get_i32(at + 8) + 12;

        if (whole > one.bytes - (at - records))
            break;
        one.next = get_i64(at) + get_i32(at + 23) + 1;
        at += whole;
    }
    return one;
}

/* Ends the transaction with the records first:end; notes when the answers came. */
static void commit(const char *topic, int64_t first, int64_t end, int index, int wants_visible)
{
    struct pollfd ready[2] = { { .fd = producer.fd, .events = POLLIN }, { .fd = consumer.fd, .events = POLLIN } };
    uint8_t *at;
    double sent;
    int left = 1 + wants_visible;

    if (wants_visible)
        /* Parked: nothing is visible from the first record of the transaction on. */
        send_request(&consumer, fetch_request(topic, 1, 1 << 20, first));
    at = put_producer(head(END, 3));
    *at++ = 1;
    *at++ = 0;
    sent = now_us();
    send_request(&producer, at);
    while (left) {
        if (poll(ready, (nfds_t)(1 + wants_visible), -1) < 0)
            die("poll", 0);
        if (ready[0].revents) {
            receive(&producer);
            commits[index] = now_us() - sent;
            if (get_i16(producer.answer + RESPONSE_HEADER + 4))
                die("EndTxn", get_i16(producer.answer + RESPONSE_HEADER + 4));
            ready[0].fd = -1;
            left--;
        }
        if (wants_visible && ready[1].revents) {
            receive(&consumer);
            if (read_fetched(topic, 1, first).end >= end) {
                visible[index] = now_us() - sent;
                ready[1].fd = -1;
                left--;
            } else {
                send_request(&consumer, fetch_request(topic, 1, 1 << 20, first));
            }
        }
    }
}

static long add_partitions(const char *topic)
{
    for (long concurrent = 0; concurrent < ATTEMPTS; concurrent++) {
        uint8_t *at = put_topic(put_producer(head(ADD_PARTITIONS, 3)), topic);
        int error;

        at[0] = at[1] = 0;
        ask(&producer, at + 2);
        error = get_i16(after_topic(producer.answer + RESPONSE_HEADER + 4, topic));
        if (!error)
            return concurrent;
        if (error != CONCURRENT)
            die("AddPartitionsToTxn", error);
        sleep_us(RETRY_MS * 1e3);
    }
    die("AddPartitionsToTxn", CONCURRENT);
    return 0;
}

static void run(const char *topic, int count, int requests, int records, double rate, int wants_visible)
{
    size_t size = make_batch(records);
    int32_t *sequence = sequence_of(topic);
    double began = now_us();
    long concurrent = 0;

    for (int i = 0; i < count; i++) {
        int64_t first = -1, end = 0;

        if (rate > 0)
            sleep_us(began + i / rate * 1e6 - now_us());
        concurrent += add_partitions(topic);
        for (int sent = 0, answered = 0; answered < requests;) {
            for (; sent < requests && sent - answered < IN_FLIGHT; sent++)
                send_batch(topic, size, records, sequence);
            end = produced(topic) + records;
            if (first < 0)
                first = end - records;
            answered++;
        }
        commit(topic, first, end, i, wants_visible);
    }
    printf("%.6f %ld", (now_us() - began) / 1e6, concurrent);
    for (int i = 0; i < count; i++) {
        printf(" %.1f", commits[i]);
        if (wants_visible)
            printf(" %.1f", visible[i]);
    }
    printf("\n");
}

static void fetch(const char *topic, int isolation, int32_t max_bytes, int64_t offset, long count, int advance)
{
    int64_t bytes = 0, aborted = 0;
    long requests = 0;

    while (requests < count) {
        struct fetched one;

        ask(&consumer, fetch_request(topic, isolation, max_bytes, offset));
        one = read_fetched(topic, isolation, offset);
        if (one.next == offset)
            die("a Fetch without a whole batch", (long)offset);
        requests++;
        bytes += one.bytes;
        aborted += one.aborted;
        if (advance) {
            offset = one.next;
            if (offset >= one.end)
                break;
        }
    }
    printf("%ld %lld %lld %lld\n", requests, (long long)bytes, (long long)offset, (long long)aborted);
}

int main(int count, char **arguments)
{
    static char line[1024], name[NAMES];
    int transactions, requests, records, flag, isolation;
    long long offset;
    long times;
    double rate;

    if (count != 2)
        die("usage: transact PORT", count);
    crc32c_start();
    request = malloc(ROOM);
    batch = malloc(ROOM);
    if (!request || !batch)
        die("malloc", ROOM);
    connect_to(&producer, atoi(arguments[1]));
    connect_to(&consumer, atoi(arguments[1]));
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "begin %249s", name) == 1)
            begin(name);
        else if (sscanf(line, "run %249s %d %d %d %lf %d", name, &transactions, &requests, &records, &rate, &flag) == 6
                 && transactions <= MAX_TRANSACTIONS && records <= MAX_RECORDS)
            run(name, transactions, requests, records, rate, flag);
        else if (sscanf(line, "fetch %249s %d %d %lld %ld %d", name, &isolation, &records, &offset, &times, &flag) == 6
                 && records < ROOM / 2)
            fetch(name, isolation, records, offset, times, flag);
        else
            die(line, 0);
        fflush(stdout);
    }
    return 0;
}
