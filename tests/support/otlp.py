"""Writes metrics in OpenTelemetry's protobuf format, as clients push them."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def field(number: int, content: bytes) -> bytes:
    """A field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def number(field_number: int, value: int) -> bytes:
    """A field with a varint."""
    return varint(field_number << 3) + varint(value)


def attribute(key: str, value: str | int) -> bytes:
    """A KeyValue in the field 1, of a resource."""
    return field(1, _key_value(key, value))


def _key_value(key: str, value: str | int) -> bytes:
    content = field(1, value.encode()) if isinstance(value, str) else number(3, value)
    return field(1, key.encode()) + field(2, content)


def point(value: float, **labels: str | int) -> bytes:
    """A NumberDataPoint; an int is stored as one."""
    if isinstance(value, int):
        encoded = varint(6 << 3 | 1) + struct.pack("<q", value)
    else:
        encoded = varint(4 << 3 | 1) + struct.pack("<d", value)
    return encoded + b"".join(field(7, _key_value(key, text)) for key, text in labels.items())


def gauge(name: str, *points: bytes) -> bytes:
    """A Metric that is a gauge."""
    return field(1, name.encode()) + field(5, b"".join(field(1, content) for content in points))


def sum_of(name: str, *points: bytes, is_monotonic: bool = False, temporality: int = 2) -> bytes:
    """A Metric that is a sum: of totals (temporality 2) or increments (1)."""
    options = number(2, temporality) + number(3, int(is_monotonic))
    content = b"".join(field(1, content) for content in points) + options
    return field(1, name.encode()) + field(7, content)


def metrics_of(*metrics: bytes, resource: bytes = b"") -> bytes:
    """A MetricsData of one resource and one scope."""
    scope = field(2, b"".join(field(2, metric) for metric in metrics))
    return field(1, field(1, resource) + scope)
