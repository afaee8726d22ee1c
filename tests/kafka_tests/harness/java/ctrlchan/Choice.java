package ctrlchan;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Leaves out the invocations of parameterised tests that need KRaft or the new consumer group protocol, and the methods
 * that the file of the system property `ctrlchan.choice` does not want: its first line is `without` or `only`, each other
 * line the name of a method.
 */
public final class Choice implements ExecutionCondition {
    private static final String[] NOT_ZOOKEEPER = {"kraft", "Type=Raft", "groupProtocol=consumer", "zkMigration"};

    private final boolean only;
    private final Set<String> names;

    public Choice() {
        try {
            List<String> lines = Files.readAllLines(Path.of(System.getProperty("ctrlchan.choice")));
            only = lines.get(0).equals("only");
            names = Set.copyOf(lines.subList(1, lines.size()));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        for (String word : NOT_ZOOKEEPER)
            if (context.getDisplayName().contains(word))
                return ConditionEvaluationResult.disabled("not for a cluster with ZooKeeper: " + word);
        boolean wanted = context.getTestMethod().map(method -> names.contains(method.getName()) == only).orElse(true);
        return wanted ? ConditionEvaluationResult.enabled("") : ConditionEvaluationResult.disabled("not chosen");
    }
}
