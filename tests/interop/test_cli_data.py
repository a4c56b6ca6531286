"""``sharegroup produce | consume | perf | logs`` beside Kafka's own tools, on both brokers.

The same records are read by both command lines, and both must print the same bytes; the same
data directory is read by both, and both must find the same in it.  A group of Kafka's needs
seconds until it has its partitions, and a tool of Kafka's until it has started, so those that
don't depend on each other run side by side.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import confluent_calls, kafka_peer, kafka_tools
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.confluent_calls import create_topic, set_group
from tests.support.kafka_peer import KafkaPeer
from tests.support.kafka_tools import run_tool

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(
        kafka_tools.why_missing() is not None, reason=str(kafka_tools.why_missing())
    ),
]

SECONDS_MAX = 60
TOOLS = "org.apache.kafka.tools"
FORMATTERS = {
    "__share_group_state": f"{TOOLS}.consumer.group.share.ShareGroupStateMessageFormatter",
    "__consumer_offsets": f"{TOOLS}.consumer.ShareGroupMessageFormatter",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Cluster(NamedTuple):
    """A broker and where its files are."""

    bootstrap_servers: str
    data: Path


@pytest.fixture(scope="module", params=["sharegroup", pytest.param("kafka", marks=LONG_WITH_A_JVM)])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A broker: ours, and then a real Apache Kafka."""
    if request.param == "sharegroup":
        broker = request.getfixturevalue("broker")
        yield Cluster(broker.bootstrap_servers, broker.data)
        return
    if kafka_peer.why_missing() is not None:
        pytest.skip(str(kafka_peer.why_missing()))
    folder: Path = tmp_path_factory.mktemp("cli-data")
    settings = {"log.segment.bytes": "1048576"}
    with KafkaPeer(folder, settings, heap="512m") as kafka:
        yield Cluster(kafka.bootstrap_servers, folder / "data")
        confluent_calls.admin.cache_clear()


def command(cluster: Cluster, words: str, *more: str) -> list[str]:
    """``sharegroup WORDS...`` for a process of its own."""
    return [
        *(sys.executable, "-m", "sharegroup", *words.split(), *more),
        *("--bootstrap-server", cluster.bootstrap_servers),
    ]


