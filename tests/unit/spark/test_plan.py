from __future__ import annotations

from uuid import UUID

from hypothesis import given, strategies as st

from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.spark.plan import PartitionRuns, RunsPartition, plan

ORDERS, REFUNDS = TopicId(UUID(int=2)), TopicId(UUID(int=1))
NAMES = {ORDERS: TopicName("orders"), REFUNDS: TopicName("refunds")}


def half_open(run: AcquiredRecords) -> tuple[int, int, int]:
    return run.first_offset, run.end_offset, run.delivery_count


def parts(tasks: list[RunsPartition]) -> list[list[tuple[str, int, list[tuple[int, int, int]]]]]:
    return [
        [(part.topic, part.partition, [half_open(run) for run in part.runs]) for part in task.parts]
        for task in tasks
    ]


def test_nothing_acquired_is_no_task() -> None:
    assert plan({}, NAMES, tasks_min=8) == []


def test_many_runs_of_few_rows_are_one_task() -> None:
    runs = tuple(AcquiredRecords.of_range(10 * index, 10 * index + 1, 1) for index in range(250))
    (task,) = plan({TopicIdPartition(ORDERS, 0): runs}, NAMES)
    assert task.parts == (PartitionRuns("orders", ORDERS, 0, runs),)


def test_many_rows_are_a_task_for_each_topic_partition() -> None:
    tasks = plan(
        {
            TopicIdPartition(ORDERS, index): (AcquiredRecords.of_range(0, 200_000, 1),)
            for index in range(4)
        },
        NAMES,
    )
    assert parts(tasks) == [[("orders", index, [(0, 200_000, 1)])] for index in range(4)]


def test_a_few_rows_of_many_partitions_are_one_task_in_order_of_names() -> None:
    tasks = plan(
        {
            TopicIdPartition(REFUNDS, 0): (AcquiredRecords.of_range(5, 6, 1),),
            TopicIdPartition(ORDERS, 1): (AcquiredRecords.of_range(0, 3, 2),),
            TopicIdPartition(ORDERS, 0): (AcquiredRecords.of_range(7, 9, 1),),
        },
        NAMES,
    )
    assert parts(tasks) == [
        [
            ("orders", 0, [(7, 9, 1)]),
            ("orders", 1, [(0, 3, 2)]),
            ("refunds", 0, [(5, 6, 1)]),
        ]
    ]


def test_min_partitions_cuts_runs_into_equal_pieces() -> None:
    acquired = {
        TopicIdPartition(ORDERS, 0): (
            AcquiredRecords.of_range(0, 5, 1),
            AcquiredRecords.of_range(8, 10, 2),
        ),
        TopicIdPartition(ORDERS, 1): (AcquiredRecords.of_range(0, 5, 1),),
    }
    assert parts(plan(acquired, NAMES, tasks_min=3)) == [
        [("orders", 0, [(0, 4, 1)])],
        [("orders", 0, [(4, 5, 1), (8, 10, 2)]), ("orders", 1, [(0, 1, 1)])],
        [("orders", 1, [(1, 5, 1)])],
    ]


def test_no_task_has_more_rows_than_allowed() -> None:
    tasks = plan(
        {TopicIdPartition(ORDERS, 0): (AcquiredRecords.of_range(0, 10, 1),)},
        NAMES,
        rows_per_task_max=4,
    )
    assert parts(tasks) == [
        [("orders", 0, [(0, 4, 1)])],
        [("orders", 0, [(4, 8, 1)])],
        [("orders", 0, [(8, 10, 1)])],
    ]


def test_the_larger_demand_for_tasks_holds() -> None:
    acquired = {TopicIdPartition(ORDERS, 0): (AcquiredRecords.of_range(0, 100, 1),)}
    assert len(plan(acquired, NAMES, tasks_min=3, rows_per_task_max=10)) == 10
    assert len(plan(acquired, NAMES, tasks_min=20, rows_per_task_max=10)) == 20


runs = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 20), st.integers(1, 3)), max_size=15
).map(lambda steps: tuple(_runs(steps)))


def _runs(steps: list[tuple[int, int, int]]) -> list[AcquiredRecords]:
    made, reached = [], 0
    for gap, length, count in steps:
        made.append(AcquiredRecords.of_range(reached + gap, reached + gap + length, count))
        reached += gap + length
    return made


@given(
    st.dictionaries(
        st.builds(TopicIdPartition, st.sampled_from([ORDERS, REFUNDS]), st.integers(0, 3)), runs
    ),
    st.none() | st.integers(1, 12),
    st.none() | st.integers(1, 50),
)
def test_every_row_is_in_exactly_one_task(
    acquired: dict[TopicIdPartition, tuple[AcquiredRecords, ...]],
    tasks_min: int | None,
    rows_per_task_max: int | None,
) -> None:
    tasks = plan(acquired, NAMES, tasks_min=tasks_min, rows_per_task_max=rows_per_task_max)
    planned = [
        (part.topic_id, part.partition, offset, run.delivery_count)
        for task in tasks
        for part in task.parts
        for run in part.runs
        for offset in range(run.first_offset, run.end_offset)
    ]
    held = [
        (key.topic_id, key.partition, offset, run.delivery_count)
        for key in sorted(acquired, key=lambda key: (NAMES[key.topic_id], key))
        for run in acquired[key]
        for offset in range(run.first_offset, run.end_offset)
    ]
    assert planned == held
    rows = [sum(part.offset_count for part in task.parts) for task in tasks]
    assert all(rows)
    assert max(rows, default=0) <= (rows_per_task_max or len(held))
