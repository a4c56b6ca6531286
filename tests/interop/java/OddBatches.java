import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;

/**
 * Reads record batches from the standard input, as Kafka's consumers do, and prints what they hold.
 *
 * <p>Each batch has its size before it. A line is the number of records, a digest of them, and the class of the error that ended the batch, or "-". With
 * the argument "records" each record has a line of its own before that. See tests/support/java_batches.py.
 */
public final class OddBatches {
    private OddBatches() {}

    public static void main(String[] arguments) throws IOException, NoSuchAlgorithmException {
        boolean withRecords = arguments.length > 0;
        DataInputStream input = new DataInputStream(new BufferedInputStream(System.in));
        StringBuilder output = new StringBuilder();
        while (true) {
            int size;
            try {
                size = input.readInt();
            } catch (EOFException end) {
                break;
            }
            byte[] bytes = new byte[size];
            input.readFully(bytes);
            read(ByteBuffer.wrap(bytes), withRecords, output);
        }
        System.out.print(output);
    }

    private static void read(ByteBuffer bytes, boolean withRecords, StringBuilder output)
            throws NoSuchAlgorithmException {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        int count = 0;
        String failure = "-";
        try {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(bytes).batches()) {
                batch.ensureValid();
                if (batch.isControlBatch()) {
                    continue;
                }
                try (CloseableIterator<Record> records = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
                    while (records.hasNext()) {
                        String line = lineOf(batch, records.next());
                        digest.update(line.getBytes(StandardCharsets.UTF_8));
                        count++;
                        if (withRecords) {
                            output.append(line);
                        }
                    }
                }
            }
        } catch (RuntimeException error) {
            failure = error.getClass().getSimpleName();
        }
        output.append(count).append(' ').append(HexFormat.of().formatHex(digest.digest(), 0, 8));
        output.append(' ').append(failure).append('\n');
    }

    private static String lineOf(RecordBatch batch, Record record) {
        StringBuilder line = new StringBuilder();
        line.append(record.offset()).append(' ').append(record.timestamp()).append(' ').append(batch.timestampType().id);
        line.append(' ').append(hex(record.key())).append(' ').append(hex(record.value()));
        for (Header header : record.headers()) {
            line.append(' ').append(HexFormat.of().formatHex(header.key().getBytes(StandardCharsets.UTF_8)));
            line.append('=').append(header.value() == null ? "-" : HexFormat.of().formatHex(header.value()));
        }
        return line.append('\n').toString();
    }

    private static String hex(ByteBuffer content) {
        if (content == null) {
            return "-";
        }
        byte[] bytes = new byte[content.remaining()];
        content.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
