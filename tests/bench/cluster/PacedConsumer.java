import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Takes records whose values are readings of the monotonic clock, and prints their delays.
 *
 * <p>Arguments: bootstrap servers, group, topic, how many records make it ready, how many follow
 * uncounted, and how many are counted. It prints "ready", and at the end the counted delays in
 * nanoseconds, one on a line.
 */
public final class PacedConsumer {
    private static final Duration POLL = Duration.ofSeconds(1);

    public static void main(String[] arguments) {
        int first = Integer.parseInt(arguments[3]);
        int uncounted = Integer.parseInt(arguments[4]);
        long[] delays = new long[Integer.parseInt(arguments[5])];
        Map<String, Object> settings =
                Map.of("bootstrap.servers", arguments[0], "group.id", arguments[1]);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaShareConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(arguments[2]));
            for (int taken = 0; taken < first; ) {
                taken += consumer.poll(POLL).count();
            }
            System.out.println("ready");
            int number = -uncounted;
            while (number < delays.length) {
                var records = consumer.poll(POLL);
                long now = System.nanoTime();  // The clock that Python calls monotonic, on Linux.
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    if (number >= 0) {
                        delays[number] = now - Long.parseLong(new String(record.value()));
                    }
                    number++;
                }
            }
        }
        StringBuilder text = new StringBuilder();
        Arrays.stream(delays).forEach(delay -> text.append(delay).append('\n'));
        System.out.print(text);
    }
}
