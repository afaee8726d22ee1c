/* librdkafka of an old version. "produce BOOTSTRAP TOPIC VERSION COUNT CODEC..." sends COUNT records with each codec to
   partition 0. "consume BOOTSTRAP TOPIC VERSION COUNT GROUP" reads COUNT records of a topic with one partition in a
   group, prints offset, key and value of each, and commits. VERSION is that of the brokers, as its setting
   broker.version.fallback names it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <librdkafka/rdkafka.h>

enum { PATIENCE = 60 };

static int failed;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void set(rd_kafka_conf_t *settings, const char *name, const char *value)
{
    char why[512];
    if (rd_kafka_conf_set(settings, name, value, why, sizeof why) != RD_KAFKA_CONF_OK)
        fail(name, why);
}

static rd_kafka_conf_t *settings_of(const char *bootstrap, const char *version)
{
    rd_kafka_conf_t *settings = rd_kafka_conf_new();
    set(settings, "bootstrap.servers", bootstrap);
    /* Brokers before 0.10 were not asked for their versions. */
    set(settings, "api.version.request", strncmp(version, "0.10", 4) ? "false" : "true");
    set(settings, "broker.version.fallback", version);
    return settings;
}

static void delivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque)
{
    (void)client;
    (void)opaque;
    if (message->err) {
        fprintf(stderr, "delivery: %s\n", rd_kafka_err2str(message->err));
        failed = 1;
    }
}

static void produce(char **arguments, int codecs)
{
    const char *topic_name = arguments[1], *version = arguments[2];
    int count = atoi(arguments[3]);
    char why[512];
    for (int at = 0; at < codecs; at++) {
        const char *codec = arguments[4 + at];
        rd_kafka_conf_t *settings = settings_of(arguments[0], version);
        set(settings, "compression.codec", codec);
        set(settings, "queue.buffering.max.ms", "20");
        rd_kafka_conf_set_dr_msg_cb(settings, delivered);
        rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, settings, why, sizeof why);
        if (!client)
            fail("producer", why);
        rd_kafka_topic_conf_t *topic_settings = rd_kafka_topic_conf_new();
        rd_kafka_topic_conf_set(topic_settings, "request.required.acks", "-1", why, sizeof why);
        rd_kafka_topic_t *topic = rd_kafka_topic_new(client, topic_name, topic_settings);
        for (int number = 0; number < count; number++) {
            char key[32], value[128];
            int key_size = snprintf(key, sizeof key, "%d", number);
            int value_size = snprintf(value, sizeof value, "%s %s %d", version, codec, number);
            if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, value, (size_t)value_size, key, (size_t)key_size, NULL))
                fail("produce", strerror(errno));
            rd_kafka_poll(client, 0);
        }
        if (rd_kafka_flush(client, PATIENCE * 1000))
            fail("flush", "not all records were delivered");
        rd_kafka_topic_destroy(topic);
        rd_kafka_destroy(client);
    }
}

static void consume(char **arguments)
{
    int left = atoi(arguments[3]);
    char why[512];
    rd_kafka_conf_t *settings = settings_of(arguments[0], arguments[2]);
    set(settings, "group.id", arguments[4]);
    set(settings, "enable.auto.commit", "false");
    rd_kafka_topic_conf_t *topic_settings = rd_kafka_topic_conf_new();
    rd_kafka_topic_conf_set(topic_settings, "auto.offset.reset", "earliest", why, sizeof why);
    rd_kafka_conf_set_default_topic_conf(settings, topic_settings);
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_CONSUMER, settings, why, sizeof why);
    if (!client)
        fail("consumer", why);
    rd_kafka_poll_set_consumer(client);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, arguments[1], RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t error = rd_kafka_subscribe(client, topics);
    if (error)
        fail("subscribe", rd_kafka_err2str(error));
    time_t deadline = time(NULL) + PATIENCE;
    rd_kafka_message_t *last = NULL;
    while (left > 0) {
        if (time(NULL) > deadline)
            fail("consume", "records are missing");
        rd_kafka_message_t *message = rd_kafka_consumer_poll(client, 500);
        if (!message)
            continue;
        if (message->err) {
            if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
                fail("consume", rd_kafka_message_errstr(message));
            rd_kafka_message_destroy(message);
            continue;
        }
        printf("%lld\t%.*s\t%.*s\n", (long long)message->offset, message->key ? (int)message->key_len : 4,
               message->key ? (const char *)message->key : "null", (int)message->len, (const char *)message->payload);
        left--;
        if (last)
            rd_kafka_message_destroy(last);
        last = message;
    }
    error = rd_kafka_commit_message(client, last, 0);
    if (error)
        fail("commit", rd_kafka_err2str(error));
    rd_kafka_message_destroy(last);
    rd_kafka_topic_partition_list_destroy(topics);
    rd_kafka_consumer_close(client);
    rd_kafka_destroy(client);
}

int main(int count, char **words)
{
    if (count < 7)
        fail(words[0], "produce|consume BOOTSTRAP TOPIC VERSION COUNT CODEC...|GROUP");
    if (!strcmp(words[1], "produce"))
        produce(words + 2, count - 6);
    else
        consume(words + 2);
    return failed;
}
