"""Writes metrics in OpenTelemetry's protobuf format (``MetricsData``), for pushes (KIP-714).

The counterpart of `otlp_metrics`: one resource with the labels of the client, one scope, and a
metric with one data point for each value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from sharegroup.wire.otlp_metrics import EIGHT_BYTES, INCREMENTS, LENGTH, VARINT, Labels, OtlpValue

SCOPE_NAME = "sharegroup"
TOTALS = 2
"""The aggregation temporality of a sum whose values are totals."""

_DOUBLE = struct.Struct("<d")
_TIME = struct.Struct("<Q")


def encode_metrics(
    values: Iterable[OtlpValue], *, labels: Labels, started_ns: int, now_ns: int
) -> bytes:
    """Return the payload of a push.

    ``labels`` are the attributes of the client.  Sums count from ``started_ns``.
    """
    scope = _message(1, _text(1, SCOPE_NAME))
    metrics = b"".join(_message(2, _metric(value, started_ns, now_ns)) for value in values)
    resource = _message(1, _attributes(1, labels))
    return _message(1, resource + _message(2, scope + metrics))


def _metric(value: OtlpValue, started_ns: int, now_ns: int) -> bytes:
    point = (
        _key(2, EIGHT_BYTES) + _TIME.pack(started_ns)
        + _key(3, EIGHT_BYTES) + _TIME.pack(now_ns)
        + _key(4, EIGHT_BYTES) + _DOUBLE.pack(value.value)
        + _attributes(7, value.labels)
    )  # fmt: skip
    name = _text(1, value.name)
    # Field 5 of a metric is a gauge, field 7 a sum.
    if not value.is_counter:
        return name + _message(5, _message(1, point))
    temporality = INCREMENTS if value.is_increment else TOTALS
    # Field 3 is ``is_monotonic``, which is true of every sum here: others are gauges.
    options = _key(2, VARINT) + _varint(temporality) + _key(3, VARINT) + _varint(1)
    return name + _message(7, _message(1, point) + options)


def _attributes(number: int, labels: Labels) -> bytes:
    return b"".join(
        _message(number, _text(1, key) + _message(2, _text(1, text))) for key, text in labels
    )


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode("utf-8", "replace"))


def _message(number: int, content: bytes) -> bytes:
    return _key(number, LENGTH) + _varint(len(content)) + content


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
