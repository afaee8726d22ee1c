import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import kafka.api.LeaderAndIsr$;
import kafka.cluster.Broker;
import kafka.cluster.EndPoint;
import kafka.controller.AbstractControllerBrokerRequestBatch;
import kafka.controller.ControllerChannelManager;
import kafka.controller.ControllerContext;
import kafka.controller.LeaderIsrAndControllerEpoch;
import kafka.controller.ReplicaAssignment;
import kafka.controller.StateChangeLogger;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.feature.Features;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractControlRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.LeaderAndIsrResponse;
import org.apache.kafka.common.requests.StopReplicaResponse;
import org.apache.kafka.common.requests.UpdateMetadataResponse;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.LeaderRecoveryState;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/**
 * Runs Kafka's own channel to the brokers: its ControllerChannelManager, its request batch and its controller
 * context with the measured cluster (the same as in bench/workload.py). Nothing of Kafka is changed; responses
 * count down a latch, where a controller would put them into its event queue.
 *
 *     java ... ControllerPeer PORT BROKERS TOPICS PARTITIONS_PER_TOPIC HOST
 *
 * The address of every broker is HOST:PORT, a sink. Prints "ready" and then reads commands from standard
 * input, as bench/controller.py does, and answers each with one line of milliseconds.
 *
 *     start       make the channel and wait until every broker has acknowledged an update without partitions
 *     push        UpdateMetadata of every partition to every broker: "BUILD SEND TOTAL", from the beginning to
 *                 the end of adding, to the end of sending, and to the last response
 *     awaited N   N times one partition to every broker, each time after all have answered
 *     queued N    the same N times without waiting in between
 */
public final class ControllerPeer {
    private static final int CONTROLLER_ID = 0;
    private static final int CONTROLLER_EPOCH = 3;
    private static final int LEADER_EPOCH = 5;
    private static final int PARTITION_EPOCH = 7;
    private static final int FIRST_BROKER_EPOCH = 1000;
    private static final int REPLICATION = 3;
    private static final int RACKS = 3;
    /** Leaders of neighbouring topics are not on the same broker. */
    private static final int TOPIC_STRIDE = 7;

    private final KafkaConfig config = config();
    private final ControllerContext context = new ControllerContext();
    private final StateChangeLogger log =
        new StateChangeLogger(CONTROLLER_ID, true, Option.apply((Object) CONTROLLER_EPOCH));
    private final ControllerChannelManager channel =
        new ControllerChannelManager(() -> CONTROLLER_EPOCH, config, Time.SYSTEM, new Metrics(), log, Option.empty());
    private final Batch batch = new Batch();
    private final List<Broker> brokers = new ArrayList<>();
    private final Seq<Object> brokerIds;
    private final scala.collection.Set<TopicPartition> allPartitions;
    private final scala.collection.Set<TopicPartition> onePartition;
    /** Counts the responses that are still to come. */
    private volatile CountDownLatch unanswered;

    private ControllerPeer(String host, int port, int brokerCount, int topics, int partitionsPerTopic) {
        addBrokers(host, port, brokerCount);
        Set<TopicPartition> partitions = addPartitions(brokerCount, topics, partitionsPerTopic);
        List<Object> ids = new ArrayList<>();
        brokers.forEach(broker -> ids.add(broker.id()));
        brokerIds = CollectionConverters.asScala(ids).toSeq();
        allPartitions = CollectionConverters.asScala(partitions);
        onePartition = CollectionConverters.asScala(Set.of(partitions.iterator().next()));
    }

    public static void main(String[] arguments) throws Exception {
        int[] numbers = List.of(arguments).subList(0, 4).stream().mapToInt(Integer::parseInt).toArray();
        ControllerPeer peer = new ControllerPeer(arguments[4], numbers[0], numbers[1], numbers[2], numbers[3]);
        System.out.println("ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            System.out.println(peer.obey(line.split(" ")));
        }
        // The channel's threads are no daemon threads, and there is nothing to save.
        Runtime.getRuntime().halt(0);
    }

    private String obey(String[] command) throws InterruptedException {
        switch (command[0]) {
            case "start": return String.format("%.3f", start());
            case "push": return push();
            case "awaited": return String.format("%.3f", awaited(Integer.parseInt(command[1])));
            case "queued": return String.format("%.3f", queued(Integer.parseInt(command[1])));
            default: throw new IllegalArgumentException("no such command: " + command[0]);
        }
    }

    // -- the measured work

    private double start() throws InterruptedException {
        long begin = System.nanoTime();
        channel.startup(scala.collection.immutable.Set$.MODULE$.from(CollectionConverters.asScala(brokers)));
        unanswered = new CountDownLatch(brokers.size());
        batch.newBatch();
        batch.addUpdateMetadataRequestForBrokers(brokerIds);
        batch.sendRequestsToBrokers(CONTROLLER_EPOCH);
        unanswered.await();
        return millisecondsSince(begin);
    }

    private String push() throws InterruptedException {
        unanswered = new CountDownLatch(brokers.size());
        long begin = System.nanoTime();
        batch.newBatch();
        batch.addUpdateMetadataRequestForBrokers(brokerIds, allPartitions);
        double built = millisecondsSince(begin);
        batch.sendRequestsToBrokers(CONTROLLER_EPOCH);
        double sent = millisecondsSince(begin);
        unanswered.await();
        return String.format("%.3f %.3f %.3f", built, sent, millisecondsSince(begin));
    }

