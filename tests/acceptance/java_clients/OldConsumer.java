import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * The consumer of Kafka 0.9 and 0.10: {@code OldConsumer BOOTSTRAP TOPIC COUNT GROUP} reads so many records of a topic
 * with one partition in a group, prints offset, key and value of each, and commits.
 */
public final class OldConsumer {
    private static final long SECONDS = 60;

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("group.id", arguments[3]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(Collections.singletonList(arguments[1]));
        int left = Integer.parseInt(arguments[2]);
        long deadline = System.nanoTime() + SECONDS * 1_000_000_000L;
        long end = 0;
        while (left > 0 && System.nanoTime() < deadline) {
            for (ConsumerRecord<String, String> one : consumer.poll(500)) {
                if (left > 0) {
                    System.out.println(one.offset() + "\t" + one.key() + "\t" + one.value());
                    end = one.offset() + 1;
                    left--;
                }
            }
        }
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        consumer.commitSync(Collections.singletonMap(partition, new OffsetAndMetadata(end)));
        consumer.close();
        if (left > 0) {
            throw new IllegalStateException(left + " records are missing");
        }
    }
}
