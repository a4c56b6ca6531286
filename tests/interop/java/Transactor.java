import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Runs transactional producers of Kafka's own client, one command per line of its input.
 *
 * <p>Argument: the bootstrap servers. A command begins with the name of a producer, and has tabs between
 * its words; the answer is one line, "ok" or "error" with the class of the exception. See tests/interop/transactors.py.
 */
public final class Transactor {
    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<String, Future<RecordMetadata>> lastSends = new HashMap<>();

    private Transactor(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Transactor all = new Transactor(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = lines.readLine()) != null) {
            String answer = "ok";
            try {
                all.run(line.split("\t"));
            } catch (KafkaException error) {
                answer = "error " + name(error);
            } catch (ExecutionException error) {
                answer = "error " + name(error.getCause());
            }
            System.out.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }

    /** The class of the first cause that says more than that something failed. */
    private static String name(Throwable error) {
        while (error.getClass() == KafkaException.class && error.getCause() != null) {
            error = error.getCause();
        }
        return error.getClass().getSimpleName();
    }

    // Offsets of a group without members: its metadata have no public class yet.
    @SuppressWarnings("removal")
    private void run(String[] words) throws ExecutionException, InterruptedException {
        String name = words[0];
        KafkaProducer<byte[], byte[]> producer = producers.get(name);
        switch (words[1]) {
            case "init" -> {
                producers.put(name, open(words[2], words[3]));
                producers.get(name).initTransactions();
            }
            case "begin" -> producer.beginTransaction();
            case "send" -> {
                byte[] value = words[4].getBytes(StandardCharsets.UTF_8);
                int partition = Integer.parseInt(words[3]);
                lastSends.put(name, producer.send(new ProducerRecord<>(words[2], partition, null, value)));
            }
            case "flush" -> {
                producer.flush();
                lastSends.get(name).get();
            }
            case "offset" -> producer.sendOffsetsToTransaction(
                Map.of(
                    new TopicPartition(words[3], Integer.parseInt(words[4])),
                    new OffsetAndMetadata(Long.parseLong(words[5]))),
                new ConsumerGroupMetadata(words[2]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> producers.remove(name).close(java.time.Duration.ZERO);
            default -> throw new IllegalArgumentException(String.join(" ", words));
        }
    }

    private KafkaProducer<byte[], byte[]> open(String id, String timeoutMs) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", Integer.parseInt(timeoutMs));
        settings.put("delivery.timeout.ms", 30_000);
        settings.put("request.timeout.ms", 10_000);
        settings.put("max.block.ms", 30_000);
        if (Integer.parseInt(timeoutMs) < 30_000) {
            // The client requires delivery.timeout.ms <= transaction.timeout.ms.
            settings.put("delivery.timeout.ms", Integer.parseInt(timeoutMs));
            settings.put("request.timeout.ms", Integer.parseInt(timeoutMs));
        }
        settings.put("linger.ms", 0);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }
}
