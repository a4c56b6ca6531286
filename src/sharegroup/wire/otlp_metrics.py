"""Metrics in OpenTelemetry's protobuf format (``MetricsData``), as clients push them (KIP-714).

Kafka's clients push numbers: gauges, and sums that are totals or increments.  Other kinds of
metrics are counted and skipped.  The reader walks over the bytes and builds nothing but the values.
A protobuf library would build objects for everything that a peer claims, before their number can
be limited.

A message is a sequence of fields, each a varint of number and wire type, and its contents:

    0  varint    1  8 bytes    2  length and bytes    5  4 bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sharegroup.errors import InvalidRecord
from sharegroup.steps import Steps
from sharegroup.wire.varints import uvarint

Labels = tuple[tuple[str, str], ...]

VALUES_MAX = 2_000
"""Values of one push; further ones are counted and skipped."""

FIELDS_MAX = 200_000
"""Fields of one push; a payload of 1 MiB can have half a million empty ones."""

MESSAGE_FIELDS_MAX = 64
"""Fields of a message that is no list of messages, such as a value with its labels."""

FIELDS_PER_STEP = 100
"""A step ends after so many fields, which take about 0.1 ms."""

LABELS_MAX = 16
NAME_CHARACTERS_MAX = 200
LABEL_CHARACTERS_MAX = 256
"""A value with more or longer labels, or a longer name, is counted and skipped."""

VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
VARINT_BYTES_MAX = 10

INCREMENTS = 1
"""The aggregation temporality of a sum whose values are increments."""

_DOUBLE = struct.Struct("<d")
_LONG = struct.Struct("<q")
_SIGN = 1 << 63

Field = tuple[int, int, int, int]
"""Number, wire type, and the first and the last position of the contents, or for a varint its value
and 0."""


@dataclass(frozen=True, slots=True)
class OtlpValue:
    """One number of a metric."""

    name: str
    labels: Labels
    value: float
    is_counter: bool
    """Whether it is a sum that only grows."""
    is_increment: bool
    """Whether it is the growth since the last push, rather than the total."""


@dataclass(slots=True)
class OtlpMetrics:
    """The contents of a push."""

    labels: Labels = ()
    """The attributes of the resource: the client."""
    values: list[OtlpValue] = field(default_factory=list)
    skipped_count: int = 0
    """Values of other kinds, with too long texts, or beyond `VALUES_MAX`."""


def read_metrics(payload: bytes) -> Steps[OtlpMetrics]:
    """Read a payload in steps; raise InvalidRecord if it is damaged or has too many fields."""
    reader = _Reader(payload)
    try:
        yield from reader.read()
    except (IndexError, struct.error) as error:
        raise InvalidRecord("the pushed metrics are cut off") from error
    return reader.found


class _Reader:
    """The walk over one payload."""

    __slots__ = ("_data", "_fields_left", "_step_at", "_values_left", "found")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._fields_left = FIELDS_MAX
        self._step_at = FIELDS_MAX - FIELDS_PER_STEP
        self._values_left = VALUES_MAX
        self.found = OtlpMetrics()

    def read(self) -> Steps[None]:
        """Read the metrics of each scope of each resource; there is one resource, the client."""
        for number, kind, first, end in self._fields(0, len(self._data), FIELDS_MAX):
            if (number, kind) == (1, LENGTH):
                yield from self._resource_metrics(first, end)
            if self._is_step():
                yield

    def _resource_metrics(self, first: int, end: int) -> Steps[None]:
        for number, kind, start, stop in self._fields(first, end, FIELDS_MAX):
            if (number, kind) == (1, LENGTH):
                self.found.labels = self._labels(start, stop, 1) or ()
            elif (number, kind) == (2, LENGTH):
                yield from self._scope_metrics(start, stop)
            if self._is_step():
                yield

    def _scope_metrics(self, first: int, end: int) -> Steps[None]:
        for number, kind, start, stop in self._fields(first, end, FIELDS_MAX):
            if (number, kind) == (2, LENGTH):
                yield from self._metric(start, stop)
            if self._is_step():
                yield

    def _is_step(self) -> bool:
        """Return whether a step ends here: after `FIELDS_PER_STEP` fields."""
        if self._fields_left > self._step_at:
            return False
        # Counted over the whole walk, because most of the fields lie deep within others.
        self._step_at = self._fields_left - FIELDS_PER_STEP
        return True

    def _metric(self, first: int, end: int) -> Steps[None]:
        """Read one metric: its name, and a gauge, a sum or another kind."""
        name, points, is_sum = "", None, False
        for number, kind, start, stop in self._fields(first, end, MESSAGE_FIELDS_MAX):
            if kind != LENGTH:
                continue
            if number == 1:
                name = self._text(start, stop)
            # A gauge or a sum; 9 to 11 are the two kinds of histograms, and summaries.
            elif number in (5, 7):
                points, is_sum = (start, stop), number == 7
            elif number in (9, 10, 11):
                self.found.skipped_count += 1
        # Only here, because the name may stand behind the values.
        if points is not None:
            yield from self._points(name, *points, is_sum=is_sum)

    def _points(self, name: str, first: int, end: int, *, is_sum: bool) -> Steps[None]:
        """Read the values of a metric; the kind of a sum follows its values."""
        temporality, is_counter = 0, False
        points: list[tuple[Labels, float]] = []
        for number, kind, start, stop in self._fields(first, end, FIELDS_MAX):
            if number == 1 and kind == LENGTH:
                self._point(name, start, stop, points)
            elif number == 2 and kind == VARINT and is_sum:
                temporality = start
            elif number == 3 and kind == VARINT and is_sum:
                is_counter = bool(start)
            if self._is_step():
                yield
        # Only here: protobuf allows the fields of a message in any order.
        is_increment = temporality == INCREMENTS
        for labels, value in points:
            self.found.values.append(OtlpValue(name, labels, value, is_counter, is_increment))
        # Behind the loop, which compares the number of its own points with what is left.
        self._values_left -= len(points)

    def _point(self, name: str, first: int, end: int, points: list[tuple[Labels, float]]) -> None:
        value: float | None = None
        for number, kind, start, _ in self._fields(first, end, MESSAGE_FIELDS_MAX):
            if kind == EIGHT_BYTES and number == 4:
                value = _DOUBLE.unpack_from(self._data, start)[0]
            elif kind == EIGHT_BYTES and number == 6:
                value = _LONG.unpack_from(self._data, start)[0]
        labels = self._labels(first, end, 7)
        has_room = len(points) < self._values_left and 0 < len(name) <= NAME_CHARACTERS_MAX
        if value is None or labels is None or not has_room:
            self.found.skipped_count += 1
        else:
            points.append((labels, value))

    def _labels(self, first: int, end: int, field_number: int) -> Labels | None:
        """Return the attributes in the fields of this number; None if they are too long."""
        labels: dict[str, str] = {}
        for number, kind, start, stop in self._fields(first, end, MESSAGE_FIELDS_MAX):
            if (number, kind) != (field_number, LENGTH):
                continue
            key, text = self._label(start, stop)
            if max(len(key), len(text)) > LABEL_CHARACTERS_MAX or len(labels) == LABELS_MAX:
                return None
            labels[key] = text
        return tuple(sorted(labels.items()))

    def _label(self, first: int, end: int) -> tuple[str, str]:
        key = text = ""
        for number, kind, start, stop in self._fields(first, end, MESSAGE_FIELDS_MAX):
            if kind == LENGTH and number == 1:
                key = self._text(start, stop)
            elif kind == LENGTH and number == 2:
                text = self._any_value(start, stop)
        return key, text

    def _any_value(self, first: int, end: int) -> str:
        """Return a simple value as text; lists and maps are empty."""
        for number, kind, start, stop in self._fields(first, end, MESSAGE_FIELDS_MAX):
            if kind == LENGTH and number == 1:
                return self._text(start, stop)
            if kind == VARINT and number == 2:
                return "true" if start else "false"
            if kind == VARINT and number == 3:
                return str(start - (1 << 64) if start & _SIGN else start)
            if kind == EIGHT_BYTES and number == 4:
                return str(_DOUBLE.unpack_from(self._data, start)[0])
        return ""

    def _text(self, first: int, end: int) -> str:
        # A text beyond the limit is only measured, so there is no need to decode all of it.
        end = min(end, first + 4 * (LABEL_CHARACTERS_MAX + 1))
        return self._data[first:end].decode("utf-8", "replace")

    def _fields(self, position: int, end: int, fields_max: int) -> Iterator[Field]:
        """Iterate over the fields of a message, of which it may have ``fields_max``."""
        while position < end:
            self._fields_left -= 1
            fields_max -= 1
            if self._fields_left < 0 or fields_max < 0:
                raise InvalidRecord(
                    f"the pushed metrics have more than {FIELDS_MAX} fields, or more than "
                    f"{MESSAGE_FIELDS_MAX} in one value"
                )
            tag, position = self._varint(position, end)
            number, kind = tag >> 3, tag & 7
            if kind == VARINT:
                value, position = self._varint(position, end)
                yield number, kind, value, 0
                continue
            if kind == LENGTH:
                length, position = self._varint(position, end)
            elif kind in (EIGHT_BYTES, FOUR_BYTES):
                length = 8 if kind == EIGHT_BYTES else 4
            else:
                raise InvalidRecord(f"the pushed metrics have a field of wire type {kind}")
            if length > end - position:
                raise InvalidRecord(
                    f"the pushed metrics have a field of {length} bytes at position {position}, "
                    f"where {end - position} are left"
                )
            yield number, kind, position, position + length
            position += length

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while shift < 7 * VARINT_BYTES_MAX:
            if position >= end:
                raise InvalidRecord("the pushed metrics are cut off within a number")
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                # Ten bytes have room for 70 bits, and protobuf drops those beyond 64.
                return value & (2**64 - 1), position
            shift += 7
        raise InvalidRecord("the pushed metrics have a number of more than 10 bytes")


# Writing

SCOPE_NAME = "sharegroup"
TOTALS = 2
"""The aggregation temporality of a sum whose values are totals."""

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
    options = _key(2, VARINT) + uvarint(temporality) + _key(3, VARINT) + uvarint(1)
    return name + _message(7, _message(1, point) + options)


def _attributes(number: int, labels: Labels) -> bytes:
    return b"".join(
        _message(number, _text(1, key) + _message(2, _text(1, text))) for key, text in labels
    )


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode("utf-8", "replace"))


def _message(number: int, content: bytes) -> bytes:
    return _key(number, LENGTH) + uvarint(len(content)) + content


def _key(number: int, wire_type: int) -> bytes:
    return uvarint(number << 3 | wire_type)
