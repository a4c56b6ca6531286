import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Runs Kafka's own assignors of consumer groups on groups that are read from the standard input.
 *
 * <p>A line is one group: the assignor, then the topics as {@code number:partitions}, a {@code |},
 * then the members as {@code id;instance;topics;current} with lists separated by commas, and current
 * partitions as {@code topic.partition}. The answer to each line is one line: for each member
 * {@code id;topic.partition,...}, in the order of the ids.
 */
public final class GroupAssignors {
    private GroupAssignors() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.append(assigned(line)).append('\n');
        }
        System.out.print(answers);
    }

    private static String assigned(String line) {
        String[] halves = line.split("\\|", -1);
        String[] head = halves[0].trim().split(" ");
        Map<Uuid, Integer> counts = new HashMap<>();
        for (int index = 1; index < head.length; index++) {
            String[] topic = head[index].split(":");
            counts.put(topicId(topic[0]), Integer.parseInt(topic[1]));
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (String member : halves[1].trim().split(" ")) {
            String[] parts = member.split(";", -1);
            Set<Uuid> topics = new HashSet<>();
            for (String topic : parts[2].isEmpty() ? new String[0] : parts[2].split(",")) {
                topics.add(topicId(topic));
            }
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> current = new HashMap<>();
            for (String partition : parts[3].isEmpty() ? new String[0] : parts[3].split(",")) {
                String[] pair = partition.split("\\.");
                int number = Integer.parseInt(pair[1]);
                current.computeIfAbsent(topicId(pair[0]), __ -> new HashSet<>()).add(number);
                owners.computeIfAbsent(topicId(pair[0]), __ -> new HashMap<>()).put(number, parts[0]);
            }
            members.put(parts[0], new MemberSubscriptionAndAssignmentImpl(
                    Optional.empty(),
                    parts[1].isEmpty() ? Optional.empty() : Optional.of(parts[1]),
                    topics,
                    new Assignment(Collections.unmodifiableMap(current))));
        }
        ConsumerGroupPartitionAssignor assignor =
                head[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type = subscriptions.size() == 1
                ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        GroupAssignment assignment =
                assignor.assign(new GroupSpecImpl(members, type, owners), describer(counts));
        TreeMap<String, TreeSet<String>> sorted = new TreeMap<>();
        members.keySet().forEach(id -> sorted.put(id, new TreeSet<>()));
        for (Map.Entry<String, MemberAssignment> member : assignment.members().entrySet()) {
            member.getValue().partitions().forEach((topic, numbers) -> numbers.forEach(number ->
                    sorted.get(member.getKey()).add(topic.getLeastSignificantBits() + "." + number)));
        }
        StringBuilder answer = new StringBuilder();
        sorted.forEach((id, partitions) ->
                answer.append(id).append(';').append(String.join(",", partitions)).append(' '));
        return answer.toString().trim();
    }

    private static Uuid topicId(String number) {
        return new Uuid(7, Long.parseLong(number));
    }

    private static SubscribedTopicDescriber describer(Map<Uuid, Integer> counts) {
        return new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topicId) {
                return counts.getOrDefault(topicId, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topicId, int partition) {
                return Set.of();
            }
        };
    }
}
