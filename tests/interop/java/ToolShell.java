import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Many runs of Kafka's tools in one virtual machine, for starting one costs more than most runs.
 *
 * <p>A call on standard input is a main class, its arguments and its standard input; the answer on
 * standard output is its exit code, what it printed and what it complained of. The tools are
 * Kafka's jars as they are. Two things make a run here like a run of its own: the classes of
 * org.apache.kafka.tools are loaded anew for each, since some count in static fields, and an exit
 * (all of Kafka goes through {@link Exit}) ends the run and not the machine.
 */
public final class ToolShell {
    private static final String LOADED_ANEW = "org.apache.kafka.tools.";
    private static final long HOOK_MS_MAX = 10_000;

    /** Unwinds a tool that exits; what it prints while it unwinds is not part of its output. */
    private static final class Exited extends Error {
        Exited() {
            super("exit", null, false, false);
        }
    }

    /** One run of a tool. */
    private static final class Run {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        Integer code;
        byte[] printed;
        byte[] complained;
        private final List<Runnable> atExit = new ArrayList<>();

        void end(int with) {
            if (code == null) {
                atExit.forEach(Run::runInTime);
                System.out.flush();
                System.err.flush();
                code = with;
                printed = out.toByteArray();
                complained = err.toByteArray();
            }
        }

        /** What a tool does when its machine ends: the console producer sends the rest. */
        private static void runInTime(Runnable hook) {
            Thread thread = new Thread(hook);
            thread.setDaemon(true);
            thread.start();
            try {
                thread.join(HOOK_MS_MAX);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        }
    }

    public static void main(String[] ignored) throws IOException {
        DataInputStream calls = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        while (true) {
            String mainClass;
            try {
                mainClass = text(calls);
            } catch (EOFException end) {
                Runtime.getRuntime().halt(0);
                return;
            }
            String[] arguments = new String[calls.readInt()];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = text(calls);
            }
            Run run = run(mainClass, arguments, new ByteArrayInputStream(bytes(calls)));
            answers.writeInt(run.code);
            for (byte[] part : new byte[][] {run.printed, run.complained}) {
                answers.writeInt(part.length);
                answers.write(part);
            }
            answers.flush();
        }
    }

    private static Run run(String mainClass, String[] arguments, InputStream input) {
        Run run = new Run();
        Exit.Procedure exit = (code, message) -> {
            run.end(code);
            throw new Exited();
        };
        Exit.setShutdownHookAdder((name, hook) -> run.atExit.add(hook));
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        System.setIn(input);
        System.setOut(new PrintStream(run.out, true));
        System.setErr(new PrintStream(run.err, true));
        ClassLoader loader = new ToolLoader();
        Thread.currentThread().setContextClassLoader(loader);
        try {
            loader.loadClass(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
            run.end(0);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) {
                thrown.getCause().printStackTrace();
            }
            run.end(1);
        } catch (ReflectiveOperationException wrong) {
            wrong.printStackTrace();
            run.end(1);
        }
        return run;
    }

    private static String text(DataInputStream from) throws IOException {
        return new String(bytes(from), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(DataInputStream from) throws IOException {
        byte[] read = new byte[from.readInt()];
        from.readFully(read);
        return read;
    }

    /** Loads the classes of the tools itself, and all others as the machine does. */
    private static final class ToolLoader extends URLClassLoader {
        private static final URL[] CLASS_PATH =
            Arrays.stream(System.getProperty("java.class.path").split(java.io.File.pathSeparator))
                .map(ToolLoader::url).toArray(URL[]::new);

        ToolLoader() {
            super(CLASS_PATH, ToolShell.class.getClassLoader());
        }

        private static URL url(String path) {
            try {
                return Path.of(path).toUri().toURL();
            } catch (java.net.MalformedURLException wrong) {
                throw new IllegalArgumentException(path, wrong);
            }
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith(LOADED_ANEW)) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                return loaded != null ? loaded : findClass(name);
            }
        }
    }
}
