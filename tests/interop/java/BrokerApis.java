import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;

/** Prints id, name, and the oldest and newest stable version of the requests of a Kafka broker. */
public final class BrokerApis {
    private BrokerApis() {}

    public static void main(String[] arguments) {
        for (ApiKeys api : ApiKeys.apisForListener(ApiMessageType.ListenerType.BROKER)) {
            System.out.println(String.join("\t", Short.toString(api.id), api.name,
                Short.toString(api.oldestVersion()), Short.toString(api.latestVersion(false))));
        }
    }
}
