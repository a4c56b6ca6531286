import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.TreeMap;

/** Loads each line of the input, a text in hexadecimal UTF-8, as properties, and prints its pairs. */
public final class PropertiesReader {
    private PropertiesReader() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            byte[] text = HexFormat.of().parseHex(line);
            System.out.println(loaded(new String(text, StandardCharsets.UTF_8)));
        }
    }

    private static String loaded(String text) throws IOException {
        Properties properties = new Properties();
        try {
            properties.load(new StringReader(text));
        } catch (IllegalArgumentException malformed) {
            return "malformed";
        }
        StringJoiner pairs = new StringJoiner(",");
        new TreeMap<>(properties).forEach((key, value) -> pairs.add(hex(key) + "=" + hex(value)));
        return pairs.toString();
    }

    private static String hex(Object text) {
        return HexFormat.of().formatHex(((String) text).getBytes(StandardCharsets.UTF_16BE));
    }
}
