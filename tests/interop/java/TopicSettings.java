import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.Map;

import org.apache.kafka.storage.internals.log.LogConfig;

/** Reads settings of topics, a line each of "key=value" with tabs between; prints what Kafka says. */
public final class TopicSettings {
    private TopicSettings() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Map<String, String> settings = new LinkedHashMap<>();
            for (String pair : line.split("\t")) {
                int at = pair.indexOf('=');
                settings.put(pair.substring(0, at), pair.substring(at + 1));
            }
            try {
                LogConfig.validate(settings);
                System.out.println("valid");
            } catch (RuntimeException error) {
                System.out.println("invalid");
            }
        }
    }
}
