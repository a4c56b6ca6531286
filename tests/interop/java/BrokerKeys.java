import java.util.Map;
import java.util.TreeMap;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints the configuration keys of Kafka's broker and topics, one in a line, with tabs between. */
public final class BrokerKeys {
    private BrokerKeys() {}

    public static void main(String[] arguments) {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        print("broker", AbstractKafkaConfig.CONFIG_DEF, modes);
        print("topic", LogConfig.configDefCopy(), Map.of());
    }

    private static void print(String resource, ConfigDef keys, Map<String, String> modes) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(keys.configKeys()).values()) {
            String value = "-";
            if (key.hasDefault() && key.defaultValue != null) {
                value = "=" + ConfigDef.convertToString(key.defaultValue, key.type);
            }
            String mode = modes.getOrDefault(key.name, "read-only");
            System.out.println(String.join("\t", resource, key.name, key.type.toString(), value,
                key.internalConfig ? "internal" : "listed", mode));
        }
    }
}
