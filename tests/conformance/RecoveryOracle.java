// Loads a replica's folder with Kafka's own LogLoader: reads one line from standard input and answers with one line.
//
//   load <clean> <start offset> <recovery point> <segment bytes> <index interval> <folder>
//         ->  ok <start offset> <end offset> <recovery point> <last stable offset>
//
// The log is closed in order afterwards, so that the folder shows what Kafka has made of it.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import scala.Option;

public final class RecoveryOracle {
    private static final ScheduledFuture<?> NOTHING = (ScheduledFuture<?>) Proxy.newProxyInstance(
        RecoveryOracle.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class},
        (proxy, method, values) -> false);

    /** What is to be done once is done at once; what is done again and again is not done. */
    private static final Scheduler SCHEDULER = (Scheduler) Proxy.newProxyInstance(
        RecoveryOracle.class.getClassLoader(), new Class<?>[] {Scheduler.class}, (proxy, method, values) -> {
            boolean isOnce = method.getName().equals("scheduleOnce")
                || (method.getName().equals("schedule") && (Long) values[3] < 0);
            if (isOnce)
                ((Runnable) values[1]).run();
            return NOTHING;
        });

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok " + load(line.split(" ", 7));
            } catch (Throwable e) {
                answer = "error " + e.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static String load(String[] words) throws Exception {
        LogConfig config = new LogConfig(Map.of(
            "segment.bytes", words[4], "index.interval.bytes", words[5], "segment.index.bytes", "4096",
            "file.delete.delay.ms", "0", "retention.ms", "-1"));
        UnifiedLog log = UnifiedLog.apply(new File(words[6]), config, Long.parseLong(words[2]),
            Long.parseLong(words[3]), SCHEDULER, new BrokerTopicStats(false), Time.SYSTEM, 900000,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600000, new LogDirFailureChannel(1),
            words[1].equals("1"), Option.empty(), true, new ConcurrentHashMap<>(), false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        long recoveryPoint = log.recoveryPoint();
        log.updateHighWatermark(log.logEndOffset());
        String found = log.logStartOffset() + " " + log.logEndOffset() + " " + recoveryPoint + " "
            + log.lastStableOffset();
        log.close();
        return found;
    }
}
