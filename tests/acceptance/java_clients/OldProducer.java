import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * The producer of Kafka 0.8.2 to 0.10: {@code OldProducer BOOTSTRAP TOPIC COUNT CODEC...} writes so many records with
 * each codec to partition 0, and one more.
 */
public final class OldProducer {
    public static void main(String[] arguments) throws Exception {
        for (int i = 3; i < arguments.length; i++) {
            produce(arguments[0], arguments[1], Integer.parseInt(arguments[2]), arguments[i]);
        }
    }

    private static void produce(String bootstrap, String topic, int count, String codec) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("compression.type", codec);
        settings.put("acks", "all");
        settings.put("linger.ms", "5");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        for (int i = 0; i < count; i++) {
            String key = i % 7 == 0 ? null : codec + "-" + i;
            producer.send(new ProducerRecord<>(topic, 0, key, "old " + codec + " " + i));
        }
        // It comes after those that were sent before.
        producer.send(new ProducerRecord<>(topic, 0, (String) null, "old " + codec + " last")).get();
        producer.close();
    }
}
