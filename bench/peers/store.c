/*
 * store: the cheapest broker that stores records, so that a benchmark has a limit.
 *
 *     store FOLDER [STORE]
 *
 * Listens on a free port of 127.0.0.1 and prints "ready PORT". With a STORE (a PEM file: a private key, then its
 * certificates) it speaks TLS, with the libssl that our brokers find. Serves Produce v9 and Fetch v12; the first request
 * that names a topic creates it, with one partition in one file of FOLDER. Every batch is checked as a broker does:
 * length, format, CRC-32C, and length and offset delta of each record. Records go to the file by one pwrite and
 * from it by sendfile, or by pread and SSL_write. There is no index file, no roll, no idempotent producer, no recovery, no replication, no
 * session, and no waiting Fetch. A frame that it cannot read ends the program. One thread, epoll, Linux; ends with
 * its standard input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "../../ctrlchan/_c/bytes.h"
#include "../../ctrlchan/_c/crc32c.h"
#include "../../ctrlchan/server/_loop/openssl.h"

enum {
    PRODUCE = 0,
    FETCH = 1,
    BATCH_HEADER = 61,
    LENGTH_AT = 8,
    BEFORE_LENGTH = 12,    /* bytes of a batch that its length does not count */
    LEADER_EPOCH_AT = 12,
    MAGIC_AT = 16,
    CRC_AT = 17,
    CHECKED_FROM = 21,
    LAST_DELTA_AT = 23,
    COUNT_AT = 57,
    LONGEST_NAME = 249,
    TOPICS = 64,
    EVENTS = 16,
    INDEX_INTERVAL = 4096,
    FIRST_BUFFER = 65536,
    ANSWERS = 65536,
    LARGEST_ANSWER = 512,
    TLS_PIECE = 65536, /* of a file */
};

struct entry {
    int64_t offset, position;
};

struct topic {
    char name[LONGEST_NAME + 1];
    size_t size;
    int fd;
    int64_t end_offset, bytes, indexed; /* indexed: position of the last entry */
    struct entry *index;
    size_t entries, room;
};

struct connection {
    int fd;
    SSL *ssl; /* NULL: plaintext */
    uint8_t *data; /* received: data[begin:end] */
    size_t begin, end, capacity;
    uint8_t answers[ANSWERS];
    size_t unsent;
};

static struct topic topics[TOPICS];
static int topic_count;
static OpenSsl openssl;
static SSL_CTX *tls; /* NULL: plaintext */

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static const uint8_t *read_uvarint(const uint8_t *at, const uint8_t *end, uint32_t *value)
{
    int size = get_uvarint(at, end, value);

    if (size <= 0)
        die("varint");
    return at + size;
}

static struct topic *find_topic(const uint8_t *name, size_t size)
{
    struct topic *topic;

