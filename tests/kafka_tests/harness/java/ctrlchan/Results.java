package ctrlchan;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.TestSource;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;

/**
 * Writes a line of JSON for each test that ends, or fails to begin, to the file of the system property `ctrlchan.results`.
 * The JVM ends when its standard input does: whoever started it has ended, then.
 */
public final class Results implements TestExecutionListener {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final OutputStream out;
    private final Map<String, Long> begun = new LinkedHashMap<>();

    public Results() {
        try {
            out = Files.newOutputStream(Path.of(System.getProperty("ctrlchan.results")));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        // Tests may put another stream in its place.
        InputStream input = System.in;
        Thread watch = new Thread(() -> endWith(input), "ctrlchan-input");
        watch.setDaemon(true);
        watch.start();
    }

    private static void endWith(InputStream input) {
        try {
            while (input.read() >= 0)
                ;
        } catch (IOException e) {
            // It has ended.
        }
        Runtime.getRuntime().halt(3);
    }

    @Override
    public synchronized void executionStarted(TestIdentifier test) {
        begun.put(test.getUniqueId(), System.nanoTime());
    }

    @Override
    public synchronized void executionFinished(TestIdentifier test, TestExecutionResult result) {
        boolean passed = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL;
        // A container, such as a class, is worth a line only when its own set-up or tear-down failed.
        if (!test.isTest() && passed)
            return;
        Map<String, Object> line = new LinkedHashMap<>();
        Optional<TestSource> source = test.getSource();
        source.filter(MethodSource.class::isInstance).map(MethodSource.class::cast).ifPresent(method -> {
            line.put("class", method.getClassName());
            line.put("method", method.getMethodName());
        });
        source.filter(ClassSource.class::isInstance).map(ClassSource.class::cast)
            .ifPresent(place -> line.put("class", place.getClassName()));
        line.put("invocation", test.getDisplayName());
        line.put("status", result.getStatus().toString());
        line.put("seconds", (System.nanoTime() - begun.getOrDefault(test.getUniqueId(), System.nanoTime())) / 1e9);
        result.getThrowable().ifPresent(thrown -> {
            StringWriter trace = new StringWriter();
            thrown.printStackTrace(new PrintWriter(trace, true));
            line.put("message", thrown.toString());
            line.put("trace", trace.toString());
        });
        try {
            out.write((JSON.writeValueAsString(line) + "\n").getBytes(StandardCharsets.UTF_8));
            out.flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
