import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Asks a broker for a KIP-848 group, and prints the exception.
 *
 * <p>Arguments: the broker's address and a topic. Waiting has a limit.
 */
public final class Unserved {
    private static final long WAIT_MS_MAX = 20_000;

    private Unserved() {}

    public static void main(String[] arguments) {
        System.out.println(consumerProtocol(arguments[0], arguments[1]));
    }

    private static String consumerProtocol(String bootstrap, String topic) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", "java.unserved",
                "group.protocol", "consumer");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + WAIT_MS_MAX * 1_000_000;
            while (System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(200));
            }
            return "consumer protocol: silence";
        } catch (KafkaException error) {
            return "consumer protocol: " + error.getMessage();
        }
    }
}
