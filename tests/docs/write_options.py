"""Writes docs/client-options.md and docs/spark-options.md from the definitions of the options."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import Field, fields
from enum import StrEnum
from itertools import pairwise

from sharegroup.client.settings.client_config import ClientConfig, ProducerConfig
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.settings.kafka_properties import NAMES, OBJECTS
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.spark.options import BATCH, LETTERS, SINK, STATE, STREAM, Option
from tests.docs.write_reference import in_line, string

CLIENT_WORDS = """\
The clients of `sharegroup.client` and `sharegroup.client.sync` take these keyword arguments. Names
are Kafka's with underscores for dots; times are in milliseconds (`_ms`). An unknown name is refused
with the most similar one. The last column is the name in a properties file (`--command-config`),
and, after `kafka.`, in Spark."""
SPARK_WORDS = """\
Options of the format `kafka-share`. Names are those of Spark's own Kafka source where the meaning
is the same; upper and lower case are alike. Any other option is refused with what to use instead.
[Spark](spark.md) explains how they belong together."""
BOOTSTRAP = "addresses of brokers: `host:port`, with commas between"
CLIENTS = "every property of [every client](client-options.md#every-client)"
KINDS = {
    "Every client": (
        ClientConfig,
        "Options of `ShareConsumer`, `Consumer`, `Producer` and `AdminClient`.",
    ),
    "Producer": (ProducerConfig, "Options of a `Producer`, besides those of every client."),
    "Consumer": (ConsumerConfig, "Options of a `Consumer`, besides those of every client."),
    "ShareConsumer": (
        ShareConsumerConfig,
        "Options of a `ShareConsumer`, besides those of every client.",
    ),
}
BYTES_MIN = 64 * 1024


def client_options_page() -> Iterator[str]:
    yield CLIENT_WORDS
    common = {field.name for field in fields(ClientConfig)}
    for title, (kind, text) in KINDS.items():
        yield f"\n## {title}\n\n{text}\n"
        yield "| option | default | meaning | property |\n|---|---|---|---|"
        texts = field_texts(kind)
        for field in fields(kind):
            if kind is ClientConfig or field.name not in common:
                cells = (f"`{field.name}`", default_text(field), texts[field.name])
                yield f"| {' | '.join(cells)} | {property_name(field.name, kind)} |"


def field_texts(kind: type[ClientConfig]) -> dict[str, str]:
    """The text below each field; KeyError in the caller is a field without a text."""
    (class_,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(class_, ast.ClassDef)
    return {
        ast.unparse(node.target): in_line(text)
        for node, after in pairwise(class_.body)
        if isinstance(node, ast.AnnAssign) and (text := string(after)) is not None
    }


def default_text(field: Field[object]) -> str:
    value = field.default
    if value is None:
        return "none"
    if isinstance(value, StrEnum):
        return f"`{value.value}`"
    if value == "":
        return "required"
    is_size = isinstance(value, int) and "bytes" in field.name and value >= BYTES_MIN
    return f"{value:,} ({size(value)})" if is_size and isinstance(value, int) else f"`{value}`"


def size(value: int) -> str:
    mebibytes, rest = divmod(value, 1024 * 1024)
    return f"{value // 1024} KiB" if rest else f"{mebibytes} MiB"


def property_name(option: str, kind: type[ClientConfig]) -> str:
    """The names of Kafka and librdkafka; without one, the option's own with dots."""
    if option in OBJECTS:
        return "-"
    own = [name for name, keyword in NAMES.items() if keyword == option]
    if option == "in_flight_max" and kind is ShareConsumerConfig:
        own = []  # The name in the table is that of the producer's option.
    if not own or option == "sasl_mechanism":
        own.insert(0, option.replace("_", "."))
    return ", ".join(f"`{name}`" for name in own)


def spark_options_page() -> Iterator[str]:
    yield SPARK_WORDS
    for title, options in {
        "`spark.readStream`": STREAM,
        "`spark.read`": BATCH,
        "`kafka-share-letters`": LETTERS,
        "`kafka-share-state`": STATE,
        "`df.write` and `df.writeStream`": SINK,
    }.items():
        yield f"\n## {title}\n\n| option | default | meaning |\n|---|---|---|"
        yield f"| `kafka.bootstrap.servers` | required | {BOOTSTRAP} |"
        yield from map(option_row, options)
        also = " and of the [producer](client-options.md#producer)" if options is SINK else ""
        yield f"| `kafka.*` | as of the client | {CLIENTS}{also} |"


def option_row(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in (option.name, *option.aliases))
    return f"| {names} | {option.default} | {option.text} |"
