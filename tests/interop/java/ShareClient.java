import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeShareGroupsOptions;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RecordDeserializationException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Scenes with Kafka's own share consumer and administrator, each of which tells what happened.
 *
 * <p>Arguments: the broker's address and names of scenes. They are played side by side, each with a
 * topic and a group of its own, and printed one after the other, each below its name. What they
 * must tell is in tests/interop/test_java_client.py. Waiting is for a condition, with a limit.
 */
public final class ShareClient implements AutoCloseable {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long WAIT_MS_MAX = 20_000;
    private static final long LOCK_MS_MIN = 1_000;
    private static final long LOCK_MS = 3_000;

    private final String bootstrap;
    private final String topic;
    private final String group;
    private final Admin admin;
    private final StringBuilder told = new StringBuilder();

    private ShareClient(String bootstrap, String scene) {
        this.bootstrap = bootstrap;
        this.topic = "java." + scene + ".topic";
        this.group = "java." + scene + ".group";
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws InterruptedException, ExecutionException {
        List<String> scenes = List.of(arguments).subList(1, arguments.length);
        ExecutorService stages = Executors.newFixedThreadPool(Math.max(1, scenes.size()));
        try {
            List<Future<String>> played = new ArrayList<>();
            for (String scene : scenes) {
                played.add(stages.submit(() -> played(arguments[0], scene)));
            }
            StringBuilder told = new StringBuilder();
            for (int i = 0; i < scenes.size(); i++) {
                told.append("## ").append(scenes.get(i)).append('\n').append(played.get(i).get());
            }
            System.out.print(told);  // All at once, for the client logs to the same place.
        } finally {
            stages.shutdownNow();
        }
    }

    /** What a scene told, and the error that ended it if one did. */
    private static String played(String bootstrap, String name) {
        try (ShareClient scene = new ShareClient(bootstrap, name)) {
            try {
                scene.play(name);
            } catch (Exception error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                scene.say("error", trace);
            }
            return scene.told.toString();
        }
    }

    @Override
    public void close() {
        admin.close();
    }

    private void play(String scene) throws Exception {
        switch (scene) {
            case "renew" -> renew();
            case "renew-forbidden" -> renewForbidden();
            case "record-limit" -> recordLimit();
            case "commits" -> commits();
            case "lost-lock" -> lostLock();
            case "wakeup" -> wakeup();
            case "explicit-errors" -> explicitErrors();
            case "implicit-errors" -> implicitErrors();
            case "implicit-end" -> implicitEnd();
            case "unreadable" -> unreadable();
            case "refused" -> refused();
            case "admin" -> administration();
            default -> throw new IllegalArgumentException(scene);
        }
    }

    /** A lock renewed three times, each before its end, is held for longer than it was given. */
    private void renew() throws Exception {
        ready(1, Map.of("share.record.lock.duration.ms", Long.toString(LOCK_MS)));
        try (var consumer = consumer("explicit", Map.of()); var other = consumer("explicit", Map.of())) {
            ConsumerRecord<String, String> record = take(consumer, 1).get(0);
            say("lock ms", consumer.acquisitionLockTimeoutMs().get());
            List<String> others = new ArrayList<>();
            for (int renewal = 1; renewal <= 3; renewal++) {
                long due = System.nanoTime() + LOCK_MS * 500_000;
                until("half a lock passes", () -> {
                    others.addAll(texts(other.poll(POLL)));
                    return System.nanoTime() >= due;
                });
                consumer.acknowledge(record, AcknowledgeType.RENEW);
                say("renewed", results(consumer.commitSync()));
                record = take(consumer, 1).get(0);
                say("again", text(record));
            }
            consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            say("accepted", results(consumer.commitSync()));
            say("others", others);
        }
    }

    private void renewForbidden() throws Exception {
        ready(1, Map.of("share.renew.acknowledge.enable", "false"));
        try (var consumer = consumer("explicit", Map.of())) {
            ConsumerRecord<String, String> record = take(consumer, 1).get(0);
            consumer.acknowledge(record, AcknowledgeType.RENEW);
            say("renewed", results(consumer.commitSync()));
        }
    }

    /** Ten records in one batch; nobody gets more than three, and nobody the same. */
    private void recordLimit() throws Exception {
        ready(10, Map.of());
        Map<String, Object> limited = Map.of("share.acquire.mode", "record_limit", "max.poll.records", 3);
        try (var one = consumer("explicit", limited); var other = consumer("explicit", limited)) {
            List<String> first = texts(take(one, 3));
            List<String> second = texts(take(other, 3));
            say("one", first);
            say("other has", second.size());  // Which ones: the first may have asked for more already.
            second.retainAll(first);
            say("both have", second);
        }
    }

    /** What commitSync returns and what commitAsync tells the callback. */
    private void commits() throws Exception {
        ready(4, Map.of());
        try (var consumer = consumer("explicit", Map.of())) {
            List<String> results = new ArrayList<>();
            consumer.setAcknowledgementCommitCallback((offsets, error) ->
                offsets.forEach((partition, some) -> results.add(
                    partition.partition() + ":" + some.stream().sorted().toList() + " " + name(error))));
            List<ConsumerRecord<String, String>> records = take(consumer, 4);
            say("nothing", results(consumer.commitSync()));
            consumer.acknowledge(records.get(0));
            consumer.acknowledge(records.get(1), AcknowledgeType.RELEASE);
            consumer.acknowledge(records.get(2), AcknowledgeType.REJECT);
            say("sync", results(consumer.commitSync()));
            consumer.acknowledge(records.get(3));
            consumer.commitAsync();
            List<ConsumerRecord<String, String>> again = take(consumer, 1);
            say("again", texts(again));
            consumer.acknowledge(again.get(0));
            consumer.commitSync();
            say("callback", results);
        }
    }

    /** The lock ends, another member has the record: who is late is told so, both ways. */
    private void lostLock() throws Exception {
        ready(2, Map.of("share.record.lock.duration.ms", Long.toString(LOCK_MS_MIN)));
        try (var late = consumer("explicit", Map.of()); var next = consumer("explicit", Map.of())) {
            List<String> results = new ArrayList<>();
            late.setAcknowledgementCommitCallback((offsets, error) -> results.add(name(error)));
            List<ConsumerRecord<String, String>> held = take(late, 2);
            say("next", take(next, 2).stream()
                .map(record -> record.offset() + (record.deliveryCount().get() > 1 ? " again" : " first")).toList());
            late.acknowledge(held.get(0));
            say("sync", results(late.commitSync()));
            late.acknowledge(held.get(1));
            late.commitAsync();
            until("the callback is called", () -> {
                late.commitSync(POLL);  // A poll could bring the records back, once the next lock ends.
                return results.size() == 2;
            });
            say("callback", results);
        }
    }

    private void wakeup() throws Exception {
        ready(0, Map.of());
        try (var consumer = consumer("implicit", Map.of())) {
            Thread waker = new Thread(consumer::wakeup);
            waker.start();
            say("poll", thrown(() -> consumer.poll(Duration.ofMillis(WAIT_MS_MAX)), WakeupException.class));
            waker.join();
            produce("after");
            say("then", texts(take(consumer, 1)));
        }
    }

    private void explicitErrors() throws Exception {
        ready(2, Map.of());
        try (var consumer = consumer("explicit", Map.of())) {
            List<ConsumerRecord<String, String>> records = take(consumer, 2);
            say("poll with records in hand", thrown(() -> consumer.poll(POLL), IllegalStateException.class));
            consumer.acknowledge(records.get(0), AcknowledgeType.RELEASE);
            consumer.acknowledge(records.get(0), AcknowledgeType.ACCEPT);
            consumer.acknowledge(records.get(1));
            say("changed before it is sent", results(consumer.commitSync()));
            say("a second time", thrown(() -> consumer.acknowledge(records.get(0)), IllegalStateException.class));
            say("never had", thrown(() -> consumer.acknowledge(topic, 0, 99, AcknowledgeType.ACCEPT),
                IllegalStateException.class));
            consumer.unsubscribe();
            say("no subscription", thrown(() -> consumer.poll(POLL), IllegalStateException.class));
        }
    }

    private void implicitErrors() throws Exception {
        ready(1, Map.of());
        try (var consumer = consumer("implicit", Map.of())) {
            ConsumerRecord<String, String> record = take(consumer, 1).get(0);
            say("acknowledge", thrown(() -> consumer.acknowledge(record), IllegalStateException.class));
            say("accepted", results(consumer.commitSync()));
        }
    }

    /** Without another poll or a commit nothing is accepted, neither by close nor by unsubscribe. */
    private void implicitEnd() throws Exception {
        ready(3, Map.of());
        try (var consumer = consumer("implicit", Map.of())) {
            say("had", texts(take(consumer, 3)));
        }
        try (var consumer = consumer("implicit", Map.of())) {
            say("after close", texts(take(consumer, 3)));
            consumer.unsubscribe();
        }
        try (var consumer = consumer("implicit", Map.of())) {
            say("after unsubscribe", texts(take(consumer, 3)));
            consumer.commitSync();
        }
        say("after commit", admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(group).get().get(first()).lag());
    }

    /** Text where a number of four bytes is expected: told apart, rejected, the rest is delivered. */
    private void unreadable() throws Exception {
        ready(0, Map.of());
        produce("four");
        produce("longer");
        produce("more");
        Map<String, Object> config = new HashMap<>(consumerConfig("explicit", Map.of()));
        config.put("value.deserializer", IntegerDeserializer.class);
        try (var consumer = new KafkaShareConsumer<String, Integer>(config)) {
            consumer.subscribe(Set.of(topic));
            List<String> seen = new ArrayList<>();
            until("three records are seen", () -> {
                try {
                    consumer.poll(POLL).forEach(record -> {
                        seen.add(record.offset() + "");
                        consumer.acknowledge(record);
                    });
                } catch (RecordDeserializationException error) {
                    seen.add("unreadable " + error.topicPartition().partition() + ":" + error.offset());
                    consumer.acknowledge(topic, 0, error.offset(), AcknowledgeType.REJECT);
                }
                return seen.size() == 3;
            });
            say("seen", seen);
            say("committed", results(consumer.commitSync()));
        }
    }

    /** A batch with a wrong checksum, between two others, in a topic that the test has made. */
    private void refused() {
        List<String> shared = new ArrayList<>();
        try (var consumer = consumer("explicit", Map.of())) {
            until("the record behind the batch comes", () -> {
                try {
                    consumer.poll(POLL).forEach(record -> {
                        shared.add(text(record));
                        consumer.acknowledge(record);
                    });
                } catch (KafkaException error) {
                    shared.add(name(error));
                }
                return !shared.isEmpty() && shared.get(shared.size() - 1).startsWith("3=");
            });
        }
        say("shared", shared);
        List<String> plain = new ArrayList<>();
        Map<String, Object> config = Map.of(
            "bootstrap.servers", bootstrap, "group.id", group + ".plain", "auto.offset.reset", "earliest",
            "key.deserializer", StringDeserializer.class, "value.deserializer", StringDeserializer.class);
        try (var consumer = new KafkaConsumer<String, String>(config)) {
            consumer.assign(List.of(first()));
            until("the record behind the batch comes", () -> {
                try {
                    consumer.poll(POLL).forEach(record -> plain.add(record.offset() + "=" + record.value()));
                } catch (KafkaException error) {
                    plain.add(name(error) + " at " + consumer.position(first()));
                    if (plain.size() == 3) {  // It does not pass by itself.
                        consumer.seek(first(), 3);
                    }
                }
                return !plain.isEmpty() && plain.get(plain.size() - 1).startsWith("3=");
            });
        }
        say("plain", plain);
    }

    private void administration() throws Exception {
        ready(3, Map.of());
        try (var consumer = consumer("explicit", Map.of("client.id", "resident"))) {
            take(consumer, 3).forEach(record -> {
                if (record.offset() < 2) {
                    consumer.acknowledge(record);
                } else {
                    consumer.acknowledge(record, AcknowledgeType.RELEASE);
                }
            });
            consumer.commitSync();
            say("listed", admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().stream()
                .filter(one -> one.groupId().equals(group))
                .map(one -> one.type() + " " + one.protocol() + " " + one.groupState().get()).toList());
            ShareGroupDescription described = described();
            say("state", described.groupState());
            say("operations", described.authorizedOperations().stream().map(Enum::name).sorted().toList());
            for (ShareMemberDescription member : described.members()) {
                say("member", member.clientId() + " " + member.host() + " " + partitions(member));
            }
            say("delete", failure(() -> admin.deleteShareGroups(List.of(group)).all().get()));
            say("alter", failure(() -> admin.alterShareGroupOffsets(group, Map.of(first(), 1L)).all().get()));
        }
        say("left", described().groupState());
        say("altered", failure(() -> admin.alterShareGroupOffsets(group, Map.of(first(), 1L)).all().get()));
        say("offsets", admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(group).get().get(first()));
        say("offsets deleted", failure(() -> admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get()));
        say("none to delete", failure(() -> admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get()));
        say("deleted", failure(() -> admin.deleteShareGroups(List.of(group)).all().get()));
        say("gone", failure(this::described));
    }

    private ShareGroupDescription described() throws ExecutionException, InterruptedException {
        return admin.describeShareGroups(
            List.of(group), new DescribeShareGroupsOptions().includeAuthorizedOperations(true))
            .describedGroups().get(group).get();
    }

    /** A topic with this many records in one batch, and a group that begins with the first. */
    private void ready(int records, Map<String, String> settings) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        Map<String, String> all = new HashMap<>(settings);
        all.put("share.auto.offset.reset", "earliest");
        List<AlterConfigOp> changes = all.entrySet().stream()
            .map(one -> new AlterConfigOp(new ConfigEntry(one.getKey(), one.getValue()), AlterConfigOp.OpType.SET))
            .toList();
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), changes))
            .all().get();
        String[] values = new String[records];
        for (int i = 0; i < records; i++) {
            values[i] = "v" + i;
        }
        produce(values);
    }

    private void produce(String... values) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", bootstrap, "linger.ms", 50,
            "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class);
        try (var producer = new KafkaProducer<String, String>(config)) {
            for (String value : values) {
                producer.send(new ProducerRecord<>(topic, 0, null, value));
            }
        }
    }

    private KafkaShareConsumer<String, String> consumer(String mode, Map<String, Object> more) {
        var consumer = new KafkaShareConsumer<String, String>(consumerConfig(mode, more));
        consumer.subscribe(Set.of(topic));
        return consumer;
    }

    private Map<String, Object> consumerConfig(String mode, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("share.acknowledgement.mode", mode);
        config.put("key.deserializer", StringDeserializer.class);
        config.put("value.deserializer", StringDeserializer.class);
        return config;
    }

    private TopicPartition first() {
        return new TopicPartition(topic, 0);
    }

    /** Polls until this many records came in one poll or, in implicit mode, in several. */
    private static List<ConsumerRecord<String, String>> take(KafkaShareConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> taken = new ArrayList<>();
        until(count + " records come", () -> {
            consumer.poll(POLL).forEach(taken::add);
            return taken.size() >= count;
        });
        return taken;
    }

    private static void until(String what, BooleanSupplier happens) {
        long limit = System.nanoTime() + WAIT_MS_MAX * 1_000_000;
        while (!happens.getAsBoolean()) {
            if (System.nanoTime() > limit) {
                throw new IllegalStateException("not within " + WAIT_MS_MAX + " ms: " + what);
            }
        }
    }

    private static Map<Integer, String> results(Map<TopicIdPartition, Optional<KafkaException>> committed) {
        return committed.entrySet().stream().collect(Collectors.toMap(
            one -> one.getKey().partition(), one -> name(one.getValue().orElse(null)), (a, b) -> a, TreeMap::new));
    }

    private static String name(Exception error) {
        return error == null ? "ok" : error.getClass().getSimpleName();
    }

    private static String thrown(Runnable call, Class<? extends Exception> expected) {
        try {
            call.run();
            return "nothing was thrown";
        } catch (RuntimeException error) {
            return expected.isInstance(error) ? name(error) : error.toString();
        }
    }

    /** Something that an administrator waits for. */
    private interface Asked {
        Object answer() throws ExecutionException, InterruptedException;
    }

    private static String failure(Asked asked) throws InterruptedException {
        try {
            asked.answer();
            return "ok";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    private static String partitions(ShareMemberDescription member) {
        return member.assignment().topicPartitions().stream().map(TopicPartition::partition).sorted().toList()
            .toString();
    }

    private static List<String> texts(Iterable<ConsumerRecord<String, String>> records) {
        List<String> all = new ArrayList<>();
        records.forEach(record -> all.add(text(record)));
        return all;
    }

    private static String text(ConsumerRecord<String, String> record) {
        return record.offset() + "=" + record.value() + " #" + record.deliveryCount().get();
    }

    private void say(String what, Object value) {
        told.append(what).append(": ").append(value).append('\n');
    }
}
