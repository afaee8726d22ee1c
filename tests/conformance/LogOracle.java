// Runs Kafka's own checks of an append: reads one line from standard input and answers with one line.
//
//   check <version> <origin> <now> <before> <after> <max bytes> <log append time> <compacted> <compression>
//         <next offset> <leader epoch> <hex>  ->  ok <error code> <max timestamp> <hex>
//   producers <expiration ms>                 ->  ok
//   append <origin> <hex>                     ->  ok <error code> <duplicate's first offset or -1>
//   expire <now>                              ->  ok
//   snapshot                                  ->  ok <hex>

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.HexFormat;
import java.util.Optional;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public final class LogOracle {
    private static final TopicPartition PARTITION = new TopicPartition("topic", 0);

    private static ProducerStateManager producers;
    private static long producersEnd;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = ("ok " + answer(line.split(" ", -1))).strip();
            } catch (Throwable e) {
                answer = "error " + e.toString().replace('\n', ' ');
            }
            out.write(answer + "\n");
            out.flush();
        }
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "check":
                return check(words);
            case "producers":
                producers = new ProducerStateManager(PARTITION, directory(), 900000,
                    new ProducerStateManagerConfig(Integer.parseInt(words[1]), false), clock(0));
                producersEnd = 0;
                return "";
            case "append":
                return append(AppendOrigin.valueOf(words[1]), bytes(words[2]));
            case "expire":
                producers.removeExpiredProducers(Long.parseLong(words[1]));
                return "";
            case "snapshot":
                File file = File.createTempFile("producers", ".snapshot");
                file.deleteOnExit();
                ProducerStateManager.writeSnapshot(file, producers.activeProducers(), false);
                return HexFormat.of().formatHex(Files.readAllBytes(file.toPath()));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static ByteBuffer bytes(String hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    }

    private static File directory() throws Exception {
        File directory = Files.createTempDirectory("producers").toFile();
        directory.deleteOnExit();
        return directory;
    }

    private static Time clock(long now) {
        return (Time) Proxy.newProxyInstance(LogOracle.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, arguments) -> method.getName().equals("milliseconds") ? now : 0L);
    }

    private static String check(String[] words) {
        short version = Short.parseShort(words[1]);
        AppendOrigin origin = AppendOrigin.valueOf(words[2]);
        long now = Long.parseLong(words[3]);
        int maxBytes = Integer.parseInt(words[6]);
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(Long.parseLong(words[10]));
        try {
            MemoryRecords records = MemoryRecords.readableRecords(bytes(words[12]));
            ProduceRequest.validateRecords(version, records);
            // The part of UnifiedLog.append that is Scala.
            CompressionType source = CompressionType.NONE;
            int valid = 0;
            for (MutableRecordBatch batch : records.batches()) {
                if (origin == AppendOrigin.CLIENT && batch.baseOffset() != 0)
                    throw new InvalidRecordException("base offset");
                if (batch.sizeInBytes() > maxBytes)
                    throw new RecordTooLargeException("too large");
                if (!batch.isValid())
                    throw new CorruptRecordException("CRC");
                if (batch.compressionType() != CompressionType.NONE)
                    source = batch.compressionType();
                valid += batch.sizeInBytes();
            }
            ByteBuffer trimmed = records.buffer().duplicate();
            trimmed.limit(valid);
            CompressionType target = words[9].equals("producer") ? source : CompressionType.forName(words[9]);
            LogValidator validator = new LogValidator(
                MemoryRecords.readableRecords(trimmed), PARTITION, clock(now), source,
                Compression.of(target).build(), words[8].equals("1"), RecordBatch.MAGIC_VALUE_V2,
                words[7].equals("1") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
                Long.parseLong(words[4]), Long.parseLong(words[5]), Integer.parseInt(words[11]), origin,
                MetadataVersion.IBP_3_9_IV0);
            LogValidator.MetricsRecorder metrics = (LogValidator.MetricsRecorder) Proxy.newProxyInstance(
                LogOracle.class.getClassLoader(), new Class<?>[] {LogValidator.MetricsRecorder.class},
                (proxy, method, arguments) -> null);
            LogValidator.ValidationResult result =
                validator.validateMessagesAndAssignOffsets(offset, metrics, BufferSupplier.NO_CACHING);
            for (MutableRecordBatch batch : result.validatedRecords.batches()) {
                if (result.messageSizeMaybeChanged && batch.sizeInBytes() > maxBytes)
                    throw new RecordTooLargeException("too large");
            }
            ByteBuffer written = result.validatedRecords.buffer();
            byte[] data = new byte[written.remaining()];
            written.get(data);
            return "0 " + result.maxTimestampMs + " "
                + HexFormat.of().formatHex(data);
        } catch (RecordValidationException e) {
            return Errors.forException(e.invalidException()).code() + " -1 ";
        } catch (Throwable e) {
            return Errors.forException(e).code() + " -1 ";
        }
    }

    /** What UnifiedLog.analyzeAndValidateProducerState does, and the update after the write. */
    private static String append(AppendOrigin origin, ByteBuffer data) {
        try {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(data).batches()) {
                if (!batch.hasProducerId())
                    return "0 -1";
                if (origin == AppendOrigin.CLIENT) {
                    Optional<BatchMetadata> duplicate =
                        producers.lastEntry(batch.producerId()).flatMap(entry -> entry.findDuplicateBatch(batch));
                    if (duplicate.isPresent())
                        return "0 " + duplicate.get().firstOffset();
                }
                ProducerAppendInfo info = producers.prepareUpdate(batch.producerId(), origin);
                Optional<LogOffsetMetadata> first = batch.isTransactional()
                    ? Optional.of(new LogOffsetMetadata(batch.baseOffset())) : Optional.empty();
                Optional<CompletedTxn> completed = info.append(batch, first);
                producers.update(info);
                completed.ifPresent(producers::completeTxn);
            }
            return "0 -1";
        } catch (Throwable e) {
            return Errors.forException(e).code() + " -1";
        }
    }
}
