"""Avro values that would end the process, or take all of its memory, are errors.

Each value is decoded in a process of its own, by the function that Spark and the console use, and
by the worker's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.unit.schema_registry.test_avro_values import LIST, MONEY, TREE, array, long, record

pytest.importorskip("confluent_kafka.schema_registry")


def doubling(levels: int) -> Any:
    """A record of two records of two records …, and nulls at the end."""
    inner: Any = record("R0", "null", "null")
    for number in range(1, levels):
        inner = record(f"R{number}", inner, inner["name"])
    return inner


def flat(levels: int) -> list[Any]:
    """A union in which each record has the one before; it does not refer to itself."""
    first = record("R0", ["null", "int"])
    further = [record(f"R{number}", ["null", f"R{number - 1}"]) for number in range(1, levels)]
    return [first, *further]


MANY = long(10**12)
HOSTILE = [
    pytest.param(LIST, b"\x02" * 65_000 + b"\x00", "300 deep", id="list"),
    pytest.param(TREE, b"\x00\x02" * 30_000 + b"\x00\x00", "300 deep", id="tree"),
    pytest.param(record("A", array(record("B", ["null", array("A")]))),
                 b"\x02\x02" * 30_000, "300 deep", id="two types"),
    pytest.param(record("M", {"type": "map", "values": "M"}), b"\x02\x00" * 30_000, "300 deep",
                 id="maps"),
    pytest.param(record("Self", "Self"), b"\x00", "300 deep", id="itself"),
    pytest.param(flat(20_000), long(19_999) + b"\x02" * 20_000 + b"\x00", "300 deep",
                 id="not itself"),
    pytest.param(array("null"), MANY + b"\x00", "10000 values", id="nulls"),
    pytest.param(array("null"), long(-(10**12)) + b"\x02\x00", "10000 values", id="sized block"),
    pytest.param(array(record("Empty")), MANY, "10000 values", id="empty records"),
    pytest.param(array({"type": "fixed", "name": "F", "size": 0}), MANY, "10000 values",
                 id="fixed"),
    pytest.param(doubling(40), b"\x00", "10000 values", id="doubling"),
    pytest.param(array(["null", doubling(14)]), b"\x80\x01" + b"\x02" * 64, "10000 values",
                 id="large branch"),
    pytest.param(MONEY, long(1_000_000) + b"\x7f" * 1_000_000, "4096 bytes, found", id="decimal"),
]  # fmt: skip
SCRIPT = """
import resource, sys
from sharegroup.schema_registry.avro_values import avro_decode
from sharegroup.schema_registry.decoding import FetchedSchema
from sharegroup.worker.payloads.codec import codec_for
from sharegroup.worker import Registry
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from typing import Any

text, payload = sys.stdin.buffer.read().split(b"|", 1)
if sys.argv[1] == "worker":
    client = SchemaRegistryClient.new_client({"url": "mock://hostile"})
    number = client.register_schema("hostile", Schema(text.decode(), "AVRO"))
    payload = b"\\0" + number.to_bytes(4, "big") + payload
    decode = codec_for(Any, Registry(client)).decode
else:
    decode = lambda payload: avro_decode(FetchedSchema(text.decode(), {}), None)(payload)
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
try:
    decode(payload)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("side", ["worker", pytest.param("others", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("schema", "payload", "text"), HOSTILE)
def test_value_that_would_end_the_process_is_an_error(
    schema: Any, payload: bytes, text: str, side: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, side],
        input=json.dumps(schema).encode() + b"|" + payload,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr.decode()
    expected = "UnreadablePayload" if side == "worker" else "UnreadableValue"
    assert ended.stdout.decode().startswith(expected), ended
    assert text in ended.stdout.decode()
