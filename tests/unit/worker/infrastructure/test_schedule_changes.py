"""What a plan says of schedules, and the rights that they need."""

from __future__ import annotations

from dataclasses import replace

from sharegroup.schedules.schedule import StoredSchedule
from sharegroup.worker import App, ScheduledRun
from sharegroup.worker.infrastructure.rights import (
    READ,
    WRITE,
    SchedulesNeed,
    needed,
    required_acls,
)
from sharegroup.worker.infrastructure.schedule_changes import schedule_changes


def shop(*, revision: int = 2) -> App:
    app = App("shop")

    @app.every("1h", name="nightly", revision=revision)
    @app.share_group("reports", topics="reports", retry=None, dead_letter=None)
    async def report(run: ScheduledRun) -> None: ...

    return app


def stored(revision: int, *, topic: str = "reports") -> StoredSchedule:
    (declared,) = shop(revision=revision).schedule_list
    definition = replace(declared.definition(), topic=topic)
    return StoredSchedule(definition=definition, last_due_ms=0)


def differences(*there: StoredSchedule) -> list[tuple[str, str, str | None, str]]:
    return [
        (str(change.kind), change.name, change.now, change.why)
        for change in schedule_changes(shop().schedule_list, there)
    ]


DECLARES = "a worker that starts declares it"


def test_schedules_that_a_start_declares_are_warnings() -> None:
    assert differences() == [("warning", "nightly", None, DECLARES)]
    assert differences(stored(1)) == [("warning", "nightly", "1", DECLARES)]


def test_an_equal_schedule_and_a_newer_one_are_no_difference() -> None:
    assert differences(stored(2)) == []
    assert differences(stored(3, topic="elsewhere")) == []


def test_a_change_without_a_new_revision_is_refused() -> None:
    assert differences(stored(2, topic="elsewhere")) == [
        ("refused", "nightly", "2", "it differs from the stored one; declare it with revision=3")
    ]


def test_a_schedule_that_is_not_declared_is_surplus() -> None:
    changes = schedule_changes((), [stored(2)])
    assert [(change.kind, change.resource, change.now) for change in changes] == [
        ("surplus", "schedule", "2")
    ]


def test_the_rights_of_schedules() -> None:
    app = shop()
    need = SchedulesNeed.of(app)
    assert needed(app.route_list, need) == {
        "reports": {READ, WRITE},
        "shop.schedules": {READ, WRITE},
    }
    acls = [
        (acl.operation.name, acl.resource_type.name, acl.name, acl.pattern.name)
        for acl in required_acls(app.route_list, need)
    ]
    assert acls == [
        ("READ", "TOPIC", "reports", "LITERAL"),
        ("READ", "GROUP", "reports", "LITERAL"),
        ("READ", "TOPIC", "shop.schedules", "LITERAL"),
        ("WRITE", "TOPIC", "shop.schedules", "LITERAL"),
        ("WRITE", "TOPIC", "reports", "LITERAL"),
        ("READ", "GROUP", "shop.schedules-scheduler", "LITERAL"),
        ("WRITE", "TRANSACTIONAL_ID", "shop.schedules.", "PREFIXED"),
    ]


def test_an_application_without_schedules_needs_no_rights_for_them() -> None:
    app = App("shop")
    assert needed(app.route_list, SchedulesNeed.of(app)) == {}
