import java.io.FileInputStream;
import java.io.InputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Uses a cluster with any version of Kafka's Java client: {@code Client BOOTSTRAP TOPIC [FILE]}. FILE: more settings
 * of the clients. Ends with 0 if all is right.
 */
public final class Client {
    private static final int RECORDS = 1_000;
    private static final long SECONDS = 60;
    private static final String[] CODECS = {"none", "gzip", "lz4"};

    private final Properties cluster = new Properties();
    private final String topic;

    private Client(String bootstrap, String topic) {
        cluster.put("bootstrap.servers", bootstrap);
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        Client client = new Client(arguments[0], arguments[1]);
        if (arguments.length > 2) {
            try (InputStream file = new FileInputStream(arguments[2])) {
                client.cluster.load(file);
            }
        }
        client.run();
    }

    private void run() throws Exception {
        try (AdminClient admin = AdminClient.create(cluster)) {
            admin.createTopics(Set.of(new NewTopic(topic, 3, (short) 3))).all().get(SECONDS, TimeUnit.SECONDS);
            expect(admin.describeCluster().nodes().get().size(), 3, "nodes");
            for (String codec : CODECS) {
                produce(codec);
            }
            consume(topic, CODECS.length * RECORDS, true);
            transact();
            consume(topic + "-transactions", (CODECS.length + 1) * RECORDS, false);
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            admin.describeConfigs(Set.of(resource)).all().get(SECONDS, TimeUnit.SECONDS);
            addPartitions(admin);
            admin.deleteTopics(Set.of(topic)).all().get(SECONDS, TimeUnit.SECONDS);
        }
    }

    private void produce(String codec) throws Exception {
        Properties settings = with(Map.of("acks", "all", "enable.idempotence", "true", "compression.type", codec));
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < RECORDS; i++) {
            sent.add(producer.send(new ProducerRecord<>(topic, "key " + i, codec + " " + i)));
        }
        for (Future<RecordMetadata> one : sent) {
            one.get(SECONDS, TimeUnit.SECONDS);
        }
        producer.close();
    }

    /** Commits a transaction, aborts one, and fences the producer with another one. */
    private void transact() throws Exception {
        KafkaProducer<String, String> first = transactional();
        first.initTransactions();
        for (String end : new String[] {"committed", "aborted"}) {
            first.beginTransaction();
            for (int i = 0; i < RECORDS; i++) {
                first.send(new ProducerRecord<>(topic, "key " + i, end + " " + i));
            }
            sendOffsets(first);
            first.flush();
            if (end.equals("committed")) {
                first.commitTransaction();
            } else {
                first.abortTransaction();
            }
        }
        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, "key", "fenced")).get(SECONDS, TimeUnit.SECONDS);
        KafkaProducer<String, String> second = transactional();
        second.initTransactions();
        try {
            first.commitTransaction();
            throw new IllegalStateException("the first producer is not fenced");
        } catch (KafkaException exception) {
            // Its class depends on the version.
        }
        first.close();
        second.close();
    }

    private KafkaProducer<String, String> transactional() {
        Properties settings = with(Map.of("transactional.id", topic));
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return new KafkaProducer<>(settings);
    }

    /** Adds offsets to the transaction: each of the two methods exists in a part of the versions only. */
    private void sendOffsets(KafkaProducer<String, String> producer) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets =
            Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1));
        String group = topic + "-offsets";
        try {
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class)
                .invoke(producer, offsets, group);
        } catch (NoSuchMethodException exception) {
            Class<?> metadata = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, metadata)
                .invoke(producer, offsets, metadata.getConstructor(String.class).newInstance(group));
        }
    }

    /** Reads all committed records. {@code whole}: there are no others, nor markers. */
    private void consume(String group, int records, boolean whole) throws Exception {
        Properties settings = with(Map.of("group.id", group, "auto.offset.reset", "earliest"));
        settings.put("isolation.level", "read_committed");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(Set.of(topic));
        Map<String, Integer> read = new HashMap<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (read.size() < records && System.nanoTime() < end) {
            for (ConsumerRecord<String, String> record : poll(consumer)) {
                read.merge(record.value(), 1, Integer::sum);
            }
        }
        expect(read.size(), records, "different records");
        expect(read.values().stream().mapToInt(Integer::intValue).sum(), read.size(), "records");
        consumer.commitSync();
        long committed = 0;
        for (TopicPartition partition : consumer.assignment()) {
            committed += consumer.position(partition);
        }
        if (whole) {
            expect(committed, read.size(), "sum of the offsets");
        }
        consumer.close();
    }

    /** Polls: each of the two methods exists in a part of the versions only. */
    @SuppressWarnings("unchecked")
    private static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        Object records;
        try {
            records = KafkaConsumer.class.getMethod("poll", Duration.class).invoke(consumer, Duration.ofMillis(200));
        } catch (NoSuchMethodException exception) {
            records = KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 200L);
        }
        return (ConsumerRecords<String, String>) records;
    }

    private void addPartitions(AdminClient admin) throws Exception {
        try {
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get(SECONDS, TimeUnit.SECONDS);
        } catch (NoClassDefFoundError exception) {
            // Kafka 0.11 cannot.
        }
    }

    private Properties with(Map<String, String> more) {
        Properties settings = new Properties();
        settings.putAll(cluster);
        settings.putAll(more);
        return settings;
    }

    private static void expect(long found, long expected, String what) {
        if (found != expected) {
            throw new IllegalStateException(found + " " + what + ", not " + expected);
        }
    }
}
