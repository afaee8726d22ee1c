// Kafka's own managers of client quotas on a stopped clock: each line of standard input is answered by a line.
// Words are separated by tabs; names are URL-encoded.
//
//   begin                                             ->  ok: there have been no quotas and no requests
//   limit <user> <client id> <4 bounds>               ->  ok; a name is "-" for no such part, "<default>" for the default;
//                                                         a bound is "-" for none
//   produce|fetch|request <ms> <user> <client id> <value>  ->  throttle time; a throttled Fetch is taken back
//   window <user> <client id>                         ->  how many bytes a Fetch may have
//   strict|permissive <ms> <user> <client id> <mutations>  ->  throttle time of a quota that was made for this request
//   bound <bytes in a second>                         ->  ok: the replication quota; "-" for none
//   replicate <ms> <bytes>                            ->  whether the replication quota is exceeded then, and the rate

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import kafka.server.ClientQuotaManager;
import kafka.server.ClientRequestQuotaManager;
import kafka.server.ControllerMutationQuota;
import kafka.server.ControllerMutationQuotaManager;
import kafka.server.QuotaType;
import kafka.server.ReplicationQuotaManager;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.config.ReplicationQuotaManagerConfig;
import scala.Option;

public final class QuotaOracle {
    /** What a broker has from its start (DynamicBrokerConfig). */
    private static final Quota NO_BOUND = Quota.upperBound(Long.MAX_VALUE);

    private final StoppedTime time = new StoppedTime();
    private final ClientQuotaManager produce;
    private final ClientQuotaManager fetch;
    private final ClientRequestQuotaManager request;
    private final ControllerMutationQuotaManager mutation;
    private final ReplicationQuotaManager replication;
    private final Metrics metrics;

    private QuotaOracle() {
        metrics = new Metrics(new MetricConfig(), time);
        ClientQuotaManagerConfig config = new ClientQuotaManagerConfig(11, 1);
        produce = new ClientQuotaManager(config, metrics, QuotaType.Produce$.MODULE$, time, "", Option.empty());
        fetch = new ClientQuotaManager(config, metrics, QuotaType.Fetch$.MODULE$, time, "", Option.empty());
        request = new ClientRequestQuotaManager(config, metrics, time, "", Option.empty());
        mutation = new ControllerMutationQuotaManager(config, metrics, time, "", Option.empty());
        ReplicationQuotaManagerConfig replicas = new ReplicationQuotaManagerConfig(11, 1);
        replication = new ReplicationQuotaManager(replicas, metrics, QuotaType.LeaderReplication$.MODULE$, time);
        replication.updateQuota(NO_BOUND);
    }

    public static void main(String[] arguments) throws Exception {
        QuotaOracle oracle = new QuotaOracle();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals("begin")) {
                oracle = new QuotaOracle();
                System.out.println("ok");
                continue;
            }
            System.out.println(oracle.answer(line.split("\t", -1)));
        }
        // Threads of the managers still run.
        System.exit(0);
    }

    private String answer(String[] words) throws Exception {
        if (words[0].equals("limit")) {
            ClientQuotaManager[] managers = {produce, fetch, request, mutation};
            Option<String> user = part(words[1]);
            Option<String> client = part(words[2]);
            Option<String> name = client.isEmpty() ? client : Option.apply(Sanitizer.desanitize(client.get()));
            for (int i = 0; i < managers.length; i++) {
                String bound = words[3 + i];
                Option<Quota> quota = bound.equals("-")
                    ? Option.empty()
                    : Option.apply(new Quota(Double.parseDouble(bound), true));
                managers[i].updateQuota(user, name, client, quota);
            }
            return "ok";
        }
        if (words[0].equals("bound")) {
            replication.updateQuota(words[1].equals("-") ? NO_BOUND : Quota.upperBound(Double.parseDouble(words[1])));
            return "ok";
        }
        if (words[0].equals("replicate")) {
            time.ms = Long.parseLong(words[1]);
            replication.record(Long.parseLong(words[2]));
            Object rate = metrics.metric(metrics.metricName("byte-rate", "LeaderReplication")).metricValue();
            return replication.isQuotaExceeded() + " " + rate;
        }
        if (words[0].equals("window")) {
            return String.valueOf((int) fetch.getMaxValueInQuotaWindow(session(words[1]), decoded(words[2])));
        }
        time.ms = Long.parseLong(words[1]);
        Session session = session(words[2]);
        String client = decoded(words[3]);
        double value = Double.parseDouble(words[4]);
        switch (words[0]) {
            case "produce":
                return String.valueOf(produce.maybeRecordAndGetThrottleTimeMs(session, client, value, time.ms));
            case "fetch":
                int ms = fetch.maybeRecordAndGetThrottleTimeMs(session, client, value, time.ms);
                if (ms > 0) {
                    fetch.recordNoThrottle(session, client, -value);
                }
                return String.valueOf(ms);
            case "request":
                return String.valueOf(request.maybeRecordAndGetThrottleTimeMs(
                    session, client, value * ClientRequestQuotaManager.NanosToPercentagePerSecond(), time.ms));
            default:
                ControllerMutationQuota quota = words[0].equals("strict")
                    ? mutation.newStrictQuotaFor(session, client)
                    : mutation.newPermissiveQuotaFor(session, client);
                try {
                    quota.record(value);
                } catch (ThrottlingQuotaExceededException exceeded) {
                    return String.valueOf(exceeded.throttleTimeMs());
                }
                return String.valueOf(quota.throttleTime());
        }
    }

    private static Option<String> part(String word) {
        return word.equals("-") ? Option.empty() : Option.apply(word.equals("<default>") ? word : sanitized(word));
    }

    private static String sanitized(String word) {
        return Sanitizer.sanitize(decoded(word));
    }

    private static String decoded(String word) {
        return URLDecoder.decode(word, StandardCharsets.UTF_8);
    }

    private static Session session(String user) throws Exception {
        KafkaPrincipal principal = new KafkaPrincipal(KafkaPrincipal.USER_TYPE, decoded(user));
        return new Session(principal, InetAddress.getLoopbackAddress());
    }
}
