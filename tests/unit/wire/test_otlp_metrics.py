"""The reader of OpenTelemetry's metrics: values, labels, and hostile payloads."""

from __future__ import annotations

import contextlib
import random

import pytest

from sharegroup.errors import InvalidRecord
from sharegroup.steps import run_to_end
from sharegroup.wire.otlp_metrics import (
    FIELDS_MAX,
    FIELDS_PER_STEP,
    VALUES_MAX,
    OtlpMetrics,
    OtlpValue,
    read_metrics,
)
from tests.support.otlp import attribute, field, gauge, metrics_of, number, point, sum_of, varint


def read(payload: bytes) -> OtlpMetrics:
    return run_to_end(read_metrics(payload))


def test_gauges_and_sums_are_read_with_their_labels() -> None:
    payload = metrics_of(
        gauge("org.apache.kafka.consumer.lag", point(2.5, topic="orders", partition=3)),
        sum_of("org.apache.kafka.producer.send.total", point(7), is_monotonic=True),
        sum_of("growth", point(4), point(-2, a="b"), is_monotonic=True, temporality=1),
        resource=attribute("group_id", "g") + attribute("client_rack", "r"),
    )
    found = read(payload)
    assert found.labels == (("client_rack", "r"), ("group_id", "g"))
    assert found.values == [
        OtlpValue(
            "org.apache.kafka.consumer.lag",
            (("partition", "3"), ("topic", "orders")),
            2.5,
            False,
            False,
        ),
        OtlpValue("org.apache.kafka.producer.send.total", (), 7, True, False),
        OtlpValue("growth", (), 4, True, True),
        OtlpValue("growth", (("a", "b"),), -2, True, True),
    ]
    assert found.skipped_count == 0


def test_other_kinds_and_long_texts_are_counted_and_skipped() -> None:
    histogram = field(1, b"h") + field(9, field(1, b""))
    payload = metrics_of(
        histogram,
        gauge("n" * 201, point(1)),
        gauge("label", point(1, a="x" * 257)),
        gauge("labels", point(1, **{f"label{index}": "x" for index in range(17)})),
        gauge("none", b""),
        gauge("kept", point(1)),
    )
    found = read(payload)
    assert [value.name for value in found.values] == ["kept"]
    assert found.skipped_count == 5


def test_number_of_values_is_limited() -> None:
    found = read(metrics_of(gauge("many", *[point(1)] * (VALUES_MAX + 5))))
    assert (len(found.values), found.skipped_count) == (VALUES_MAX, 5)


def test_unknown_fields_are_skipped() -> None:
    extra = number(15, 9) + field(14, b"text") + varint(13 << 3 | 1) + bytes(8)
    payload = extra + metrics_of(gauge("a", point(1)) + varint(12 << 3 | 5) + bytes(4)) + extra
    assert [value.name for value in read(payload).values] == ["a"]


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"\x0a\x05ab", "5 bytes at position 2, where 2 are left"),
        (b"\x0a", "cut off within a number"),
        (b"\x0b", "wire type 3"),
        (b"\xff" * 11, "more than 10 bytes"),
        (b"\x78\x01" * (FIELDS_MAX + 1), "more than 200000 fields"),
        (field(1, field(2, field(2, b"\x78\x01" * 65))), "more than 64 in one value"),
    ],
)
def test_damaged_payloads_are_refused(payload: bytes, text: str) -> None:
    with pytest.raises(InvalidRecord, match=text):
        read(payload)


def test_random_bytes_are_read_or_refused() -> None:
    dice = random.Random(11)
    whole = metrics_of(gauge("a", point(1, topic="x")), sum_of("b", point(2)))
    for _ in range(3_000):
        damaged = bytearray(whole)
        for _ in range(dice.randrange(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        with contextlib.suppress(InvalidRecord):
            read(bytes(damaged))


def test_large_payloads_are_read_in_steps() -> None:
    steps = sum(1 for _ in read_metrics(metrics_of(gauge("many", *[point(1)] * 1_000))))
    assert steps > 1_000 * 3 / FIELDS_PER_STEP / 2
    empty = sum(1 for _ in read_metrics(b"\x78\x01" * 10_000))
    assert empty == 10_000 / FIELDS_PER_STEP
