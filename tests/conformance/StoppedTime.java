import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A clock that stands still until somebody sets it. */
class StoppedTime implements Time {
    volatile long ms = 0;

    @Override
    public long milliseconds() {
        return ms;
    }

    @Override
    public long nanoseconds() {
        return ms * 1_000_000;
    }

    @Override
    public void sleep(long more) {
        ms += more;
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
        throw new UnsupportedOperationException();
    }
}
