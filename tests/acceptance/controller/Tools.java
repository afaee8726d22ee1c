import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one JVM. Each line of the input is a tool's standard
 * input, its main class and its arguments, each in Base64 and separated by a tab; each line of the output is the
 * exit status, the tool's standard output and its standard error, in the same form.
 */
public final class Tools {
    /** Ends a tool. Some catch it, print it and exit once more: the first status and all before it count. */
    private static final class Exited extends Error {
        Exited(int status) {
            super("exit with status " + status, null, false, false);
        }
    }

    private static final ByteArrayOutputStream output = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream errors = new ByteArrayOutputStream();
    private static Integer status;
    private static String answer;

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        Exit.Procedure exit = (code, message) -> {
            end(code);
            throw new Exited(code);
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        String line;
        while ((line = requests.readLine()) != null) {
            String[] words = line.split("\t", -1);
            for (int i = 0; i < words.length; i++) {
                words[i] = new String(Base64.getDecoder().decode(words[i]), StandardCharsets.UTF_8);
            }
            status = null;
            System.setIn(new ByteArrayInputStream(words[0].getBytes(StandardCharsets.UTF_8)));
            run(words[1], Arrays.copyOfRange(words, 2, words.length));
            answers.println(answer);
            answers.flush();
            output.reset();
            errors.reset();
        }
    }

    private static void run(String mainClass, String[] arguments) throws ReflectiveOperationException {
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
            end(0);
        } catch (InvocationTargetException failed) {
            if (!(failed.getCause() instanceof Exited)) {
                failed.getCause().printStackTrace(System.err);
                end(1);
            }
        }
    }

    private static void end(int code) {
        if (status == null) {
            System.out.flush();
            System.err.flush();
            status = code;
            answer = code + "\t" + encoded(output) + "\t" + encoded(errors);
        }
    }

    private static String encoded(ByteArrayOutputStream stream) {
        return Base64.getEncoder().encodeToString(stream.toByteArray());
    }
}
