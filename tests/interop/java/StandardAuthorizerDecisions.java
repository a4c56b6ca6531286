import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.MetricValueProvider;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Asks Kafka's own StandardAuthorizer about ACLs that are read from the standard input.
 *
 * <p>A line has four parts that are separated by tabs: whether everyone is allowed if there is no
 * ACL, the super users, the ACLs, and the questions. ACLs are separated by spaces and have the
 * fields {@code type;pattern;name;principal;host;operation;permission} with the codes of the
 * protocol. A question is {@code principal;host;type;name}; the answer is the bit field of the
 * allowed operations, a slash, and that of the operations that are allowed on any resource of the
 * type. The answers to a line are one line.
 */
public final class StandardAuthorizerDecisions {
    private StandardAuthorizerDecisions() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            StandardAuthorizer authorizer = authorizer(parts[0], parts[1], parts[2]);
            for (String question : parts[3].split(" ")) {
                answers.append(answer(authorizer, question.split(";", -1))).append(' ');
            }
            answers.setCharAt(answers.length() - 1, '\n');
        }
        System.out.print(answers);
    }

    private static StandardAuthorizer authorizer(String allow, String superUsers, String acls) {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
                StandardAuthorizer.SUPER_USERS_CONFIG, superUsers.replace(' ', ';'),
                StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, allow));
        authorizer.withPluginMetrics(new NoMetrics());
        Map<Uuid, StandardAcl> loaded = new HashMap<>();
        for (String acl : acls.isEmpty() ? new String[0] : acls.split(" ")) {
            String[] fields = acl.split(";", -1);
            loaded.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(Byte.parseByte(fields[0])),
                    fields[2],
                    PatternType.fromCode(Byte.parseByte(fields[1])),
                    fields[3],
                    fields[4],
                    AclOperation.fromCode(Byte.parseByte(fields[5])),
                    AclPermissionType.fromCode(Byte.parseByte(fields[6]))));
        }
        authorizer.loadSnapshot(loaded);
        authorizer.completeInitialLoad();
        return authorizer;
    }

    private static String answer(StandardAuthorizer authorizer, String[] fields) throws Exception {
        String[] principal = fields[0].split(":", 2);
        RequestContext context = new RequestContext(
                new RequestHeader(ApiKeys.METADATA, (short) 12, "", 0),
                "1",
                InetAddress.getByName(fields[1]),
                new KafkaPrincipal(principal[0], principal[1]),
                new ListenerName("PLAINTEXT"),
                SecurityProtocol.PLAINTEXT,
                ClientInformation.EMPTY,
                false);
        ResourceType type = ResourceType.fromCode(Byte.parseByte(fields[2]));
        ResourcePattern resource = new ResourcePattern(type, fields[3], PatternType.LITERAL);
        int allowed = 0;
        int anywhere = 0;
        for (AclOperation operation : AclOperation.values()) {
            if (operation.code() <= AclOperation.ALL.code()) {
                continue;
            }
            List<Action> actions = List.of(new Action(operation, resource, 1, false, false));
            if (authorizer.authorize(context, actions).get(0) == AuthorizationResult.ALLOWED) {
                allowed |= 1 << operation.code();
            }
            if (authorizer.authorizeByResourceType(context, operation, type)
                    == AuthorizationResult.ALLOWED) {
                anywhere |= 1 << operation.code();
            }
        }
        return allowed + "/" + anywhere;
    }

    /** The metrics of the authorizer, which nothing here reads. */
    private static final class NoMetrics implements PluginMetrics {
        private final Metrics metrics =
                new Metrics();

        @Override
        public MetricName metricName(
                String name, String description, LinkedHashMap<String, String> tags) {
            return new MetricName(name, "plugins", description, tags);
        }

        @Override
        public void addMetric(
                MetricName name,
                MetricValueProvider<?> provider) {
            metrics.addMetric(name, provider);
        }

        @Override
        public void removeMetric(MetricName name) {
            metrics.removeMetric(name);
        }

        @Override
        public Sensor addSensor(String name) {
            return metrics.sensor(name);
        }

        @Override
        public void removeSensor(String name) {
            metrics.removeSensor(name);
        }
    }
}
