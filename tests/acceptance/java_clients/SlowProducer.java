import java.io.FileInputStream;
import java.io.InputStream;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;

/**
 * Produces a record every 100 ms for some time: {@code SlowProducer FILE TOPIC SECONDS RENEWALS}. FILE: settings of the
 * producer. With 0 seconds it produces one record. It goes on, for a minute at most, until its connections have renewed
 * their sessions RENEWALS times. Prints a line {@code NAME=VALUE} for each total of its connections. The first
 * record that fails ends it with 0 after a line {@code error=CLASS} for each cause, the outermost first.
 */
public final class SlowProducer {
    private static final long PAUSE_MS = 100;
    private static final long SECONDS = 60;
    private static final String SERIALIZER = "org.apache.kafka.common.serialization.StringSerializer";

    private SlowProducer() {
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (InputStream file = new FileInputStream(arguments[0])) {
            settings.load(file);
        }
        settings.put("key.serializer", SERIALIZER);
        settings.put("value.serializer", SERIALIZER);
        long start = System.nanoTime();
        long end = start + TimeUnit.SECONDS.toNanos(Long.parseLong(arguments[2]));
        long deadline = start + TimeUnit.SECONDS.toNanos(SECONDS);
        double renewals = Double.parseDouble(arguments[3]);
        int sent = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            do {
                // Partition 0: one leader, so one connection to it and those for metadata.
                producer.send(new ProducerRecord<>(arguments[1], 0, null, "record " + sent)).get(SECONDS, TimeUnit.SECONDS);
                sent++;
                Thread.sleep(PAUSE_MS);
            } while (System.nanoTime() < end || System.nanoTime() < deadline && renewed(producer) < renewals);
            for (Metric metric : producer.metrics().values()) {
                String name = metric.metricName().name();
                if (metric.metricName().group().equals("producer-metrics") && name.endsWith("-total")) {
                    System.out.println(name + "=" + value(metric));
                }
            }
        } catch (Exception failed) {
            for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
                System.out.println("error=" + cause.getClass().getName());
                System.err.println(cause);
            }
        }
        System.out.println("sent=" + sent);
    }

    /** Returns how often the connections have renewed their sessions; 0 where the version cannot. */
    private static double renewed(KafkaProducer<?, ?> producer) throws ReflectiveOperationException {
        for (Metric metric : producer.metrics().values()) {
            if (metric.metricName().group().equals("producer-metrics")
                    && metric.metricName().name().equals("successful-reauthentication-total")) {
                return ((Number) value(metric)).doubleValue();
            }
        }
        return 0;
    }

    /** Returns the value: each of the two methods exists in a part of the versions only. */
    private static Object value(Metric metric) throws ReflectiveOperationException {
        try {
            return Metric.class.getMethod("metricValue").invoke(metric);
        } catch (NoSuchMethodException exception) {
            return Metric.class.getMethod("value").invoke(metric);
        }
    }
}
