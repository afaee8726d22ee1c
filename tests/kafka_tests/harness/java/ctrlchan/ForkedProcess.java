package ctrlchan;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * A `ctrlchan` command that the fork server runs (fork_server.py). Its socket's path is the system property
 * `ctrlchan.fork.server`. A process has a connection of its own: the first line to the fork server says what to run, later
 * ones are `stop` (SIGTERM) and `kill`; what comes back is the command's standard output, until the process has ended.
 * The end of this JVM closes the connection, and so kills the process.
 */
public final class ForkedProcess {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final List<String> arguments;
    private final Path log;
    private final SocketChannel channel;
    private final BufferedReader output;
    private final CountDownLatch ended = new CountDownLatch(1);

    private ForkedProcess(List<String> arguments, Path log) throws IOException {
        this.arguments = arguments;
        this.log = log;
        channel = SocketChannel.open(UnixDomainSocketAddress.of(System.getProperty("ctrlchan.fork.server")));
        output = new BufferedReader(new InputStreamReader(new ChannelInput(channel), StandardCharsets.UTF_8));
    }

    /** Starts `ctrlchan arguments...`; its standard error is appended to `log`. */
    public static ForkedProcess start(List<String> arguments, Path log) {
        try {
            ForkedProcess started = new ForkedProcess(arguments, log);
            started.send(JSON.writeValueAsString(Map.of(
                "arguments", arguments, "log", log.toString(), "environment", kerberos(log))));
            return started;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Variables of C's Kerberos library for what a KDC of the test has set for Java's. */
    private static Map<String, String> kerberos(Path log) {
        String file = System.getProperty("java.security.krb5.conf");
        return file == null ? Map.of() : Map.of("KRB5_CONFIG", file, "KRB5RCACHENAME", "file2:" + log + ".replays");
    }

    /** Waits for the first line of its standard output. The lines after it are ignored. */
    public String firstLine() {
        String line;
        try {
            line = output.readLine();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        Thread reader = new Thread(this::ignoreOutput, "ctrlchan-output");
        reader.setDaemon(true);
        reader.start();
        if (line == null)
            throw new IllegalStateException("`ctrlchan " + String.join(" ", arguments) + "` ended: " + lastWords());
        return line;
    }

    /** Sends SIGTERM and waits for the end; kills the process after `timeout`. */
    public void stop(Duration timeout) {
        try {
            send("stop");
            if (!ended.await(timeout.toMillis(), TimeUnit.MILLISECONDS)) {
                send("kill");
                ended.await();
            }
        } catch (IOException e) {
            // It has ended.
        } catch (InterruptedException e) {
            close();
            Thread.currentThread().interrupt();
        }
        close();
    }

    private void send(String line) throws IOException {
        ByteBuffer bytes = StandardCharsets.UTF_8.encode(line + "\n");
        while (bytes.hasRemaining())
            channel.write(bytes);
    }

    private void ignoreOutput() {
        try {
            while (output.readLine() != null)
                ;
        } catch (IOException e) {
            // It has ended.
        }
        ended.countDown();
    }

    private void close() {
        try {
            channel.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private String lastWords() {
        try {
            return Files.readString(log);
        } catch (IOException e) {
            return e.toString();
        }
    }

    /** Reads a channel. The JDK's own streams of a channel lock it, so that nothing is written while one reads. */
    private static final class ChannelInput extends InputStream {
        private final SocketChannel channel;

        ChannelInput(SocketChannel channel) {
            this.channel = channel;
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] bytes, int offset, int length) throws IOException {
            return channel.read(ByteBuffer.wrap(bytes, offset, length));
        }
    }
}
