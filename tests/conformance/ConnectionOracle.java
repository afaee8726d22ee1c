// Kafka's own ConnectionQuotas on a stopped clock: each line of standard input is answered by a line. Words are separated
// by tabs. Listeners are EXTERNAL, ADMIN and REPLICATION, the one of brokers, which has no limits of the broker.
//
//   begin <listeners> <samples>                       ->  ok: the first so many listeners, and no connections
//   broker <connections> <rate>                       ->  ok: limits of the broker
//   listener <name> <connections> <rate>              ->  ok: limits of one listener
//   ips <connections> <address> <connections> ...     ->  ok: limits of all addresses, and of some
//   ip_rate <address or -> <rate or ->                ->  ok: a limit of one address or of all others; no limit
//   connect <ms> <listener> <address>                 ->  how long the connection waits, then "admitted 0", "full 0",
//                                                         "many <connections>" or "throttled <ms>"
//   end <listener> <address>                          ->  ok
//   numbers <ms> <address>                            ->  connections of the address, whether other listeners must close
//                                                         one, and the rates: of the broker, of the address, and for each
//                                                         listener its rate and both averages of throttle times
//
// A connection that finds no slot is given up after its wait: Kafka would let it wait for a slot.

import com.yammer.metrics.core.Meter;
import com.yammer.metrics.core.MetricsRegistry;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import kafka.network.ConnectionQuotas;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.stats.Value;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.network.ConnectionThrottledException;
import org.apache.kafka.network.TooManyConnectionsException;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

public final class ConnectionOracle {
    private static final List<String> NAMES = List.of("EXTERNAL", "ADMIN", "REPLICATION");
    private static final String GROUP = "socket-server-metrics";
    private static final String LAST = "last-throttle-time";
    private static final long WAKE_MS = 1;

    /** Passes the throttle time of a connection as soon as it begins to wait, which Kafka asks the nanoseconds for. */
    private final class Waits extends StoppedTime {
        ListenerName waiting = null;
        long waited = 0;

        @Override
        public long nanoseconds() {
            if (waiting != null) {
                waited = last(waiting);
                ms += waited;
                waiting = null;
            }
            return super.nanoseconds();
        }
    }

    private final Waits time = new Waits();
    private final Metrics metrics = new Metrics(new MetricConfig(), time);
    private final Meter meter = new MetricsRegistry().newMeter(ConnectionOracle.class, "blocked", "blocked", TimeUnit.SECONDS);
    private final List<ListenerName> listeners;
    private final KafkaConfig config;
    private final ConnectionQuotas quotas;
    private int mostOfBroker = Integer.MAX_VALUE;

    private ConnectionOracle(int count, String samples) {
        listeners = NAMES.stream().limit(count).map(ListenerName::new).collect(Collectors.toList());
        Properties properties = new Properties();
        properties.put("zookeeper.connect", "nowhere:1");
        properties.put("listeners", listeners.stream().map(one -> one.value() + "://localhost:0").collect(Collectors.joining(",")));
        properties.put("listener.security.protocol.map", "EXTERNAL:PLAINTEXT,ADMIN:PLAINTEXT,REPLICATION:PLAINTEXT");
        properties.put("inter.broker.listener.name", listeners.get(count - 1).value());
        properties.put("quota.window.num", samples);
        config = KafkaConfig.fromProps(properties);
        quotas = new ConnectionQuotas(config, time, metrics);
        for (ListenerName listener : listeners) {
            quotas.addListener(config, listener);
            metrics.getSensor("ConnectionRateThrottleTime-" + listener.value())
                .add(metrics.metricName(LAST, GROUP, Map.of("listener", listener.value())), new Value());
        }
    }

