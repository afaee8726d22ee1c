// Runs Kafka's own group coordinator on a clock that stands still between commands, and on a log in memory.
// One JSON array in, one JSON object out, each on a line:
//
//   ["new", {broker settings}]                           forgets all that was; one partition of __consumer_offsets
//   ["load", {broker settings}, [batch, ...]]            the same, and the log has these batches (hex)
//   ["join", n, group, member, instance, requiresMemberId, canSkip, client, session, rebalance, type,
//            [[protocol, hex], ...]]                      n: number of the request
//   ["sync", n, group, generation, member, instance, type, protocol, {member: hex}]
//   ["heartbeat", group, generation, member, instance]
//   ["leave", group, [[member, instance], ...]]
//   ["commit", n, group, generation, member, instance, [[topic, partition, offset, metadata, expire], ...]]
//   ["commitInTransaction", ..., producer]               as commit; the transaction is not verified
//   ["end", producer, commits]                           appends the marker, and completes the transaction
//   ["fetch", group, requireStable, [[topic, partition], ...] or null]
//   ["deleteOffsets", group, [[topic, partition], ...]]
//   ["describe", group]   ["list"]   ["delete", [group, ...]]   ["expire"]
//   ["advance", ms]                                      calls the timers that are due, each at its time
//   ["error", name]                                      of the appends from now on; "NONE"
//   ["hold"]                                             appends from now on are not answered ...
//   ["release", name]                                    ... until now, with this error
//   ["reload"]                                           the leadership goes, and comes back
//   ["log"]                                              its batches in hex
//   ["leader", group]                                    its member id, or null
//
// The answer: {"result": of the command, "answers": {n: result}, "appended": [[key, value], ...] in hex}, or
// {"error": text} when Kafka throws.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.PriorityQueue;
import java.util.Properties;
import java.util.function.Supplier;
import kafka.cluster.Partition;
import kafka.common.OffsetAndMetadata;
import kafka.coordinator.group.DelayedHeartbeat;
import kafka.coordinator.group.DelayedRebalance;
import kafka.coordinator.group.GroupCoordinator;
import kafka.coordinator.group.GroupCoordinator$;
import kafka.coordinator.group.GroupMetadata;
import kafka.coordinator.group.GroupOverview;
import kafka.coordinator.group.GroupSummary;
import kafka.coordinator.group.JoinGroupResult;
import kafka.coordinator.group.LeaveMemberResponse;
import kafka.coordinator.group.MemberSummary;
import kafka.coordinator.group.SyncGroupResult;
import kafka.log.UnifiedLog;
import kafka.server.ActionQueue;
import kafka.server.DelayedOperationPurgatory;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRequestHandler;
import kafka.server.ReplicaManager;
import kafka.server.RequestLocal;
import kafka.server.TransactionSupportedOperation;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.JoinGroupResponseData.JoinGroupResponseMember;
import org.apache.kafka.common.message.LeaveGroupRequestData.MemberIdentity;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.requests.OffsetFetchResponse;
import org.apache.kafka.common.requests.ProduceResponse.PartitionResponse;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.timer.Timer;
import org.apache.kafka.server.util.timer.TimerTask;
import org.apache.kafka.server.util.timer.TimerTaskEntry;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import scala.Function1;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

