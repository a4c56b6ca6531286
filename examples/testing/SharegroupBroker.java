import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/**
 * A broker of sharegroup for tests in Java: a process on a free port, with its data and its log in a
 * new temporary folder.
 *
 * <p>It needs the command {@code sharegroup} on the PATH, or its path as an argument. With JUnit:
 *
 * <pre>
 *   static SharegroupBroker broker;
 *   {@literal @}BeforeAll static void start() { broker = new SharegroupBroker("sharegroup"); }
 *   {@literal @}AfterAll static void stop() { broker.close(); }
 *   // then: properties.put("bootstrap.servers", broker.bootstrapServers());
 * </pre>
 */
public final class SharegroupBroker implements AutoCloseable {
    private static final String READY = "ready bootstrap=";
    private static final long STOP_SECONDS_MAX = 30;

    private final Process process;
    private final String bootstrapServers;

    /** Starts the broker and waits until it accepts connections. */
    public SharegroupBroker(String command) {
        try {
            Path folder = Files.createTempDirectory("sharegroup-test-");
            Path log = folder.resolve("broker.log");
            String data = folder.resolve("data").toString();
            process = new ProcessBuilder(command, "serve", "--port", "0", "--data", data, "--durability", "os")
                    .redirectError(log.toFile())
                    .start();
            // A broker that no test closed ends with the tests.
            Runtime.getRuntime().addShutdownHook(new Thread(process::destroy));
            BufferedReader lines = new BufferedReader(
                    new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            String line = lines.readLine();
            while (line != null && !line.startsWith(READY)) {
                line = lines.readLine();
            }
            if (line == null) {
                throw new IllegalStateException("the broker ended before it was ready; see " + log);
            }
            bootstrapServers = line.substring(READY.length()).split(" ")[0];
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** The address for Kafka's clients. */
    public String bootstrapServers() {
        return bootstrapServers;
    }

    @Override
    public void close() {
        process.destroy(); // SIGTERM: the broker stops cleanly.
        try {
            if (!process.waitFor(STOP_SECONDS_MAX, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
