// Compacts a replica's folder with Kafka's own Cleaner: reads one line from standard input and answers with one line.
//
//   clean <first dirty> <now> <segment bytes> <delete retention ms> <folder>  ->  ok <first uncleanable> <end offset>, or ok nothing

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import kafka.log.Cleaner;
import kafka.log.LogCleanerManager;
import kafka.log.LogToClean;
import kafka.log.OffsetsToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.runtime.BoxedUnit;

public final class CleanerOracle {
    private static final ScheduledFuture<?> NOTHING = (ScheduledFuture<?>) Proxy.newProxyInstance(
        CleanerOracle.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class},
        (proxy, method, values) -> false);

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok " + clean(line.split(" ", 6));
            } catch (Throwable e) {
                answer = "error " + e.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static String clean(String[] words) throws Exception {
        TopicPartition partition = new TopicPartition("orders", 0);
        LogConfig config = new LogConfig(Map.of(
            "cleanup.policy", "compact", "segment.bytes", words[3], "delete.retention.ms", words[4],
            "segment.index.bytes", "65536", "index.interval.bytes", "100"));
        // Nothing runs in the background: files that are replaced keep the name .deleted.
        Scheduler scheduler = (Scheduler) Proxy.newProxyInstance(CleanerOracle.class.getClassLoader(),
            new Class<?>[] {Scheduler.class}, (proxy, method, values) -> NOTHING);
        UnifiedLog log = UnifiedLog.apply(new File(words[5]), config, 0L, 0L, scheduler, new BrokerTopicStats(false),
            Time.SYSTEM, 900000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600000,
            new LogDirFailureChannel(1), true, Option.empty(), true, new ConcurrentHashMap<>(), false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        log.updateHighWatermark(log.logEndOffset());
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 20), 65536, 65536, 0.9,
            new Throttler(Double.MAX_VALUE, 300, "cleaner", "bytes", Time.SYSTEM), Time.SYSTEM,
            ignored -> BoxedUnit.UNIT);
        OffsetsToClean offsets = LogCleanerManager.cleanableOffsets(
            log, Option.apply(Long.parseLong(words[1])), Long.parseLong(words[2]));
        LogToClean dirty = new LogToClean(
            partition, log, offsets.firstDirtyOffset(), offsets.firstUncleanableDirtyOffset(), false);
        long end = offsets.firstDirtyOffset();
        if (dirty.cleanableBytes() > 0) {
            end = (Long) cleaner.doClean(dirty, Long.parseLong(words[2]))._1();
        }
        log.close();
        return dirty.totalBytes() == 0 ? "nothing" : dirty.firstUncleanableOffset() + " " + end;
    }
}
