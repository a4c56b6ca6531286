import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Joins new consumer groups, one for each line of the input, and tells when each got its first record.
 *
 * <p>Argument: the bootstrap servers. A line is a group, a topic or a regular expression that begins with "^", and the group protocol. Each line of
 * the output has two readings of the monotonic clock in nanoseconds: before subscribe, and after the first record. See
 * tests/bench/group_start.py.
 */
public final class GroupStart {
    private static final Duration POLL = Duration.ofSeconds(30);

    private GroupStart() {}

    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split("\t");
            Map<String, Object> settings = Map.of(
                    "bootstrap.servers", arguments[0],
                    "group.id", words[0],
                    "group.protocol", words[2],
                    "auto.offset.reset", "earliest");
            ByteArrayDeserializer bytes = new ByteArrayDeserializer();
            try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
                long subscribed = System.nanoTime();
                if (!words[1].startsWith("^")) {
                    consumer.subscribe(List.of(words[1]));
                } else if (words[2].equals("classic")) {
                    consumer.subscribe(Pattern.compile(words[1]));
                } else {
                    consumer.subscribe(new SubscriptionPattern(words[1]));
                }
                while (consumer.poll(POLL).isEmpty()) {}
                System.out.println(subscribed + "\t" + System.nanoTime());
            }
        }
    }
}
