// Runs Kafka's own message classes: reads one line from standard input and answers with one line.
//
//   write <Message> <version> <json>   ->  ok <hex>                 JsonConverter.read, then Message.write
//   read  <Message> <version> <hex>    ->  ok <remaining> <json>    Message.read, then JsonConverter.write
//   anything that throws               ->  error <exception class> <message on one line>
//
// <Message> is UpdateMetadataRequest, RequestHeader, ...; <remaining> counts the bytes that were not read.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;

public final class Oracle {
    private static final String PACKAGE = "org.apache.kafka.common.message.";

    /** The generated class of one message and its generated JSON converter. */
    private record Generated(Class<?> data, Class<?> converter) {
        static Generated of(String message) {
            try {
                return new Generated(
                    Class.forName(PACKAGE + message + "Data"),
                    Class.forName(PACKAGE + message + "DataJsonConverter"));
            } catch (ClassNotFoundException e) {
                throw new IllegalArgumentException("no such message: " + message);
            }
        }

        Message fromJson(JsonNode json, short version) throws Throwable {
            try {
                return (Message) converter.getMethod("read", JsonNode.class, short.class)
                    .invoke(null, json, version);
            } catch (InvocationTargetException e) {
                throw e.getCause();
            }
        }

        JsonNode toJson(Message message, short version) throws Throwable {
            try {
                return (JsonNode) converter.getMethod("write", data, short.class).invoke(null, message, version);
            } catch (InvocationTargetException e) {
                throw e.getCause();
            }
        }

        Message fromBytes(Readable bytes, short version) throws Throwable {
            try {
                return (Message) data.getConstructor(Readable.class, short.class).newInstance(bytes, version);
            } catch (InvocationTargetException e) {
                throw e.getCause();
            }
        }
    }

    private final ObjectMapper json = new ObjectMapper();
    private final Map<String, Generated> known = new HashMap<>();

    private String answer(String line) {
        try {
            String[] words = line.split(" ", 4);
            Generated generated = known.computeIfAbsent(words[1], Generated::of);
            short version = Short.parseShort(words[2]);
            return switch (words[0]) {
                case "write" -> write(generated, version, words[3]);
                case "read" -> read(generated, version, words[3]);
                default -> throw new IllegalArgumentException("no such operation: " + words[0]);
            };
        } catch (Throwable e) {
            String text = String.valueOf(e.getMessage()).replaceAll("\\s+", " ");
            return "error " + e.getClass().getSimpleName() + " " + text;
        }
    }

    private String write(Generated generated, short version, String payload) throws Throwable {
        Message message = generated.fromJson(json.readTree(payload), version);
        ByteBuffer bytes = MessageUtil.toByteBuffer(message, version);
        return "ok " + HexFormat.of().formatHex(bytes.array(), bytes.position(), bytes.limit());
    }

    private String read(Generated generated, short version, String payload) throws Throwable {
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(payload));
        Message message = generated.fromBytes(new ByteBufferAccessor(bytes), version);
        return "ok " + bytes.remaining() + " " + json.writeValueAsString(generated.toJson(message, version));
    }

    public static void main(String[] arguments) throws IOException {
        Oracle oracle = new Oracle();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.write(oracle.answer(line));
            out.newLine();
            out.flush();
        }
    }
}
