"""examples/testing/SharegroupBroker.java with Kafka's own clients, as docs/testing.md uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import kafka_peer
from tests.support.java_shell import (
    COMPILE_SECONDS_MAX,
    JAVA_RELEASE,
    NO_COMPILER,
    PROGRAM_SECONDS_MAX,
    QUICK,
    javac,
)

WHY_NO_JAVA = kafka_peer.why_missing() or (None if javac() else NO_COMPILER)
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(WHY_NO_JAVA is not None, reason=WHY_NO_JAVA or ""),
]
SOURCE = Path(__file__).resolve().parents[2] / "examples" / "testing" / "SharegroupBroker.java"
USER = """\
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

public final class UserTest {
    public static void main(String[] arguments) throws Exception {
        try (SharegroupBroker broker = new SharegroupBroker(arguments[0])) {
            Map<String, Object> client = Map.of("bootstrap.servers", broker.bootstrapServers());
            Map<String, Object> member = Map.of(
                    "bootstrap.servers", broker.bootstrapServers(), "group.id", "billing");
            try (Admin admin = Admin.create(client)) {
                ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "billing");
                ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
                admin.incrementalAlterConfigs(Map.of(group, List.of(
                        new AlterConfigOp(earliest, AlterConfigOp.OpType.SET)))).all().get();
            }
            StringSerializer in = new StringSerializer();
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(client, in, in)) {
                producer.send(new ProducerRecord<>("orders", "one apple")).get();
            }
            StringDeserializer out = new StringDeserializer();
            try (KafkaShareConsumer<String, String> consumer =
                    new KafkaShareConsumer<>(member, out, out)) {
                consumer.subscribe(List.of("orders"));
                int count = 0;
                while (count == 0) {
                    for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofSeconds(1))) {
                        System.out.println("got " + r.value());
                        count++;
                    }
                }
            }
        }
        System.out.println("stopped");
    }
}
"""


def run_java(command: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (user := tmp_path / "UserTest.java").write_text(USER)
    libs, classes = kafka_peer.kafka_libs(), tmp_path / "classes"
    compiler, executable = javac(), kafka_peer.java()
    assert compiler is not None
    assert executable is not None
    subprocess.run(
        [compiler, "--release", JAVA_RELEASE, "-d", classes, "-cp", f"{libs}/*", SOURCE, user],
        check=True,
        timeout=COMPILE_SECONDS_MAX,
    )
    path = f"{classes}{os.pathsep}{libs}/*"
    return subprocess.run(
        [executable, *QUICK, f"-Djava.io.tmpdir={tmp_path}", "-cp", path, "UserTest", command],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )


def program(tmp_path: Path, text: str) -> str:
    path = tmp_path / "sharegroup"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_java_clients_use_the_broker_and_it_stops(tmp_path: Path) -> None:
    done = run_java(program(tmp_path, f'exec "{sys.executable}" -m sharegroup "$@"'), tmp_path)
    assert (done.returncode, done.stdout) == (0, "got one apple\nstopped\n"), done.stderr
    (log,) = tmp_path.glob("sharegroup-test-*/broker.log")
    assert "event=stopped" in log.read_text()


@pytest.mark.slow
def test_broker_that_does_not_start_is_an_error_that_names_its_log(tmp_path: Path) -> None:
    done = run_java(program(tmp_path, "echo no such thing >&2; exit 1"), tmp_path)
    assert done.returncode == 1
    (log,) = tmp_path.glob("sharegroup-test-*/broker.log")
    assert f"the broker ended before it was ready; see {log}" in done.stderr
