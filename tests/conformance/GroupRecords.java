// Runs the classes with which Kafka writes and reads `__consumer_offsets`: one line in, one line out.
//
//   message <Message> <version> <json>                  ->  ok <hex>     the message behind its version
//   key <group> <topic> <partition>                     ->  ok <hex>     GroupMetadataManager.offsetCommitKey
//   key <group>                                         ->  ok <hex>     GroupMetadataManager.groupMetadataKey
//   offset <hex of a value>                             ->  ok <hex>     read, then offsetCommitValue
//   group <hex of a value>                              ->  ok <hex>     read, then groupMetadataValue
//   partition <partitions> <group>                      ->  ok <number>  as GroupMetadataManager.partitionFor
//   anything that throws                                ->  error <exception class> <message on one line>
//
// Names are hex of UTF-8. <Message> is OffsetCommitKey, GroupMetadataValue, ...

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import kafka.common.OffsetAndMetadata;
import kafka.coordinator.group.GroupMetadata;
import kafka.coordinator.group.GroupMetadataManager;
import kafka.coordinator.group.MemberMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.MetadataVersion;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Map;
import scala.jdk.javaapi.CollectionConverters;

public final class GroupRecords {
    private static final String PACKAGE = "org.apache.kafka.coordinator.group.generated.";
    private static final MetadataVersion LATEST = MetadataVersion.latestProduction();

    private static String answer(String line) {
        try {
            String[] words = line.split(" ", 4);
            return "ok " + switch (words[0]) {
                case "message" -> message(words[1], Short.parseShort(words[2]), words[3]);
                case "key" -> hex(words.length == 2
                    ? GroupMetadataManager.groupMetadataKey(text(words[1]))
                    : GroupMetadataManager.offsetCommitKey(
                        text(words[1]), new TopicPartition(text(words[2]), Integer.parseInt(words[3]))));
                case "offset" -> offset(words[1]);
                case "group" -> group(words[1]);
                case "partition" -> String.valueOf(
                    Utils.abs(text(words.length > 2 ? words[2] : "").hashCode()) % Integer.parseInt(words[1]));
                default -> throw new IllegalArgumentException("no such operation: " + words[0]);
            };
        } catch (Throwable e) {
            String text = String.valueOf(e.getMessage()).replaceAll("\\s+", " ");
            return "error " + e.getClass().getSimpleName() + " " + text;
        }
    }

    private static String message(String name, short version, String json) throws Throwable {
        JsonNode tree = new ObjectMapper().readTree(json);
        Object message = Class.forName(PACKAGE + name + "JsonConverter")
            .getMethod("read", JsonNode.class, short.class).invoke(null, tree, version);
        return hex(MessageUtil.toVersionPrefixedBytes(version, (Message) message));
    }

    private static String offset(String value) {
        OffsetAndMetadata offset = GroupMetadataManager.readOffsetMessageValue(buffer(value));
        return hex(GroupMetadataManager.offsetCommitValue(offset, LATEST));
    }

    private static String group(String value) {
        GroupMetadata group = GroupMetadataManager.readGroupMessageValue("group", buffer(value), Time.SYSTEM);
        Map<String, byte[]> assignments = Map$.MODULE$.empty();
        for (MemberMetadata member : CollectionConverters.asJava(group.allMemberMetadata())) {
            assignments = assignments.updated(member.memberId(), member.assignment());
        }
        return hex(GroupMetadataManager.groupMetadataValue(group, assignments, LATEST));
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    private static ByteBuffer buffer(String hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line));
        }
    }
}
