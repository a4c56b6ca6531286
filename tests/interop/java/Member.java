import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Runs members of consumer groups with Kafka's own client, one command per line of its input.
 *
 * <p>Argument: the bootstrap servers. A command begins with the name of a member, and has tabs between its words; the answer is
 * one line of words with tabs between them: "ok" and the result, or "error" and the exception. See tests/interop/group_members.py.
 */
public final class Member {
    private static final Duration POLL = Duration.ofMillis(100);

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String topic;

    private Member(String bootstrap, String topic, String group, String protocol, String instance) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        if (!instance.isEmpty()) {
            settings.put("group.instance.id", instance);
        }
        this.topic = topic;
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        consumer = new KafkaConsumer<>(settings, bytes, bytes);
        consumer.subscribe(List.of(topic));
    }

    public static void main(String[] arguments) throws IOException {
        Map<String, Member> members = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = lines.readLine()) != null) {
            // Trailing empty words count: a member without an instance has one.
            String[] words = line.split("\t", -1);
            StringBuilder answer = new StringBuilder("ok");
            try {
                if (words[1].equals("open")) {
                    members.put(words[0], new Member(arguments[0], words[2], words[3], words[4], words[5]));
                } else {
                    for (String word : members.get(words[0]).run(words)) {
                        answer.append('\t').append(word);
                    }
                }
            } catch (KafkaException error) {
                answer = new StringBuilder("error\t" + error.toString().replace('\n', ' '));
            }
            System.out.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }

    private Set<String> run(String[] words) {
        Set<String> answer = new TreeSet<>();
        switch (words[1]) {
            case "poll" -> {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    String value = new String(record.value(), StandardCharsets.UTF_8);
                    answer.add(record.partition() + ":" + record.offset() + ":" + value);
                }
            }
            case "partitions" -> consumer.assignment().forEach(partition -> answer.add("" + partition.partition()));
            case "commit" -> {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (TopicPartition partition : consumer.assignment()) {
                    offsets.put(partition, new OffsetAndMetadata(consumer.position(partition), words[2]));
                }
                consumer.commitSync(offsets);
            }
            case "committed" -> {
                Set<TopicPartition> all = new HashSet<>();
                consumer.partitionsFor(topic).forEach(found -> all.add(new TopicPartition(topic, found.partition())));
                new TreeMap<>(byNumber(consumer.committed(all))).forEach((partition, offset) -> {
                    if (offset != null) {
                        answer.add(partition + ":" + offset.offset() + ":" + offset.metadata());
                    }
                });
            }
            case "close" -> consumer.close();
            default -> throw new IllegalArgumentException(String.join(" ", words));
        }
        return answer;
    }

    private static Map<Integer, OffsetAndMetadata> byNumber(Map<TopicPartition, OffsetAndMetadata> offsets) {
        Map<Integer, OffsetAndMetadata> found = new HashMap<>();
        offsets.forEach((partition, offset) -> found.put(partition.partition(), offset));
        return found;
    }
}