def run(cluster: Cluster, words: str, *more: str, stdin: bytes = b"") -> bytes:
    """What it printed; it must end with exit code 0."""
    done = subprocess.run(
        command(cluster, words, *more), input=stdin, capture_output=True, timeout=SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def logs(cluster: Cluster, words: str) -> list[Any]:
    """What ``sharegroup logs`` finds, as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "sharegroup", "logs", str(cluster.data), *words.split()],
        capture_output=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    if "--records" in words:
        return [json.loads(line) for line in done.stdout.splitlines()]
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


def kafka_tool(cluster: Cluster, name: str, words: str) -> str:
    return run_tool(
        f"{TOOLS}.{name}", "--bootstrap-server", cluster.bootstrap_servers, *words.split()
    )


def earliest(cluster: Cluster, *groups: str) -> None:
    for group in groups:
        set_group(cluster.bootstrap_servers, group, auto_offset_reset="earliest")


@pytest.fixture(scope="module")
def consumed(cluster: Cluster) -> tuple[list[str], list[str]]:
    """What our console consumer and Kafka's print of the same records, line by line.

    The records were written by our `produce`, one run for each codec.
    """
    topic = "cli.printed"
    create_topic(cluster.bootstrap_servers, topic)
    earliest(cluster, "cli.ours", "cli.theirs")
    for codec in CODECS:
        text = "".join(f"codec:{codec},null:NULL\tkey{n}\tvälue {n}\n" for n in range(20))
        options = "--key-separator \\t --headers --null-marker NULL --compression"
        run(cluster, f"produce {topic} {options} {codec}", stdin=text.encode())
    count = 20 * len(CODECS)
    printed = " ".join(
        f"--formatter-property print.{part}=true"
        for part in ("partition", "offset", "delivery", "headers", "key")
    )
    words = f"--max-messages {count} --timeout-ms 30000 {printed}"
    with ThreadPoolExecutor() as side_by_side:
        ours = side_by_side.submit(run, cluster, f"consume {topic} --group cli.ours {words}")
        theirs = side_by_side.submit(
            kafka_tool,
            cluster,
            "consumer.ConsoleShareConsumer",
            f"--topic {topic} --group cli.theirs {words}",
        )
        return ours.result().decode().splitlines(), theirs.result().splitlines()


@pytest.mark.slow
def test_both_consoles_print_the_same_lines(consumed: tuple[list[str], list[str]]) -> None:
    ours, theirs = consumed
    assert ours[0] == ("Partition:0\tOffset:0\tDelivery:1\tcodec:none,null:null\tkey0\tvälue 0")
    assert len(ours) == 20 * len(CODECS)
    assert ours == theirs


@pytest.mark.usefixtures("consumed")
@LONG_WITH_A_JVM
def test_logs_and_kafkas_formatters_print_the_same_records(cluster: Cluster) -> None:
    with ThreadPoolExecutor() as side_by_side:
        compared = {
            topic: side_by_side.submit(both_printed, cluster, topic) for topic in FORMATTERS
        }
        for topic, printed in compared.items():
            ours, theirs = printed.result()
            assert len(ours) >= 2, topic
            assert ours == theirs


def both_printed(cluster: Cluster, topic: str) -> tuple[list[Any], list[Any]]:
    """The records of the group ``cli.ours`` in an internal topic, by `logs` and by Kafka's tool."""
    data = [log for log in logs(cluster, f"--records --topic {topic}") if "control" not in log]
    known = [log for log in data if "unknown" not in log]
    ours = [entry for entry in known if entry["key"]["data"].get("groupId") == "cli.ours"]
    partition, last = ours[0]["partition"], ours[-1]["offset"]
    records = [log for log in data if log["partition"] == partition and log["offset"] <= last]
    printed = kafka_tool(
        cluster,
        "consumer.ConsoleConsumer",
        f"--topic {topic} --partition {partition} --offset earliest "
        f"--max-messages {len(records)} --timeout-ms 30000 "
        f"--formatter {FORMATTERS[topic]}",
    )
    theirs = [
        entry for entry in objects(printed) if entry["key"]["data"].get("groupId") == "cli.ours"
    ]
    return [{"key": entry["key"], "value": entry["value"]} for entry in ours], theirs


@pytest.mark.slow
@pytest.mark.usefixtures("consumed")
def test_logs_and_kafkas_dump_find_the_same_batches(cluster: Cluster) -> None:
    ours = logs(cluster, "--batches --topic cli.printed --json")
    (file,) = cluster.data.glob(f"{folder_of(cluster, 'cli.printed')}/*.log")
    dumped = run_tool(f"{TOOLS}.DumpLogSegments", "--files", str(file))
    names = "baseOffset lastOffset count producerId producerEpoch baseSequence position size crc"
    pattern = re.compile(r"(\w+): (\S+)")
    theirs = [dict(pattern.findall(line)) for line in dumped.splitlines() if "baseOffset" in line]
    assert [
        [batch[name] for name in names.split()] + [batch["compresscodec"]] for batch in theirs
    ] == [
        [
            str(batch[name])
            for name in (
                *("base_offset", "last_offset", "records", "producer_id", "producer_epoch"),
                *("base_sequence", "position", "bytes", "crc", "codec"),
            )
        ]
        for batch in ours
    ]
    assert [batch["codec"] for batch in ours] == list(CODECS)


@LONG_WITH_A_JVM
def test_both_perf_tools_print_the_same_columns(cluster: Cluster) -> None:
    topic = "cli.perf"
    create_topic(cluster.bootstrap_servers, topic, partitions=2)
    earliest(cluster, "cli.perf.ours", "cli.perf.theirs")
    sent = run(cluster, f"perf produce --topic {topic} --num-records 5000 --record-size 100")
    assert sent.startswith(b"5000 records sent, ")
    words = f"--topic {topic} --num-records 5000 --timeout 30000"
    with ThreadPoolExecutor() as side_by_side:
        ours = side_by_side.submit(
            run, cluster, f"perf consume --group cli.perf.ours --threads 2 {words}"
        )
        theirs = side_by_side.submit(
            kafka_tool, cluster, "ShareConsumerPerformance", f"--group cli.perf.theirs {words}"
        )
        our_lines = [line.split(", ") for line in ours.result().decode().splitlines()]
        their_lines = [line.split(", ") for line in theirs.result().splitlines()[:2]]
    assert our_lines[0][: len(their_lines[0])] == their_lines[0]
    assert [lines[1][5] for lines in (our_lines, their_lines)] == ["5000", "5000"]
    assert [lines[1][2] for lines in (our_lines, their_lines)] == ["0.4768", "0.4768"]


@pytest.mark.slow
def test_nothing_is_lost_or_accepted_twice_through_a_broken_pipe_and_a_signal(
    cluster: Cluster,
) -> None:
    """A reader exits in the middle of a record; the next one is stopped by Ctrl-C."""
    topic, group = "cli.pipe", "cli.pipes"
    create_topic(cluster.bootstrap_servers, topic)
    earliest(cluster, group)
    run(cluster, f"produce {topic}", stdin=b"x" * 500_000 + b"\nlast\n")
    words = f"consume {topic} --group {group} --format %V,%c,%v{{hex}}\\n"
    with process(command(cluster, words)) as child:
        assert child.stdout is not None
        assert child.stdout.read(10) == b"500000,1,7"
        child.stdout.close()
    assert child.returncode == 1
    with process(command(cluster, f"consume {topic} --group {group} --format %V,%c\\n")) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"500000,2\n"
        assert child.stdout.readline() == b"4,2\n"
        child.send_signal(signal.SIGINT)
    assert child.returncode == 0
    (described,) = json.loads(run(cluster, f"groups describe --group {group} --json"))
    assert described["lag"] == 0, "both are accepted"


def process(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def folder_of(cluster: Cluster, topic: str) -> str:
    """The name of the folder of partition 0, ours or Kafka's."""
    (found,) = logs(cluster, f"--topic {topic} --json")
    for name in sorted(os.listdir(cluster.data)):
        inside = cluster.data / name / f"{found['segment']:020d}.log"
        if name == f"{topic}-0" or (inside.is_file() and b"key0" in inside.read_bytes()):
            return name
    raise AssertionError(f"no folder of {topic} in {cluster.data}")


def objects(text: str) -> list[Any]:
    """JSON objects that stand one behind the other."""
    decoder, found, position = json.JSONDecoder(), [], text.index("{")
    while position < len(text):
        parsed, position = decoder.raw_decode(text, position)
        found.append(parsed)
        while position < len(text) and text[position] in " \r\n":
            position += 1
    return found
