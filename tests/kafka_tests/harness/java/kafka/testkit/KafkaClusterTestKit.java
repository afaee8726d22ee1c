package kafka.testkit;

import java.io.IOException;
import java.nio.file.Files;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import kafka.server.BrokerServer;
import kafka.server.KafkaConfig;
import kafka.server.KafkaServer;
import kafka.zk.EmbeddedZookeeper;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.fault.MockFaultHandler;
import org.mockito.Mockito;
import scala.Option;

/**
 * The cluster of Connect's and MirrorMaker's tests: ctrlchan brokers with a ZooKeeper, in place of Kafka's brokers with KRaft.
 * Only what Connect's EmbeddedKafkaCluster uses is here.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    private static final String LISTENER = "EXTERNAL";

    private final Map<Integer, Properties> settings;
    private final Map<Integer, KafkaServer> servers = new TreeMap<>();
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private final MockFaultHandler nonFatalFaultHandler = new MockFaultHandler("nonFatal");
    private EmbeddedZookeeper zookeeper;

    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, Object> configs = new HashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            configs.put(key, value);
            return this;
        }

        public KafkaClusterTestKit build() throws Exception {
            Map<Integer, Properties> settings = new TreeMap<>();
            for (int id : nodes.brokerNodes().keySet())
                settings.put(id, settingsOf(id));
            return new KafkaClusterTestKit(settings);
        }

        private Properties settingsOf(int id) throws IOException {
            Properties settings = new Properties();
            settings.put("listener.security.protocol.map", LISTENER + ":PLAINTEXT,CONTROLLER:PLAINTEXT");
            settings.put("listeners", LISTENER + "://localhost:0");
            settings.put("inter.broker.listener.name", LISTENER);
            configs.forEach((key, value) -> {
                if (!key.startsWith("controller."))
                    settings.put(key, value.toString());
            });
            settings.put("listeners", withoutController(settings.getProperty("listeners")));
            settings.put("broker.id", Integer.toString(id));
            settings.put("log.dirs", Files.createTempDirectory("broker-" + id).toString());
            return settings;
        }

        private static String withoutController(String listeners) {
            return Arrays.stream(listeners.split(",")).filter(one -> !one.startsWith("CONTROLLER:")).collect(Collectors.joining(","));
        }
    }

    private KafkaClusterTestKit(Map<Integer, Properties> settings) {
        this.settings = settings;
    }

    public void format() { }

    public void startup() {
        zookeeper = new EmbeddedZookeeper();
        settings.forEach((id, properties) -> {
            properties.put("zookeeper.connect", "127.0.0.1:" + zookeeper.port());
            KafkaServer server = new KafkaServer(KafkaConfig.fromProps(properties), Time.SYSTEM, Option.empty(), false);
            server.startup();
            servers.put(id, server);
            brokers.put(id, asBrokerServer(server));
        });
    }

    public void waitForReadyBrokers() { }

    public Map<Integer, BrokerServer> brokers() {
        return brokers;
    }

    public String bootstrapServers() {
        return servers.values().stream().map(one -> "localhost:" + one.boundPort(new ListenerName(LISTENER))).collect(Collectors.joining(","));
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return nonFatalFaultHandler;
    }

    @Override
    public void close() {
        servers.values().parallelStream().forEach(KafkaServer::shutdown);
        if (zookeeper != null)
            zookeeper.close();
    }

    private static BrokerServer asBrokerServer(KafkaServer server) {
        return Mockito.mock(BrokerServer.class, call -> {
            switch (call.getMethod().getName()) {
                case "startup":
                    server.startup();
                    return null;
                case "shutdown":
                    server.shutdown(Duration.ofMinutes(1));
                    return null;
                case "awaitShutdown":
                    return null;
                case "brokerState":
                    return server.brokerState();
                case "config":
                    return server.config();
                case "hashCode":
                    return System.identityHashCode(server);
                case "equals":
                    return call.getMock() == call.getArgument(0);
                case "toString":
                    return "a foreign BrokerServer";
                default:
                    throw new UnsupportedOperationException("inside of a broker: BrokerServer." + call.getMethod().getName());
            }
        });
    }
}
