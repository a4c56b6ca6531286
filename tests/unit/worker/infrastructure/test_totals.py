"""How many topics and groups an application needs."""

from __future__ import annotations

import pytest

from sharegroup.worker import App
from sharegroup.worker.infrastructure.wanted import totals, wanted_by


def tasks(groups: list[str], **options: None) -> App:
    """Return an application with a task for each of these groups, each with its own topic."""
    app = App("tasks")
    for number, group in enumerate(groups):

        @app.share_group(group, topics=f"topic{number}", name=f"task{number}", **options)
        async def task(order: dict[str, int]) -> None: ...

    return app


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        (
            ["tasks"] * 10,
            (
                "19 topics (10 of the application, 8 for retries, 1 for dead letters) and "
                "2 groups (1 share group, 1 retry scheduler)"
            ),
        ),
        (
            [f"task{number}" for number in range(10)],
            (
                "100 topics (10 of the application, 80 for retries, 10 for dead letters) and "
                "20 groups (10 share groups, 10 retry schedulers)"
            ),
        ),
    ],
    ids=["one group", "ten groups"],
)
def test_tasks_of_one_group_share_one_set_of_retry_topics(groups: list[str], text: str) -> None:
    assert str(totals(tasks(groups).route_list)) == text


def test_group_without_retries_and_letters_needs_only_its_own_topic() -> None:
    app = tasks(["plain"], retry=None, dead_letter=None)
    app.topic("declared")
    needed = totals(app.route_list, app.topic_list)
    assert (needed.topics, needed.retry_topics, needed.dead_letter_topics) == (3, 1, 0)
    assert (needed.share_groups, needed.retry_schedulers) == (1, 0)


def test_fleet_topics_are_required_if_workers_announce_themselves() -> None:
    app = App("orders-service", announce=True, replication_factor=2)
    assert [
        (topic.name, topic.partitions, topic.configs["cleanup.policy"], topic.replication[0])
        for topic in wanted_by(app).topics
    ] == [
        ("orders-service.control", 1, "delete", 2),
        ("orders-service.workers", 1, "compact,delete", 2),
    ]
    assert wanted_by(app, announced=False).topics == wanted_by(App("orders-service")).topics == ()
