import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.cluster.Broker;
import kafka.common.OffsetAndMetadata;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;

/**
 * The consumer of Kafka 0.8: {@code OldestClient HOST:PORT TOPIC COUNT GROUP} reads so many records of partition 0,
 * prints offset, key and value of each, and keeps its offset in ZooKeeper.
 */
public final class OldestClient {
    private static final int TIMEOUT_MS = 30_000;
    private static final int BUFFER = 1 << 16;
    private static final int FETCH_BYTES = 1 << 20;
    private static final String CLIENT = "oldest";

    public static void main(String[] arguments) {
        String[] address = arguments[0].split(":");
        TopicAndPartition partition = new TopicAndPartition(arguments[1], 0);
        Broker leader;
        SimpleConsumer any = open(address[0], Integer.parseInt(address[1]));
        leader = any.send(new TopicMetadataRequest(Collections.singletonList(arguments[1])))
            .topicsMetadata().get(0).partitionsMetadata().get(0).leader();
        any.close();
        SimpleConsumer consumer = open(leader.host(), leader.port());
        long end = read(consumer, partition, Integer.parseInt(arguments[2]));
        OffsetAndMetadata offset = new OffsetAndMetadata(end, "", -1);
        Object error = consumer.commitOffsets(
            new OffsetCommitRequest(arguments[3], Collections.singletonMap(partition, offset), 1, CLIENT, (short) 0)
        ).errors().get(partition);
        long committed = consumer.fetchOffsets(
            new OffsetFetchRequest(arguments[3], Collections.singletonList(partition), (short) 0, 2, CLIENT)
        ).offsets().get(partition).offset();
        consumer.close();
        if (!error.equals((short) 0) || committed != end) {
            throw new IllegalStateException("error " + error + ", committed " + committed + " of " + end);
        }
    }

    private static SimpleConsumer open(String host, int port) {
        return new SimpleConsumer(host, port, TIMEOUT_MS, BUFFER, CLIENT);
    }

    private static long read(SimpleConsumer consumer, TopicAndPartition partition, int count) {
        long offset = consumer.getOffsetsBefore(new OffsetRequest(
            Collections.singletonMap(
                partition, new PartitionOffsetRequestInfo(kafka.api.OffsetRequest.EarliestTime(), 1)),
            kafka.api.OffsetRequest.CurrentVersion(), CLIENT
        )).offsets(partition.topic(), 0)[0];
        int found = 0;
        while (found < count) {
            FetchResponse answer = consumer.fetch(
                new FetchRequestBuilder().clientId(CLIENT).maxWait(500).minBytes(1)
                    .addFetch(partition.topic(), 0, offset, FETCH_BYTES).build());
            if (answer.hasError()) {
                throw new IllegalStateException("error " + answer.errorCode(partition.topic(), 0));
            }
            for (MessageAndOffset one : answer.messageSet(partition.topic(), 0)) {
                // Those before are of the same compressed message.
                if (one.offset() >= offset) {
                    String key = one.message().hasKey() ? text(one.message().key()) : "null";
                    System.out.println(one.offset() + "\t" + key + "\t" + text(one.message().payload()));
                    offset = one.nextOffset();
                    found++;
                }
            }
        }
        return offset;
    }

    private static String text(ByteBuffer bytes) {
        byte[] data = new byte[bytes.remaining()];
        bytes.get(data);
        return new String(data, StandardCharsets.UTF_8);
    }
}
