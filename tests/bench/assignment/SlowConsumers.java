import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumers of one share group, each with a handler that takes some milliseconds for a record.
 *
 * <p>Arguments: bootstrap servers, group, topic, how many consumers, how many records, and the
 * milliseconds of a handler. It prints the nanoseconds from the first handler's begin to the last
 * one's end, and the records of each consumer.
 */
public final class SlowConsumers {
    private static final Duration POLL = Duration.ofMillis(500);
    private static final int POLL_RECORDS_MAX = 16;

    public static void main(String[] arguments) throws InterruptedException {
        int consumers = Integer.parseInt(arguments[3]);
        int wanted = Integer.parseInt(arguments[4]);
        long handlerMs = Long.parseLong(arguments[5]);
        Map<String, Object> settings =
                Map.of(
                        "bootstrap.servers", arguments[0],
                        "group.id", arguments[1],
                        "max.poll.records", POLL_RECORDS_MAX,
                        "share.acquire.mode", "record_limit");
        var handled = new AtomicInteger();
        var first = new AtomicLong(Long.MAX_VALUE);
        var last = new AtomicLong();
        int[] counts = new int[consumers];
        Thread[] threads = new Thread[consumers];
        for (int number = 0; number < consumers; number++) {
            int own = number;
            threads[number] =
                    new Thread(
                            () -> {
                                var bytes = new ByteArrayDeserializer();
                                try (var consumer =
                                        new KafkaShareConsumer<>(settings, bytes, bytes)) {
                                    consumer.subscribe(List.of(arguments[2]));
                                    while (handled.get() < wanted) {
                                        for (ConsumerRecord<byte[], byte[]> record :
                                                consumer.poll(POLL)) {
                                            first.accumulateAndGet(System.nanoTime(), Math::min);
                                            sleep(handlerMs);
                                            handled.incrementAndGet();
                                            counts[own]++;
                                            last.accumulateAndGet(System.nanoTime(), Math::max);
                                        }
                                    }
                                }
                            });
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println(last.get() - first.get());
        for (int count : counts) {
            System.out.println(count);
        }
    }

    private static void sleep(long handlerMs) {
        try {
            Thread.sleep(handlerMs);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
