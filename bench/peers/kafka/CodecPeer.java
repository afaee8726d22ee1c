import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Measures kafka-clients' own message classes on one request body.
 *
 *     java ... CodecPeer FILE API_KEY VERSION
 *
 * FILE holds a request body without its header. Prints "ready" when the body was read, written again and found
 * unchanged, and then answers each line of standard input with the milliseconds of one
 *
 *     decode      bytes to message objects
 *     encode      those objects to bytes: sizing and writing, into a buffer that exists already
 */
public final class CodecPeer {
    private final ApiMessageType type;
    private final short version;
    private final ByteBuffer body;
    private final ByteBuffer out;
    private ApiMessage message;

    private CodecPeer(byte[] body, short apiKey, short version) {
        this.type = ApiMessageType.fromApiKey(apiKey);
        this.version = version;
        this.body = ByteBuffer.wrap(body);
        this.out = ByteBuffer.allocate(body.length);
    }

    public static void main(String[] arguments) throws Exception {
        CodecPeer peer = new CodecPeer(Files.readAllBytes(Path.of(arguments[0])),
            Short.parseShort(arguments[1]), Short.parseShort(arguments[2]));
        peer.decode();
        peer.encode();
        if (!peer.out.flip().equals(peer.body.rewind())) {
            throw new IllegalStateException("written otherwise than read");
        }
        System.out.println("ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            long begin = System.nanoTime();
            switch (line) {
                case "decode": peer.decode(); break;
                case "encode": peer.encode(); break;
                default: throw new IllegalArgumentException("no such command: " + line);
            }
            System.out.printf("%.4f%n", (System.nanoTime() - begin) / 1e6);
        }
    }

    private void decode() {
        ApiMessage read = type.newRequest();
        read.read(new ByteBufferAccessor(body.rewind()), version);
        message = read;
    }

    private void encode() {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        // A request needs its size before the first byte; sizing also fills the cache.
        message.size(cache, version);
        message.write(new ByteBufferAccessor(out.clear()), cache, version);
    }
}
