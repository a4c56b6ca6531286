import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Joins new share groups when it is told to, and tells how long each waited for its first record.
 *
 * <p>Arguments: the brokers' addresses and a topic. Each line of the input is a group. Each line of
 * the output is a group and the milliseconds from the making of its consumer to its first record.
 * The end of the input ends it, and with it the consumers that still wait.
 */
public final class NewGroups {
    private static final Duration POLL = Duration.ofMillis(500);

    private NewGroups() {}

    public static void main(String[] arguments) {
        ExecutorService members = Executors.newCachedThreadPool();
        Scanner groups = new Scanner(System.in);
        while (groups.hasNextLine()) {
            String group = groups.nextLine();
            members.submit(() -> join(arguments[0], arguments[1], group));
        }
        members.shutdownNow();
    }

    private static void join(String bootstrap, String topic, String group) {
        long startedAt = System.nanoTime();
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", group);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaShareConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(topic));
            while (consumer.poll(POLL).isEmpty()) {
                if (Thread.interrupted()) {
                    return;
                }
            }
            tell(group + " " + (System.nanoTime() - startedAt) / 1_000_000);
        } catch (InterruptException error) {
            Thread.currentThread().interrupt();
        } catch (KafkaException error) {
            tell(group + " failed: " + error);
        }
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