    public static void main(String[] arguments) throws Exception {
        ConnectionOracle[] oracle = {null};
        // Whoever waits looks at the clock again.
        Thread waker = new Thread(() -> {
            while (true) {
                ConnectionOracle now;
                synchronized (oracle) {
                    now = oracle[0];
                }
                if (now != null) {
                    now.wake();
                }
                try {
                    Thread.sleep(WAKE_MS);
                } catch (InterruptedException exception) {
                    return;
                }
            }
        });
        waker.setDaemon(true);
        waker.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("begin")) {
                synchronized (oracle) {
                    oracle[0] = new ConnectionOracle(Integer.parseInt(words[1]), words[2]);
                }
                System.out.println("ok");
                continue;
            }
            System.out.println(oracle[0].answer(words));
        }
        System.exit(0);
    }

    private void wake() {
        int most;
        synchronized (this) {
            most = mostOfBroker;
            quotas.updateBrokerMaxConnections(most);
        }
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "broker":
                synchronized (this) {
                    mostOfBroker = Integer.parseInt(words[1]);
                }
                wake();
                quotas.updateBrokerMaxConnectionRate(Integer.parseInt(words[2]));
                return "ok";
            case "listener":
                quotas.maxConnectionsPerListener().apply(new ListenerName(words[1])).reconfigure(
                    Map.of("max.connections", words[2], "max.connection.creation.rate", words[3]));
                return "ok";
            case "ips":
                Map<String, Object> overrides = new HashMap<>();
                for (int i = 2; i < words.length; i += 2) {
                    overrides.put(words[i], Integer.valueOf(words[i + 1]));
                }
                quotas.updateMaxConnectionsPerIp(Integer.parseInt(words[1]));
                quotas.updateMaxConnectionsPerIpOverride(CollectionConverters.asScala(overrides));
                return "ok";
            case "ip_rate":
                Option<InetAddress> address = words[1].equals("-") ? Option.empty() : Option.apply(InetAddress.getByName(words[1]));
                Option<Object> rate = words[2].equals("-") ? Option.empty() : Option.apply(Integer.valueOf(words[2]));
                quotas.updateIpConnectionRateQuota(address, rate);
                return "ok";
            case "connect":
                time.ms = Long.parseLong(words[1]);
                return connect(new ListenerName(words[2]), InetAddress.getByName(words[3]));
            case "end":
                quotas.dec(new ListenerName(words[1]), InetAddress.getByName(words[2]));
                return "ok";
            default:
                time.ms = Long.parseLong(words[1]);
                return numbers(words[2]);
        }
    }

    private String connect(ListenerName listener, InetAddress address) throws Exception {
        if (!(boolean) call("connectionSlotAvailable", new Class<?>[] {ListenerName.class}, listener)) {
            Class<?>[] types = {ListenerName.class, long.class};
            return call("recordConnectionAndGetThrottleTimeMs", types, listener, time.ms) + " full 0";
        }
        time.waited = 0;
        time.waiting = listener;
        try {
            quotas.inc(listener, address, meter);
            return time.waited + " admitted 0";
        } catch (TooManyConnectionsException exception) {
            // As acceptors do, who close it then.
            quotas.dec(listener, address);
            return time.waited + " many " + exception.count;
        } catch (ConnectionThrottledException exception) {
            return time.waited + " throttled " + exception.throttleTimeMs;
        } finally {
            time.waiting = null;
        }
    }

    private Object call(String name, Class<?>[] types, Object... arguments) throws Exception {
        Method method = ConnectionQuotas.class.getDeclaredMethod(name, types);
        method.setAccessible(true);
        try {
            return method.invoke(quotas, arguments);
        } catch (InvocationTargetException exception) {
            throw (Exception) exception.getCause();
        }
    }

    private String numbers(String address) throws Exception {
        // A look at a rate begins its old samples anew: all addresses are looked at, as on the other side.
        metrics.metrics().values().stream().filter(one -> one.metricName().tags().containsKey("ip")).forEach(KafkaMetric::metricValue);
        StringBuilder found = new StringBuilder();
        found.append(quotas.get(InetAddress.getByName(address)));
        found.append(' ').append(quotas.maxConnectionsExceeded(listeners.get(0)));
        found.append(' ').append(value("broker-connection-accept-rate", Map.of()));
        found.append(' ').append(value("connection-accept-rate", Map.of("ip", address)));
        for (ListenerName listener : listeners) {
            Map<String, String> tags = Map.of("listener", listener.value());
            for (String name : List.of("connection-accept-rate", "connection-accept-throttle-time", "ip-connection-accept-throttle-time")) {
                found.append(' ').append(value(name, tags));
            }
        }
        return found.toString();
    }

    private long last(ListenerName listener) {
        return (long) value(LAST, Map.of("listener", listener.value()));
    }

    private double value(String name, Map<String, String> tags) {
        MetricName key = metrics.metricName(name, GROUP, tags);
        KafkaMetric metric = metrics.metrics().get(key);
        return metric == null ? Double.NaN : (double) metric.metricValue();
    }
}
