// Starts on log directories as Kafka's broker does it: reads one line from standard input and answers with one line.
//
//   start <cluster id> <broker id> <segment bytes> <index interval> <directory>,<directory>
//         ->  refused <why>
//         or  ok <offline directories and replicas, separated by blanks>, a replica as
//             <folder>:<start offset>:<end offset>:<recovery point>:<high watermark>:<topic id or ->
//
// The steps are those of KafkaServer.startup (meta.properties, LogManager), ReplicaManager (directories that have
// failed, high watermarks) and KafkaServer.shutdown, so the directories show what Kafka has made of them.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.concurrent.ScheduledFuture;
import java.util.stream.Stream;
import kafka.log.LogManager;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import kafka.server.builders.LogManagerBuilder;
import kafka.server.checkpoints.OffsetCheckpointFile;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.KafkaStorageException;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble.VerificationFlag;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import scala.jdk.javaapi.CollectionConverters;

public final class DirectoryOracle {
    private static final ScheduledFuture<?> NOTHING = (ScheduledFuture<?>) Proxy.newProxyInstance(
        DirectoryOracle.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class},
        (proxy, method, values) -> false);

    /** What is to be done once and now is done now; all else is not done. */
    private static final Scheduler SCHEDULER = (Scheduler) Proxy.newProxyInstance(
        DirectoryOracle.class.getClassLoader(), new Class<?>[] {Scheduler.class}, (proxy, method, values) -> {
            if (!method.getName().startsWith("schedule"))
                return null;
            boolean isNow = values.length < 3 || (Long) values[2] == 0;
            boolean isOnce = values.length < 4 || (Long) values[3] < 0;
            if (isNow && isOnce)
                ((Runnable) values[1]).run();
            return NOTHING;
        });

    public static void main(String[] arguments) throws Exception {
        Exit.setHaltProcedure((status, message) -> {
            throw new IllegalStateException("the broker halts");
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok" + start(line.split(" ", 6));
            } catch (Throwable e) {
                answer = "refused " + e.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static String start(String[] words) throws Exception {
        List<File> dirs = Stream.of(words[5].split(",")).map(File::new).toList();
        LogDirFailureChannel failures = new LogDirFailureChannel(dirs.size());
        List<File> failed = identify(dirs, words[1], Integer.parseInt(words[2]), failures);
        LogConfig config = new LogConfig(Map.of(
            "segment.bytes", words[3], "index.interval.bytes", words[4], "segment.index.bytes", "4096",
            "file.delete.delay.ms", "0", "retention.ms", "-1"));
        LogManager manager = new LogManagerBuilder().setLogDirs(dirs).setInitialOfflineDirs(failed)
            .setConfigRepository(resource -> new Properties()).setInitialDefaultConfig(config)
            .setCleanerConfig(new CleanerConfig(false)).setProducerStateManagerConfig(Integer.MAX_VALUE, false)
            .setScheduler(SCHEDULER).setBrokerTopicStats(new BrokerTopicStats(false))
            .setLogDirFailureChannel(failures).build();
        manager.startup(CollectionConverters.asScala(java.util.Set.<String>of()).toSet(), log -> false);

        Map<String, OffsetCheckpointFile> files = new HashMap<>();
        for (File dir : CollectionConverters.asJava(manager.liveLogDirs()))
            files.put(dir.getPath(),
                new OffsetCheckpointFile(new File(dir, "replication-offset-checkpoint"), failures));
        handleFailures(manager, dirs, failures);
        for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs())) {
            try {
                scala.collection.Map<TopicPartition, Object> offsets = files.get(log.parentDir()).read();
                log.updateHighWatermark((Long) offsets.getOrElse(log.topicPartition(), () -> 0L));
            } catch (KafkaStorageException e) {
                // The partition has no leader here, and the directory goes offline.
            }
        }
        handleFailures(manager, dirs, failures);

        StringJoiner found = new StringJoiner(" ", " ", "");
        for (File dir : dirs)
            if (!CollectionConverters.asJava(manager.liveLogDirs()).contains(dir))
                found.add(dir.getPath());
        Map<String, Map<TopicPartition, Object>> written = new HashMap<>();
        for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs())) {
            found.add(log.dir() + ":" + log.logStartOffset() + ":" + log.logEndOffset() + ":" + log.recoveryPoint()
                + ":" + log.highWatermark() + ":" + (log.topicId().isEmpty() ? "-" : log.topicId().get()));
            written.computeIfAbsent(log.parentDir(), dir -> new HashMap<>())
                .put(log.topicPartition(), log.highWatermark());
        }
        written.forEach((dir, offsets) -> files.get(dir).write(CollectionConverters.asScala(offsets)));
        try {
            manager.shutdown(7);
        } catch (Exception e) {
            // The lock of a directory that has failed is given back twice; KafkaServer ignores that.
            if (!(e instanceof ClosedChannelException))
                throw e;
        }
        return found.toString();
    }

    /** Checks and writes meta.properties; returns the directories in which it cannot be read. */
    private static List<File> identify(List<File> dirs, String cluster, int broker, LogDirFailureChannel failures)
            throws Exception {
        MetaPropertiesEnsemble found = new MetaPropertiesEnsemble.Loader()
            .addLogDirs(dirs.stream().map(File::getPath).toList()).load();
        EnumSet<VerificationFlag> flags = EnumSet.of(VerificationFlag.REQUIRE_V0);
        found.verify(Optional.of(cluster), OptionalInt.of(broker), flags);
        MetaPropertiesEnsemble.Copier copier = new MetaPropertiesEnsemble.Copier(found);
        found.nonFailedDirectoryProps().forEachRemaining(entry -> copier.setLogDirProps(entry.getKey(),
            new MetaProperties.Builder(entry.getValue()).setClusterId(cluster).setNodeId(broker).build()));
        copier.emptyLogDirs().clear();
        copier.setPreWriteHandler((dir, isNew, properties) -> Files.createDirectories(Paths.get(dir)));
        copier.setWriteErrorHandler((dir, e) -> failures.maybeAddOfflineLogDir(dir, "meta.properties", e));
        copier.writeLogDirChanges();
        MetaPropertiesEnsemble written = copier.copy();
        written.verify(Optional.of(cluster), OptionalInt.of(broker), flags);
        return written.errorLogDirs().stream().map(File::new).toList();
    }

    private static void handleFailures(LogManager manager, List<File> dirs, LogDirFailureChannel failures) {
        for (File dir : dirs)
            if (failures.hasOfflineLogDir(dir.getPath())
                    && CollectionConverters.asJava(manager.liveLogDirs()).contains(dir))
                manager.handleLogDirFailure(dir.getPath());
    }
}