    for (int i = 0; i < topic_count; i++)
        if (topics[i].size == size && !memcmp(topics[i].name, name, size))
            return topics + i;
    if (topic_count == TOPICS || size > LONGEST_NAME)
        die("topic");
    topic = topics + topic_count++;
    memcpy(topic->name, name, size);
    topic->size = size;
    topic->fd = open(topic->name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (topic->fd < 0)
        die(topic->name);
    return topic;
}

/* Reads a zig-zag varint that is not negative. */
static const uint8_t *read_length(const uint8_t *at, const uint8_t *end, int64_t *value)
{
    uint64_t raw = 0;

    for (int shift = 0; at < end && shift < 35; shift += 7) {
        raw |= (uint64_t)(*at & 0x7f) << shift;
        if (!(*at++ & 0x80)) {
            *value = (int64_t)(raw >> 1);
            return raw & 1 ? NULL : at;
        }
    }
    return NULL;
}

/* Whether the bytes are one valid batch. */
static int is_valid(const uint8_t *batch, int64_t size)
{
    const uint8_t *at = batch + BATCH_HEADER, *end = batch + size, *next;
    int64_t length, delta;
    int32_t count;

    if (size < BATCH_HEADER || get_i32(batch + LENGTH_AT) != size - BEFORE_LENGTH || batch[MAGIC_AT] != 2)
        return 0;
    if (crc32c(batch + CHECKED_FROM, (size_t)size - CHECKED_FROM) != (uint32_t)get_i32(batch + CRC_AT))
        return 0;
    count = get_i32(batch + COUNT_AT);
    if (count <= 0 || get_i32(batch + LAST_DELTA_AT) != count - 1)
        return 0;
    for (int32_t i = 0; i < count; i++) {
        at = read_length(at, end, &length);
        if (!at || length < 3 || length > end - at)
            return 0;
        next = at + length;
        /* Attributes, then the timestamp delta. */
        for (at++; at < next && *at & 0x80; at++)
            continue;
        at = read_length(at + 1, next, &delta);
        if (!at || delta != i)
            return 0;
        at = next;
    }
    return at == end;
}

/* Appends a batch and returns its first offset. */
static int64_t append(struct topic *topic, uint8_t *batch, int64_t size)
{
    int64_t offset = topic->end_offset;

    if (!is_valid(batch, size))
        die("batch");
    put_i64(batch, offset);
    put_i32(batch + LEADER_EPOCH_AT, 0);
    if (!topic->entries || topic->bytes - topic->indexed > INDEX_INTERVAL) {
        if (topic->entries == topic->room) {
            topic->room = 2 * topic->room + INDEX_INTERVAL;
            topic->index = realloc(topic->index, topic->room * sizeof *topic->index);
        }
        topic->index[topic->entries++] = (struct entry){offset, topic->bytes};
        topic->indexed = topic->bytes;
    }
    if (pwrite(topic->fd, batch, (size_t)size, topic->bytes) != size)
        die("pwrite");
    topic->bytes += size;
    topic->end_offset += get_i32(batch + COUNT_AT);
    return offset;
}

/* Returns the position of the batch that holds the offset. */
static int64_t position_of(const struct topic *topic, int64_t offset)
{
    uint8_t header[BATCH_HEADER];
    size_t low = 0, high = topic->entries, middle;
    int64_t position;

    if (offset >= topic->end_offset)
        return topic->bytes;
    while (high - low > 1) {
        middle = (low + high) / 2;
        if (topic->index[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    position = topic->index[low].position;
    for (;;) {
        if (pread(topic->fd, header, sizeof header, position) != sizeof header)
            die("pread");
        if (get_i64(header) + get_i32(header + LAST_DELTA_AT) >= offset)
            return position;
        position += BEFORE_LENGTH + get_i32(header + LENGTH_AT);
    }
}

/* Waits until OpenSSL can go on after a call that returned `result`. */
static void wait_for_peer(struct connection *c, int result)
{
    int error = openssl.SSL_get_error(c->ssl, result);
    struct pollfd one = {.fd = c->fd, .events = error == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN};

    if ((error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) || poll(&one, 1, -1) < 0)
        die("TLS");
}

static void write_tls(struct connection *c, const uint8_t *data, size_t size)
{
    while (size) {
        int sent = openssl.SSL_write(c->ssl, data, (int)size);

        if (sent <= 0) {
            wait_for_peer(c, sent);
            continue;
        }
        data += sent;
        size -= (size_t)sent;
    }
}

static void send_all(struct connection *c, int flags)
{
    if (c->ssl)
        write_tls(c, c->answers, c->unsent);
    else if (c->unsent && send(c->fd, c->answers, c->unsent, MSG_NOSIGNAL | flags) != (ssize_t)c->unsent)
        die("send");
    c->unsent = 0;
}

static void send_range(struct connection *c, int fd, off_t position, int64_t size)
{
    static uint8_t piece[TLS_PIECE];

    while (size) {
        ssize_t sent;

        if (c->ssl) {
            sent = pread(fd, piece, size < TLS_PIECE ? (size_t)size : TLS_PIECE, position);
            position += sent;
            if (sent > 0)
                write_tls(c, piece, (size_t)sent);
        } else {
            sent = sendfile(c->fd, fd, &position, (size_t)size);
        }
        if (sent <= 0)
            die("sendfile");
        size -= sent;
    }
}

/* Returns how many bytes were received: 0 at the end of the connection, less than 0 where there are none now. */
static ssize_t receive(struct connection *c)
{
    ssize_t got;
    int result;

    if (!c->ssl) {
        got = recv(c->fd, c->data + c->end, c->capacity - c->end, MSG_DONTWAIT);
        return got < 0 && errno != EAGAIN && errno != EINTR ? 0 : got;
    }
    /* One record at a time: all that fit. */
    for (got = 0; (size_t)got < c->capacity - c->end; got += result) {
        result = openssl.SSL_read(c->ssl, c->data + c->end + got, (int)(c->capacity - c->end - (size_t)got));
        if (result > 0)
            continue;
        if (got)
            break;
        return openssl.SSL_get_error(c->ssl, result) == SSL_ERROR_WANT_READ ? -1 : 0;
    }
    return got;
}

/* Writes what responses begin with: size (later), correlation id, no tags. */
static uint8_t *put_header(uint8_t *out, const uint8_t *frame)
{
    memcpy(out + 4, frame + 4, 4);
    out[8] = 0;
    return out + 9;
}

static uint8_t *put_topic(uint8_t *out, const struct topic *topic)
{
    *out++ = 2;
    out = put_uvarint(out, (uint32_t)topic->size + 1);
    memcpy(out, topic->name, topic->size);
    out += topic->size;
    *out++ = 2;
    return out;
}

/* One topic, one partition, one batch. */
static void produce(struct connection *c, const uint8_t *frame, const uint8_t *at, const uint8_t *end)
{
    uint8_t *answer = c->answers + c->unsent, *out = put_header(answer, frame);
    struct topic *topic;
    uint32_t size;
    int64_t offset;

    /* Transactional id, acks, timeout, count of topics. */
    at = read_uvarint(at + 1 + 2 + 4 + 1, end, &size);
    topic = find_topic(at, size - 1);
    /* Name, count of partitions, index. */
    at = read_uvarint(at + size - 1 + 1 + 4, end, &size);
    if (size - 1 > (size_t)(end - at))
        die("Produce");
    offset = append(topic, (uint8_t *)at, (int64_t)size - 1);
    out = put_topic(out, topic);
    memset(out, 0, 4 + 2); /* index, error */
    put_i64(out + 6, offset);
    put_i64(out + 14, -1);
    put_i64(out + 22, 0);
    /* No record errors, no message; ends of partition and topic; throttle time; the end. */
    memset(out + 30, 0, 9);
    out[30] = 1;
    out += 39;
    put_i32(answer, (int32_t)(out - answer - 4));
    c->unsent += (size_t)(out - answer);
}

/* One topic, one partition. The last batch may be cut, as Kafka's may. */
static void fetch(struct connection *c, const uint8_t *frame, const uint8_t *at, const uint8_t *end)
{
    uint8_t *answer = c->answers + c->unsent, *out = put_header(answer, frame);
    struct topic *topic;
    uint32_t size;
    int64_t left;
    off_t position;

    /* Replica id, max wait, min bytes, max bytes, isolation level, session id and epoch, count of topics. */
    at = read_uvarint(at + 4 * 4 + 1 + 2 * 4 + 1, end, &size);
    topic = find_topic(at, size - 1);
    /* Name, count of partitions, index, leader epoch; then fetch offset, last fetched epoch, start offset. */
    at += size - 1 + 1 + 4 + 4;
    if (end - at < 8 + 4 + 8 + 4)
        die("Fetch");
    position = position_of(topic, get_i64(at));
    left = get_i32(at + 20);
    if (left > topic->bytes - position)
        left = topic->bytes - position;
    memset(out, 0, 4 + 2 + 4); /* throttle time, error, session id */
    out = put_topic(out + 10, topic);
    memset(out, 0, 4 + 2); /* index, error */
    put_i64(out + 6, topic->end_offset);
    put_i64(out + 14, topic->end_offset);
    put_i64(out + 22, 0);
    out[30] = 0; /* aborted transactions: null */
    put_i32(out + 31, -1);
    out = put_uvarint(out + 35, (uint32_t)left + 1);
    put_i32(answer, (int32_t)(out - answer - 4 + left + 3));
    c->unsent += (size_t)(out - answer);
    send_all(c, left ? MSG_MORE : 0);
    send_range(c, topic->fd, position, left);
    /* Ends of partition, topic and response. */
    memset(c->answers, 0, 3);
    c->unsent = 3;
}

static void handle(struct connection *c, const uint8_t *frame, const uint8_t *end)
{
    /* Key, version, correlation id, client id, no tags. */
    const uint8_t *at = frame + 8;
    int key = get_i16(frame), version = get_i16(frame + 2);

    if (end - at < 2 || get_i16(at) < 0 || end - at < 2 + get_i16(at) + 1)
        die("header");
    at += 2 + get_i16(at) + 1;
    if (key == PRODUCE && version == 9)
        produce(c, frame, at, end);
    else if (key == FETCH && version == 12)
        fetch(c, frame, at, end);
    else
        die("API");
    if (c->unsent > ANSWERS - LARGEST_ANSWER)
        send_all(c, 0);
}

/* Receives once and handles all whole frames; 0 at the end of the connection. */
static int serve(struct connection *c)
{
    ssize_t got = receive(c);
    size_t frame = 0;

    if (got <= 0)
        return got < 0;
    c->end += (size_t)got;
    while (c->end - c->begin >= 4) {
        frame = 4 + (size_t)get_i32(c->data + c->begin);
        if (c->end - c->begin < frame)
            break;
        handle(c, c->data + c->begin + 4, c->data + c->begin + frame);
        c->begin += frame;
    }
    send_all(c, 0);
    if (c->begin) {
        memmove(c->data, c->data + c->begin, c->end - c->begin);
        c->end -= c->begin;
        c->begin = 0;
    }
    if (c->end >= 4 && frame > c->capacity) {
        c->data = realloc(c->data, frame);
        c->capacity = frame;
    }
    /* The poller does not report what OpenSSL has received. */
    return !c->ssl || !openssl.SSL_has_pending(c->ssl) || serve(c);
}

static void watch(int epoll, int fd, void *owner)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = owner};

    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
        die("epoll_ctl");
}

static void close_connection(struct connection *c)
{
    if (c->ssl)
        openssl.SSL_free(c->ssl);
    close(c->fd);
    free(c->data);
    free(c);
}

static void accept_connection(int epoll, int listener)
{
    struct connection *c = calloc(1, sizeof *c);
    int on = 1;

    c->fd = accept(listener, NULL, NULL);
    c->data = malloc(FIRST_BUFFER);
    c->capacity = FIRST_BUFFER;
    if (c->fd < 0 || setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
        die("accept");
    if (tls) {
        c->ssl = openssl.SSL_new(tls);
        if (!c->ssl || openssl.SSL_set_fd(c->ssl, c->fd) != 1)
            die("SSL_new");
        openssl.SSL_set_accept_state(c->ssl);
        if (openssl.SSL_do_handshake(c->ssl) != 1 || fcntl(c->fd, F_SETFL, O_NONBLOCK))
            die("handshake");
    }
    watch(epoll, c->fd, c);
    /* With the end of the handshake requests may have come. */
    if (c->ssl && openssl.SSL_has_pending(c->ssl) && !serve(c))
        close_connection(c);
}

static void open_store(const char *name)
{
    static char text[65536];
    FILE *file = fopen(name, "r");
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    void *library = dlopen("libssl.so.3", RTLD_NOW);
    EVP_PKEY *key;
    X509 *one;
    BIO *bio;

    if (!size)
        die(name);
    if (!library)
        library = dlopen("libssl.so.1.1", RTLD_NOW);
    if (!library || find_openssl_functions(&openssl, library))
        die("libssl");
    tls = openssl.SSL_CTX_new(openssl.TLS_server_method());
    bio = openssl.BIO_new_mem_buf(text, (int)size);
    key = openssl.PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    one = openssl.PEM_read_bio_X509(bio, NULL, NULL, NULL);
    if (!key || !one || openssl.SSL_CTX_use_certificate(tls, one) != 1 || openssl.SSL_CTX_use_PrivateKey(tls, key) != 1)
        die("STORE");
    while ((one = openssl.PEM_read_bio_X509(bio, NULL, NULL, NULL)))
        openssl.SSL_CTX_ctrl(tls, SSL_CTRL_CHAIN_CERT, 1, one);
    openssl.SSL_CTX_ctrl(tls, SSL_CTRL_MODE,
                         SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, NULL);
    /* As brokers of ours */
    openssl.SSL_CTX_ctrl(tls, SSL_CTRL_SET_READ_AHEAD, 1, NULL);
    openssl.SSL_CTX_ctrl(tls, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    struct epoll_event events[EVENTS];
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);

    if (argc < 2 || argc > 3)
        die("usage: store FOLDER [STORE]");
    if (argc == 3)
        open_store(argv[2]);
    if (chdir(argv[1]))
        die(argv[1]);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, EVENTS))
        die("bind");
    if (getsockname(listener, (struct sockaddr *)&address, &length))
        die("getsockname");
    crc32c_start();
    watch(epoll, listener, &listener);
    watch(epoll, STDIN_FILENO, NULL);
    printf("ready %d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c)
                return 0;
            if (events[i].data.ptr == &listener) {
                accept_connection(epoll, listener);
            } else if (!serve(c)) {
                close_connection(c);
            }
        }
    }
}
