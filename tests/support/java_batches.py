"""What Kafka's own classes read from record batches (`tests/interop/java/OddBatches.java`)."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from typing import NamedTuple

from tests.support.java_shell import PROGRAM_SECONDS_MAX, java_command
from tests.support.kafka_peer import kafka_libs


class JavaReading(NamedTuple):
    """The records that Java read from a batch before its end, or before an error."""

    count: int
    digest: str
    error: str
    """The class of the error; "-" if there was none."""


def read_by_java(batches: Iterable[bytes]) -> list[JavaReading]:
    """What Java reads from each of these batches."""
    return [_reading(line) for line in _printed(batches)]


def records_read_by_java(batch: bytes) -> list[str]:
    """The lines of the records that Java reads from one batch, to look at a difference."""
    return _printed([batch], "records")[:-1]


def _reading(line: str) -> JavaReading:
    count, digest, error = line.split()
    return JavaReading(int(count), digest, error)


def _printed(batches: Iterable[bytes], *arguments: str) -> list[str]:
    done = subprocess.run(
        java_command(kafka_libs(), "OddBatches", *arguments),
        input=b"".join(len(batch).to_bytes(4, "big") + batch for batch in batches),
        capture_output=True,
        timeout=PROGRAM_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def line_of(
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
) -> str:
    """A record as Java's program writes it, for `digest_of`."""
    fields = [f"{offset} {timestamp} {timestamp_type} {_hex(key)} {_hex(value)}"]
    fields += (f"{name.encode().hex()}={_hex(content)}" for name, content in headers)
    return " ".join(fields)


def digest_of(lines: Iterable[str]) -> str:
    """The digest that Java's program writes for records with these lines."""
    whole = "".join(f"{line}\n" for line in lines)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _hex(content: bytes | None) -> str:
    return "-" if content is None else content.hex()
