// Reads values of settings as Kafka does: each line of standard input is answered by a line. Words are separated by
// tabs, and values are URL-encoded.
//
//   parse <broker or topic> <name> <value>  ->  ok <value>, or refused <why>
//
// A value of a broker is one with which a broker of Kafka starts: with all other settings at their defaults, the
// checks of KafkaConfig and of the LogConfig that KafkaServer makes of it are passed.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.storage.internals.log.LogConfig;

public final class SettingsOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            System.out.println(answer(words[1], words[2], URLDecoder.decode(words[3], StandardCharsets.UTF_8)));
        }
    }

    private static String answer(String kind, String name, String text) {
        try {
            Object value = kind.equals("topic") ? ofTopic(name, text) : ofBroker(name, text);
            return "ok\t" + encoded(value instanceof List<?> list ? String.join(",", (List<String>) list) : value);
        } catch (RuntimeException refused) {
            return "refused\t" + encoded(refused.getMessage());
        }
    }

    private static Object ofTopic(String name, String text) {
        Properties properties = new Properties();
        properties.setProperty(name, text);
        LogConfig.validate(properties);
        return ConfigDef.parseType(name, text, LogConfig.configDefCopy().configKeys().get(name).type);
    }

    private static Object ofBroker(String name, String text) {
        KafkaConfig config = new KafkaConfig(Map.of("zookeeper.connect", "localhost:2181", name, text), false);
        new LogConfig(config.extractLogConfigMap());
        return config.valuesWithPrefixOverride("").get(name);
    }

    private static String encoded(Object value) {
        return URLEncoder.encode(String.valueOf(value), StandardCharsets.UTF_8);
    }
}