public final class GroupOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TopicPartition OFFSETS = new TopicPartition("__consumer_offsets", 0);
    private static final long START_MS = 1_700_000_000_000L;

    private static final Clock clock = new Clock();
    private static Timers timers;
    private static final short EPOCH = 0;
    private static GroupCoordinator coordinator;
    private static MemoryLog log;
    private static Errors appendError;
    private static List<Held> held;
    private static int epoch;
    private static ObjectNode answers;
    private static ArrayNode appended;

    // -- Kafka's parts, replaced

    private static final class Clock implements Time {
        long now;

        @Override public long milliseconds() { return now; }
        @Override public long nanoseconds() { return now * 1_000_000; }
        @Override public void sleep(long ms) { throw new UnsupportedOperationException(); }
        @Override public void waitObject(Object o, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException();
        }
    }

    private record Started(TimerTaskEntry entry, long order) { }

    private static final class Timers implements Timer {
        private final PriorityQueue<Started> queue = new PriorityQueue<>(
            Comparator.comparingLong((Started one) -> one.entry.expirationMs).thenComparingLong(Started::order));
        private long count;

        @Override public void add(TimerTask task) {
            queue.add(new Started(new TimerTaskEntry(task, clock.now + Math.max(task.delayMs, 1)), count++));
        }

        @Override public boolean advanceClock(long ms) {
            long until = clock.now + ms;
            while (!queue.isEmpty() && queue.peek().entry.expirationMs <= until) {
                TimerTaskEntry entry = queue.poll().entry;
                if (!entry.cancelled()) {
                    clock.now = Math.max(clock.now, entry.expirationMs);
                    TimerTask task = entry.timerTask;
                    task.run();
                }
            }
            clock.now = until;
            return true;
        }

        @Override public int size() { return queue.size(); }
        @Override public void close() { }
    }

    // These three are made without their constructors.

    private static final class MemoryLog extends UnifiedLog {
        List<byte[]> batches;
        long end;

        MemoryLog() {
            super(0, null, null, 0, null, null, null, false, false, null);
        }

        @Override public long logStartOffset() { return 0; }

        @Override public FetchDataInfo read(long start, int maxLength, FetchIsolation isolation, boolean minOne) {
            int size = batches.stream().mapToInt(batch -> batch.length).sum();
            ByteBuffer all = ByteBuffer.allocate(size);
            batches.forEach(all::put);
            return new FetchDataInfo(new LogOffsetMetadata(start), MemoryRecords.readableRecords(all.flip()));
        }

        long append(MemoryRecords records) {
            long first = end;
            for (MutableRecordBatch batch : records.batches()) {
                batch.setLastOffset(end + batch.lastOffset() - batch.baseOffset());
                end = batch.nextOffset();
                if (batch.isControlBatch()) continue;
                for (Record record : batch) {
                    appended.addArray().add(hex(record.key())).add(record.hasValue() ? hex(record.value()) : null);
                }
            }
            ByteBuffer buffer = records.buffer();
            byte[] data = new byte[buffer.remaining()];
            buffer.duplicate().get(data);
            batches.add(data);
            return first;
        }
    }

    private static final class MemoryPartition extends Partition {
        MemoryPartition() {
            super(null, 0, null, 0, null, null, null, null, null, null, null, null);
        }

        @Override public LogAppendInfo appendRecordsToLeader(
            MemoryRecords records, AppendOrigin origin, int acks, RequestLocal local, VerificationGuard guard
        ) {
            if (appendError != Errors.NONE) throw appendError.exception();
            log.append(records);
            return null;
        }
    }

    private static final class Replicas extends ReplicaManager {
        MemoryPartition partition;

        Replicas() {
            super(null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
                null, null, null, null, null, null);
        }

        @Override public void tryCompleteActions() { }
        @Override public Option<Object> getMagic(TopicPartition name) { return Option.apply((byte) 2); }
        @Override public Option<UnifiedLog> getLog(TopicPartition name) { return Option.apply(log); }
        @Override public Option<Object> getLogEndOffset(TopicPartition name) { return Option.apply(log.end); }
        @Override public Option<Partition> onlinePartition(TopicPartition name) { return Option.apply(partition); }

        @Override public void maybeStartTransactionVerificationForPartition(
            TopicPartition name, String id, long producer, short producerEpoch, int sequence,
            Function1<Tuple2<Errors, VerificationGuard>, BoxedUnit> callback,
            TransactionSupportedOperation operation
        ) {
            callback.apply(new Tuple2<>(Errors.NONE, VerificationGuard.SENTINEL));
        }

        @Override public void appendRecords(
            long timeout, short acks, boolean internal, AppendOrigin origin,
            scala.collection.Map<TopicPartition, MemoryRecords> entries,
            Function1<scala.collection.Map<TopicPartition, PartitionResponse>, BoxedUnit> callback,
            Option<java.util.concurrent.locks.Lock> lock,
            Function1<scala.collection.Map<TopicPartition, org.apache.kafka.common.record.RecordValidationStats>,
                BoxedUnit> stats,
            RequestLocal local, ActionQueue queue,
            scala.collection.Map<TopicPartition, VerificationGuard> guards
        ) {
            PartitionResponse response = appendError == Errors.NONE
                ? new PartitionResponse(Errors.NONE, log.append(entries.apply(OFFSETS)), -1, 0)
                : new PartitionResponse(appendError);
            if (held == null) answer(callback, response);
            else held.add(new Held(callback, response, lock.get()));
        }
    }

    private record Held(
        Function1<scala.collection.Map<TopicPartition, PartitionResponse>, BoxedUnit> callback,
        PartitionResponse response, java.util.concurrent.locks.Lock lock) { }

    private static void answer(
        Function1<scala.collection.Map<TopicPartition, PartitionResponse>, BoxedUnit> callback,
        PartitionResponse response
    ) {
        callback.apply(CollectionConverters.asScala(java.util.Map.of(OFFSETS, response)));
    }

    /** Ends the appends that wait, as DelayedProduce does: each with the lock of its group. */
    private static void release(Errors error) {
        List<Held> ended = held;
        held = null;
        for (Held one : ended == null ? List.<Held>of() : ended) {
            one.lock.lock();
            try {
                answer(one.callback, error == Errors.NONE ? one.response : new PartitionResponse(error));
            } finally {
                one.lock.unlock();
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static <T> T allocate(Class<T> kind) throws Exception {
        Field field = Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe");
        field.setAccessible(true);
        Object unsafe = field.get(null);
        return (T) unsafe.getClass().getMethod("allocateInstance", Class.class).invoke(unsafe, kind);
    }

    // -- commands

    private static JsonNode run(JsonNode words) throws Exception {
        String group = words.path(1).asText();
        return switch (words.get(0).asText()) {
            case "new" -> {
                create(words.get(1), new ArrayList<>());
                yield JSON.nullNode();
            }
            case "load" -> {
                List<byte[]> batches = new ArrayList<>();
                words.get(2).forEach(batch -> batches.add(HexFormat.of().parseHex(batch.asText())));
                create(words.get(1), batches);
                yield JSON.nullNode();
            }
            case "join" -> join(words);
            case "sync" -> sync(words);
            case "heartbeat" -> {
                ArrayNode result = JSON.createArrayNode();
                coordinator.handleHeartbeat(group, words.get(3).asText(), option(words.get(4)), words.get(2).asInt(),
                    unit(error -> result.add(error.code())));
                yield result.get(0);
            }
            case "leave" -> leave(group, words.get(2));
            case "commit", "commitInTransaction" -> commit(words);
            case "end" -> {
                long producer = words.get(1).asLong();
                boolean commits = words.get(2).asBoolean();
                log.append(MemoryRecords.withEndTransactionMarker(0, clock.now, 0, producer, EPOCH,
                    new EndTransactionMarker(commits ? ControlRecordType.COMMIT : ControlRecordType.ABORT, 0)));
                scala.collection.immutable.Set<Object> partitions =
                    CollectionConverters.asScala(List.<Object>of(0)).toSet();
                coordinator.groupManager().handleTxnCompletion(producer, partitions, commits);
                yield JSON.nullNode();
            }
            case "fetch" -> fetch(words);
            case "deleteOffsets" -> {
                Tuple2<Errors, scala.collection.Map<TopicPartition, Errors>> result =
                    coordinator.handleDeleteOffsets(group, partitions(words.get(2)), RequestLocal.NoCaching());
                yield JSON.createArrayNode().add(result._1().code()).add(errors(result._2()));
            }
            case "describe" -> describe(group);
            case "list" -> {
                ArrayNode groups = JSON.createArrayNode();
                for (GroupOverview one : CollectionConverters.asJava(
                    coordinator.handleListGroups(set(List.of()), set(List.of()))._2())) {
                    groups.addArray().add(one.groupId()).add(one.protocolType()).add(one.state());
                }
                yield groups;
            }
            case "delete" -> {
                List<String> groups = new ArrayList<>();
                words.get(1).forEach(one -> groups.add(one.asText()));
                ObjectNode result = JSON.createObjectNode();
                CollectionConverters.asJava(coordinator.handleDeleteGroups(set(groups), RequestLocal.NoCaching()))
                    .forEach((name, error) -> result.put(name, error.code()));
                yield result;
            }
            case "expire" -> {
                coordinator.groupManager().cleanupGroupMetadata();
                yield JSON.nullNode();
            }
            case "advance" -> {
                timers.advanceClock(words.get(1).asLong());
                yield JSON.nullNode();
            }
            case "error" -> {
                appendError = Errors.valueOf(words.get(1).asText());
                yield JSON.nullNode();
            }
            case "hold" -> {
                if (held == null) held = new ArrayList<>();
                yield JSON.nullNode();
            }
            case "release" -> {
                release(Errors.valueOf(words.get(1).asText()));
                yield JSON.nullNode();
            }
            case "log" -> {
                ArrayNode batches = JSON.createArrayNode();
                log.batches.forEach(batch -> batches.add(hex(batch)));
                yield batches;
            }
            case "leader" -> {
                Option<GroupMetadata> found = coordinator.groupManager().getGroup(group);
                yield JSON.valueToTree(found.isEmpty() ? null : found.get().leaderOrNull());
            }
            case "reload" -> {
                coordinator.onResignation(0, OptionalInt.of(++epoch));
                await(false);
                lead();
                yield JSON.nullNode();
            }
            default -> throw new IllegalArgumentException("no such command: " + words.get(0));
        };
    }

    private static void create(JsonNode settings, List<byte[]> batches) throws Exception {
        if (coordinator != null) coordinator.shutdown();
        // Else the end of a verification has to come on a thread of the request handlers.
        KafkaRequestHandler.setBypassThreadCheck(true);
        Properties properties = new Properties();
        properties.put("zookeeper.connect", "localhost:1");
        properties.put("offsets.topic.num.partitions", "1");
        settings.fields().forEachRemaining(one -> properties.put(one.getKey(), one.getValue().asText()));
        clock.now = START_MS;
        timers = new Timers();
        appendError = Errors.NONE;
        held = null;
        log = allocate(MemoryLog.class);
        log.batches = batches;
        for (byte[] batch : batches) {
            for (MutableRecordBatch one : MemoryRecords.readableRecords(ByteBuffer.wrap(batch)).batches()) {
                log.end = one.nextOffset();
            }
        }
        Replicas replicas = allocate(Replicas.class);
        replicas.partition = allocate(MemoryPartition.class);
        DelayedOperationPurgatory<DelayedHeartbeat> heartbeats =
            new DelayedOperationPurgatory<>("Heartbeat", timers, 0, 1000, false, true);
        DelayedOperationPurgatory<DelayedRebalance> rebalances =
            new DelayedOperationPurgatory<>("Rebalance", timers, 0, 1000, false, true);
        coordinator = GroupCoordinator$.MODULE$.apply(
            KafkaConfig.fromProps(properties), replicas, heartbeats, rebalances, clock, new Metrics());
        coordinator.startup(() -> 1, false);
        epoch = 0;
        lead();
    }

    private static void lead() throws Exception {
        coordinator.onElection(0, ++epoch);
        await(true);
    }

    private static void await(boolean owned) throws Exception {
        while (coordinator.groupManager().isPartitionOwned(0) != owned
            || coordinator.groupManager().isPartitionLoading(0)) {
            Thread.sleep(1);
        }
    }

    private static JsonNode join(JsonNode words) {
        List<Tuple2<String, byte[]>> protocols = new ArrayList<>();
        words.get(11).forEach(one -> protocols.add(
            new Tuple2<>(one.get(0).asText(), HexFormat.of().parseHex(one.get(1).asText()))));
        Function1<JoinGroupResult, BoxedUnit> callback = unit(result -> {
            ArrayNode members = JSON.createArrayNode();
            for (JoinGroupResponseMember member : CollectionConverters.asJava(result.members())) {
                members.addArray().add(member.memberId()).add(member.groupInstanceId()).add(hex(member.metadata()));
            }
            answer(words).add(result.error().code()).add(result.memberId()).add(result.generationId())
                .add(text(result.protocolType())).add(text(result.protocolName())).add(result.leaderId())
                .add(result.skipAssignment()).add(members);
        });
        coordinator.handleJoinGroup(
            words.get(2).asText(), words.get(3).asText(), option(words.get(4)), words.get(5).asBoolean(),
            words.get(6).asBoolean(), words.get(7).asText(), "/127.0.0.1", words.get(9).asInt(),
            words.get(8).asInt(), words.get(10).asText(), CollectionConverters.asScala(protocols).toList(), callback,
            Option.empty(), RequestLocal.NoCaching());
        return JSON.nullNode();
    }

    private static JsonNode sync(JsonNode words) {
        java.util.Map<String, byte[]> assignments = new java.util.HashMap<>();
        words.get(8).fields().forEachRemaining(
            one -> assignments.put(one.getKey(), HexFormat.of().parseHex(one.getValue().asText())));
        Function1<SyncGroupResult, BoxedUnit> callback = unit(result ->
            answer(words).add(result.error().code()).add(text(result.protocolType()))
                .add(text(result.protocolName())).add(hex(result.memberAssignment())));
        coordinator.handleSyncGroup(
            words.get(2).asText(), words.get(3).asInt(), words.get(4).asText(), option(words.get(6)),
            option(words.get(7)), option(words.get(5)), CollectionConverters.asScala(assignments), callback,
            RequestLocal.NoCaching());
        return JSON.nullNode();
    }

    private static JsonNode leave(String group, JsonNode members) {
        List<MemberIdentity> leaving = new ArrayList<>();
        members.forEach(one -> leaving.add(new MemberIdentity().setMemberId(one.get(0).asText())
            .setGroupInstanceId(one.get(1).isNull() ? null : one.get(1).asText())));
        ArrayNode answer = JSON.createArrayNode();
        coordinator.handleLeaveGroup(group, CollectionConverters.asScala(leaving).toList(), unit(result -> {
            answer.add(result.topLevelError().code());
            ArrayNode left = answer.addArray();
            for (LeaveMemberResponse one : CollectionConverters.asJava(result.memberResponses())) {
                left.add(one.error().code());
            }
        }));
        return answer;
    }

    private static JsonNode commit(JsonNode words) {
        java.util.Map<TopicIdPartition, OffsetAndMetadata> offsets = new java.util.HashMap<>();
        for (JsonNode one : words.get(6)) {
            TopicPartition partition = new TopicPartition(one.get(0).asText(), one.get(1).asInt());
            Option<Object> expires = one.get(4).isNull() ? Option.empty() : Option.apply(one.get(4).asLong());
            offsets.put(new TopicIdPartition(Uuid.ZERO_UUID, partition), new OffsetAndMetadata(
                one.get(2).asLong(), Optional.empty(), one.get(3).asText(), clock.now, expires));
        }
        Function1<scala.collection.immutable.Map<TopicIdPartition, Errors>, BoxedUnit> callback = unit(result -> {
            ObjectNode errors = answers.putObject(words.get(1).asText());
            CollectionConverters.asJava(result).forEach((partition, error) ->
                errors.put(partition.topicPartition().toString(), error.code()));
        });
        if (words.get(0).asText().equals("commitInTransaction")) {
            coordinator.handleTxnCommitOffsets(
                words.get(2).asText(), "a transactional id", words.get(7).asLong(), EPOCH,
                words.get(4).asText(), option(words.get(5)), words.get(3).asInt(),
                scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(offsets)),
                callback, RequestLocal.NoCaching(), (short) 4);
            return JSON.nullNode();
        }
        coordinator.handleCommitOffsets(
            words.get(2).asText(), words.get(4).asText(), option(words.get(5)), words.get(3).asInt(),
            scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(offsets)),
            callback, RequestLocal.NoCaching());
        return JSON.nullNode();
    }

    private static JsonNode fetch(JsonNode words) {
        Option<scala.collection.Seq<TopicPartition>> wanted =
            words.get(3).isNull() ? Option.empty() : Option.apply(partitions(words.get(3)));
        Tuple2<Errors, scala.collection.Map<TopicPartition, OffsetFetchResponse.PartitionData>> result =
            coordinator.handleFetchOffsets(words.get(1).asText(), words.get(2).asBoolean(), wanted);
        ObjectNode offsets = JSON.createObjectNode();
        CollectionConverters.asJava(result._2()).forEach((partition, one) ->
            offsets.putArray(partition.toString()).add(one.offset).add(one.metadata).add(one.error.code()));
        return JSON.createArrayNode().add(result._1().code()).add(offsets);
    }

    private static JsonNode describe(String group) {
        Tuple2<Errors, GroupSummary> result = coordinator.handleDescribeGroup(group);
        GroupSummary summary = result._2();
        ArrayNode members = JSON.createArrayNode();
        for (MemberSummary one : CollectionConverters.asJava(summary.members())) {
            members.addArray().add(one.memberId()).add(text(one.groupInstanceId())).add(one.clientId())
                .add(hex(one.metadata())).add(hex(one.assignment()));
        }
        return JSON.createArrayNode().add(result._1().code()).add(summary.state()).add(summary.protocolType())
            .add(summary.protocol()).add(members);
    }

    // -- values

    private static ArrayNode answer(JsonNode words) {
        return answers.putArray(words.get(1).asText());
    }

    private static <T> Function1<T, BoxedUnit> unit(java.util.function.Consumer<T> consumer) {
        return value -> {
            consumer.accept(value);
            return BoxedUnit.UNIT;
        };
    }

    private static JsonNode errors(scala.collection.Map<TopicPartition, Errors> errors) {
        ObjectNode result = JSON.createObjectNode();
        CollectionConverters.asJava(errors).forEach((name, error) -> result.put(name.toString(), error.code()));
        return result;
    }

    private static scala.collection.Seq<TopicPartition> partitions(JsonNode names) {
        List<TopicPartition> partitions = new ArrayList<>();
        names.forEach(one -> partitions.add(new TopicPartition(one.get(0).asText(), one.get(1).asInt())));
        return CollectionConverters.asScala(partitions);
    }

    private static scala.collection.immutable.Set<String> set(List<String> texts) {
        return CollectionConverters.asScala(texts).toSet();
    }

    private static Option<String> option(JsonNode text) {
        return text.isNull() ? Option.empty() : Option.apply(text.asText());
    }

    private static String text(Option<String> option) {
        return option.isEmpty() ? null : option.get();
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return hex(bytes);
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode reply = JSON.createObjectNode();
            answers = reply.putObject("answers");
            appended = reply.putArray("appended");
            try {
                reply.set("result", run(JSON.readTree(line)));
            } catch (Throwable e) {
                reply.put("error", e.toString());
            }
            out.println(reply);
            out.flush();
        }
        System.exit(0);
    }
}
