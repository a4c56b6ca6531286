"""Metrics that are written for a push are what the broker's reader reads."""

from __future__ import annotations

from hypothesis import given, strategies as st

from sharegroup.steps import run_to_end
from sharegroup.wire.otlp_metrics import OtlpValue, encode_metrics, read_metrics

NAMES = st.text(min_size=1, max_size=40)
LABELS = st.dictionaries(NAMES, st.text(max_size=40), max_size=4).map(
    lambda labels: tuple(sorted(labels.items()))
)


@st.composite
def values(draw: st.DrawFn) -> OtlpValue:
    is_counter = draw(st.booleans())
    return OtlpValue(
        draw(NAMES),
        draw(LABELS),
        draw(st.floats(allow_nan=False)),
        is_counter,
        is_counter and draw(st.booleans()),
    )


@given(st.lists(values(), max_size=20), LABELS)
def test_what_is_written_is_read(
    written: list[OtlpValue], labels: tuple[tuple[str, str], ...]
) -> None:
    payload = encode_metrics(written, labels=labels, started_ns=1, now_ns=2)
    read = run_to_end(read_metrics(payload))
    assert (read.labels, read.values, read.skipped_count) == (labels, written, 0)


def test_the_bytes_are_those_of_the_format() -> None:
    total = OtlpValue("n", (), 1.0, is_counter=True, is_increment=False)
    assert encode_metrics([total], labels=(), started_ns=1, now_ns=2) == (
        b"\x0a\x3a"  # resource_metrics
        b"\x0a\x00"  # resource
        b"\x12\x36"  # scope_metrics
        b"\x0a\x0c\x0a\x0asharegroup"  # scope, its name
        b"\x12\x26\x0a\x01n"  # metric, its name
        b"\x3a\x21\x0a\x1b"  # sum, data point
        b"\x11\x01\x00\x00\x00\x00\x00\x00\x00"  # start time
        b"\x19\x02\x00\x00\x00\x00\x00\x00\x00"  # time
        b"\x21\x00\x00\x00\x00\x00\x00\xf0\x3f"  # 1.0
        b"\x10\x02\x18\x01"  # totals, monotonic
    )
