"""Log lines that say who saw values and who changed what."""

from __future__ import annotations

import logging

import pytest

from sharegroup.console.access.audit import (
    NAME_CHARACTERS_MAX,
    SAME_VIEW_MS,
    VIEWS_MAX,
    ValuesSeen,
    log_changed,
    log_login,
)
from sharegroup.console.access.roles import Change, User

ADA, BOB = User("ada"), User("bob")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "sharegroup.console")
    return caplog


def test_same_view_is_logged_once_a_minute(lines: pytest.LogCaptureFixture) -> None:
    seen = ValuesSeen()
    record = {"partition": 0, "offset": 7}
    for at_ms in (0, 1_000, SAME_VIEW_MS - 1, SAME_VIEW_MS):
        seen.note(ADA, "orders", record, now_ms=at_ms)
    seen.note(BOB, "orders", record, now_ms=1)
    seen.note(ADA, "orders", {"partition": None}, now_ms=1)
    seen.note(ADA, "orders", {}, now_ms=1)
    # The clock was set back.
    seen.note(BOB, "orders", record, now_ms=0)
    assert lines.messages == [
        "event=console.values_seen user='ada' topic='orders' partition=0 offset=7",
        "event=console.values_seen user='ada' topic='orders' partition=0 offset=7",
        "event=console.values_seen user='bob' topic='orders' partition=0 offset=7",
        "event=console.values_seen user='ada' topic='orders'",
        "event=console.values_seen user='ada' topic='orders'",
        "event=console.values_seen user='bob' topic='orders' partition=0 offset=7",
    ]


def test_views_that_are_remembered_are_bounded(lines: pytest.LogCaptureFixture) -> None:
    seen = ValuesSeen()
    for offset in (*range(VIEWS_MAX + 1), 0, VIEWS_MAX):
        seen.note(ADA, "orders", {"offset": offset}, now_ms=0)
    assert len(lines.messages) == VIEWS_MAX + 2


def test_names_in_lines_are_quoted_escaped_and_cut(lines: pytest.LogCaptureFixture) -> None:
    long = User("a\nevent=forged\x1b\u202e" + "x" * 2 * NAME_CHARACTERS_MAX)
    named = {"topic": "t'\n", "id": "i\n" * NAME_CHARACTERS_MAX}
    log_changed(long, Change.PURGE, named, outcome="done", result="r\n")
    log_login("eve\n", "10.0.0.7", "refused")
    changed, login = lines.messages
    assert changed.startswith("event=console.changed user='a\\nevent=forged\\x1b\\u202ex")
    assert "what=purge outcome=done topic=\"t'\\n\" id='i\\ni" in changed
    assert changed.endswith("result='r\\n'")
    assert len(changed) < 4 * NAME_CHARACTERS_MAX
    assert login.startswith("event=console.login user='eve\\n' address='10.0.0.7' outcome=refused")
    assert all(line.isprintable() for line in lines.messages)