    private double awaited(int rounds) throws InterruptedException {
        long begin = System.nanoTime();
        for (int round = 0; round < rounds; round++) {
            unanswered = new CountDownLatch(brokers.size());
            sendOne();
            unanswered.await();
        }
        return millisecondsSince(begin);
    }

    private double queued(int rounds) throws InterruptedException {
        unanswered = new CountDownLatch(brokers.size() * rounds);
        long begin = System.nanoTime();
        for (int round = 0; round < rounds; round++) {
            sendOne();
        }
        unanswered.await();
        return millisecondsSince(begin);
    }

    private void sendOne() {
        batch.newBatch();
        batch.addUpdateMetadataRequestForBrokers(brokerIds, onePartition);
        batch.sendRequestsToBrokers(CONTROLLER_EPOCH);
    }

    private static double millisecondsSince(long begin) {
        return (System.nanoTime() - begin) / 1e6;
    }

    // -- the measured cluster

    private static KafkaConfig config() {
        Properties properties = new Properties();
        properties.put("broker.id", Integer.toString(CONTROLLER_ID));
        // Required, but never connected to.
        properties.put("zookeeper.connect", "127.0.0.1:1");
        // A slow machine must not turn a measured round into retries.
        properties.put("controller.socket.timeout.ms", "120000");
        properties.put("request.timeout.ms", "120000");
        return KafkaConfig.fromProps(properties);
    }

    private void addBrokers(String host, int port, int count) {
        Map<Broker, Object> epochs = new HashMap<>();
        for (int id = 1; id <= count; id++) {
            List<EndPoint> endpoints = new ArrayList<>();
            for (SecurityProtocol protocol : List.of(SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL)) {
                endpoints.add(new EndPoint(host, port, ListenerName.forSecurityProtocol(protocol), protocol));
            }
            Broker broker = new Broker(id, CollectionConverters.asScala(endpoints).toSeq(),
                Option.apply("r" + id % RACKS), Features.emptySupportedFeatures());
            brokers.add(broker);
            epochs.put(broker, (long) FIRST_BROKER_EPOCH + id);
        }
        context.setLiveBrokers(scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(epochs)));
    }

    private Set<TopicPartition> addPartitions(int brokerCount, int topics, int partitionsPerTopic) {
        Seq<Object> none = CollectionConverters.asScala(List.<Object>of()).toSeq();
        Set<TopicPartition> partitions = new HashSet<>();
        Set<String> names = new HashSet<>();
        for (int topic = 0; topic < topics; topic++) {
            names.add(topicName(topic));
        }
        context.setAllTopics(scala.collection.immutable.Set$.MODULE$.from(CollectionConverters.asScala(names)));
        for (int topic = 0; topic < topics; topic++) {
            String name = topicName(topic);
            context.addTopicId(name, Uuid.randomUuid());
            for (int index = 0; index < partitionsPerTopic; index++) {
                List<Object> ids = new ArrayList<>();
                for (int replica = 0; replica < REPLICATION; replica++) {
                    int first = topic * TOPIC_STRIDE + index;
                    ids.add((first + replica) % Math.max(brokerCount, REPLICATION) + 1);
                }
                scala.collection.immutable.List<Object> replicas = CollectionConverters.asScala(ids).toList();
                TopicPartition partition = new TopicPartition(name, index);
                partitions.add(partition);
                context.updatePartitionFullReplicaAssignment(partition, new ReplicaAssignment(replicas, none, none));
                context.putPartitionLeadershipInfo(partition, new LeaderIsrAndControllerEpoch(
                    LeaderAndIsr$.MODULE$.apply((Integer) ids.get(0), LEADER_EPOCH, replicas,
                        LeaderRecoveryState.RECOVERED, PARTITION_EPOCH),
                    CONTROLLER_EPOCH));
            }
        }
        return partitions;
    }

    private static String topicName(int topic) {
        return String.format("metrics-topic-%06d", topic);
    }

    /** Kafka's batch with the context and the channel above. */
    private final class Batch extends AbstractControllerBrokerRequestBatch {
        Batch() {
            super(config, () -> context, config::interBrokerProtocolVersion, log, false);
        }

        @Override
        public void sendRequest(int brokerId, AbstractControlRequest.Builder<? extends AbstractControlRequest> request,
                                Function1<AbstractResponse, BoxedUnit> callback) {
            channel.sendRequest(brokerId, request, callback);
        }

        @Override
        public Function1<AbstractResponse, BoxedUnit> sendRequest$default$3() {
            return null;
        }

        @Override
        public void handleUpdateMetadataResponse(UpdateMetadataResponse response, int brokerId) {
            if (response.error() != Errors.NONE) {
                System.err.println("broker " + brokerId + " answered " + response.error());
                Runtime.getRuntime().halt(1);
            }
            unanswered.countDown();
        }

        @Override
        public void handleLeaderAndIsrResponse(LeaderAndIsrResponse response, int brokerId) {
            throw new IllegalStateException("no LeaderAndIsr was sent");
        }

        @Override
        public void handleStopReplicaResponse(StopReplicaResponse response, int brokerId,
                                              scala.collection.immutable.Map<TopicPartition, Errors> errors) {
            throw new IllegalStateException("no StopReplica was sent");
        }
    }
}
