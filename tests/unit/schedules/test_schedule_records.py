"""Records of schedules: what is written is read back, and everything else is left out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from sharegroup.schedules.schedule import (
    REVISION_MAX,
    VALUE_BYTES_MAX,
    Missed,
    ScheduleDefinition,
    StoredSchedule,
    moment,
    parsed_run,
    run_id,
)
from sharegroup.schedules.schedule_records import (
    LAST_DUE_MS_MAX,
    TIME_MS_MAX,
    Intent,
    Owner,
    ScheduleCommand,
    encoded,
    key_of,
    parsed,
)
from sharegroup.schedules.timing import INTERVAL_MS_MAX, Cron, Interval, Timing

NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,100}", fullmatch=True)
TIMES = st.integers(0, TIME_MS_MAX)
DEFINITIONS = st.builds(
    ScheduleDefinition,
    name=NAMES,
    revision=st.integers(1, REVISION_MAX),
    timing=st.one_of(
        st.builds(Interval, st.integers(1_000, INTERVAL_MS_MAX)),
        st.builds(Cron, st.just("0 6 * * 1-5"), st.sampled_from(["UTC", "Europe/Berlin"])),
    ),
    topic=st.just("reports"),
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    sends_run=st.booleans(),
    missed=st.sampled_from(Missed),
)
ENTRIES = st.one_of(
    DEFINITIONS,
    st.builds(
        StoredSchedule,
        definition=DEFINITIONS,
        last_due_ms=st.integers(0, LAST_DUE_MS_MAX),
        paused_by=st.none() | st.text(max_size=200),
        runs=st.integers(0, 2**63 - 1),
        last_run_ms=st.none() | TIMES,
    ),
    st.builds(
        ScheduleCommand,
        name=NAMES,
        intent=st.sampled_from(Intent),
        id=NAMES,
        by=st.text(max_size=200),
        asked_ms=TIMES,
        revision=st.integers(1, REVISION_MAX),
    ),
    st.builds(Owner, st.text(max_size=200), TIMES),
)


@given(ENTRIES)
def test_what_is_written_is_read_back(
    entry: ScheduleDefinition | StoredSchedule | ScheduleCommand | Owner,
) -> None:
    assert parsed(key_of(entry), encoded(entry)) == entry


DEFINITION = ScheduleDefinition(name="a", revision=1, timing=Interval(1_000), topic="reports")


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"name": "../a"},
        {"revision": 0},
        {"revision": True},
        {"timing": {"every_ms": 1}},
        {"timing": {"cron": "* * *", "timezone": "UTC"}},
        {"timing": None},
        {"topic": "a b"},
        {"topic": 7},
        {"value": "%%"},
        {"missed": "never"},
    ],
)
def test_a_forged_definition_is_refused(changes: dict[str, object]) -> None:
    document = {**json.loads(encoded(DEFINITION)), **changes}

    with pytest.raises(ValueError, match="expected a declare record"):
        parsed(b"declare/a/1", json.dumps(document).encode())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"declare/b/1", encoded(DEFINITION)),
        (b"schedule/a", encoded(DEFINITION)),
        (b"other", b"{}"),
        (b"owner", b"[]"),
        (b"owner", b"[" * 100_000),
        (b"owner", b"\xff"),
    ],
)
def test_a_foreign_record_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(ValueError, match="expected"):
        parsed(key, value)


@pytest.mark.parametrize("timing", [Interval(INTERVAL_MS_MAX), Cron("0 0 29 2 *", "Asia/Tokyo")])
def test_a_schedule_without_a_next_instant_is_refused(timing: Timing) -> None:
    definition = ScheduleDefinition(name="a", revision=1, timing=timing, topic="reports")
    last = StoredSchedule(definition=definition, last_due_ms=LAST_DUE_MS_MAX)
    assert parsed(b"schedule/a", encoded(last)) == last
    assert last.next_due_ms is not None
    assert moment(last.next_due_ms).year < 9999

    for last_due_ms in (LAST_DUE_MS_MAX + 1, TIME_MS_MAX):
        forged = StoredSchedule(definition=definition, last_due_ms=last_due_ms, paused_by="anna")
        with pytest.raises(ValueError, match="expected a schedule record"):
            parsed(b"schedule/a", encoded(forged))


def test_a_value_above_the_limit_is_refused() -> None:
    large = ScheduleDefinition(
        name="a", revision=1, timing=Interval(1_000), topic="t", value=bytes(VALUE_BYTES_MAX + 1)
    )
    with pytest.raises(ValueError, match="at most 65536"):
        parsed(key_of(large), encoded(large))


@given(NAMES, TIMES, st.none() | NAMES.filter(lambda name: len(name) <= 64))
def test_the_id_of_a_run_is_read_back(name: str, due_ms: int, command_id: str | None) -> None:
    run = parsed_run(run_id(name, due_ms, command_id))

    assert run is not None
    assert (run.schedule, run.due) == (name, moment(due_ms))


@pytest.mark.parametrize("text", ["", "nightly", "nightly@", "nightly@2026-13-01T00:00:00Z", "a@b"])
def test_another_text_is_no_run(text: str) -> None:
    assert parsed_run(text) is None
