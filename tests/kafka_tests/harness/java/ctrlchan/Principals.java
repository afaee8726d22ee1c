package ctrlchan;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSession;
import javax.security.auth.x500.X500Principal;
import javax.security.sasl.SaslServer;
import org.apache.kafka.common.security.auth.AuthenticationContext;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;
import org.apache.kafka.common.security.auth.SaslAuthenticationContext;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.auth.SslAuthenticationContext;
import org.mockito.Mockito;

/**
 * Lets the principal builders of tests, classes of this JVM, name the peers of our brokers: principals.py asks here.
 * A question and its answer are lines of JSON; a connection has one of each.
 */
public final class Principals {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Principals() { }

    /** The path of the socket. */
    public static String path() {
        return Started.PATH;
    }

    private static final class Started {
        static final String PATH = start();

        private static String start() {
            try {
                Path path = Path.of(System.getProperty("ctrlchan.fork.server"))
                    .resolveSibling("principals-" + ProcessHandle.current().pid());
                ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
                server.bind(UnixDomainSocketAddress.of(path));
                path.toFile().deleteOnExit();
                Thread thread = new Thread(() -> serve(server), "ctrlchan-principals");
                thread.setDaemon(true);
                thread.start();
                return path.toString();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    private static void serve(ServerSocketChannel server) {
        while (true) {
            try (SocketChannel connection = server.accept()) {
                String line = new BufferedReader(new InputStreamReader(Channels.newInputStream(connection), StandardCharsets.UTF_8)).readLine();
                ByteBuffer answer = ByteBuffer.wrap((answer(line) + "\n").getBytes(StandardCharsets.UTF_8));
                while (answer.hasRemaining())
                    connection.write(answer);
            } catch (IOException e) {
                // The broker has ended: it needs no answer.
            }
        }
    }

    private static String answer(String line) throws IOException {
        try {
            KafkaPrincipal principal = principalOf(JSON.readTree(line));
            return JSON.writeValueAsString(Map.of("type", principal.getPrincipalType(), "name", principal.getName()));
        } catch (Exception | AssertionError e) {
            return JSON.writeValueAsString(Map.of("error", e.toString()));
        }
    }

    private static KafkaPrincipal principalOf(JsonNode question) throws Exception {
        KafkaPrincipalBuilder builder =
            (KafkaPrincipalBuilder) Class.forName(question.get("class").asText()).getDeclaredConstructor().newInstance();
        return builder.build(contextOf(question));
    }

    private static AuthenticationContext contextOf(JsonNode question) throws Exception {
        String listener = question.get("listener").asText();
        InetAddress address = InetAddress.getByName(question.get("host").asText());
        SecurityProtocol protocol = SecurityProtocol.forName(question.get("protocol").asText());
        switch (protocol) {
            case PLAINTEXT:
                return new PlaintextAuthenticationContext(address, listener);
            case SSL:
                return new SslAuthenticationContext(session(question), address, listener);
            default:
                SaslServer server = Mockito.mock(SaslServer.class);
                Mockito.when(server.getAuthorizationID()).thenReturn(question.get("user").asText());
                return protocol == SecurityProtocol.SASL_SSL
                    ? new SaslAuthenticationContext(server, protocol, address, listener, java.util.Optional.of(session(question)))
                    : new SaslAuthenticationContext(server, protocol, address, listener);
        }
    }

    private static SSLSession session(JsonNode question) throws SSLPeerUnverifiedException {
        SSLSession session = Mockito.mock(SSLSession.class);
        JsonNode name = question.get("certificateName");
        if (name.isNull())
            Mockito.when(session.getPeerPrincipal()).thenThrow(new SSLPeerUnverifiedException("peer not authenticated"));
        else
            Mockito.when(session.getPeerPrincipal()).thenReturn(new X500Principal(name.asText()));
        return session;
    }
}
