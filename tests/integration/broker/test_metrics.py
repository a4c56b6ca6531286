"""The broker's metrics: every one is given, and says what was done."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sharegroup.broker.load.request_counters import Distribution
from sharegroup.broker.metrics import families as names
from sharegroup.broker.metrics.families import FAMILIES, NOT_HERE, Family, MetricType
from sharegroup.broker.metrics.text import head, label_pairs, lines
from sharegroup.broker.metrics.values import LoopLag, Metrics
from sharegroup.ids import GroupId, SharePartitionKey, TopicName
from sharegroup.protocol_enums import AcknowledgeType
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fetch import produce, request, run, waiting
from tests.support.limits import HANGING_SECONDS
from tests.support.scraping import Scrape

ORDERS = {"group": "g", "topic": "orders", "partition": "0"}

KAFKAS = frozenset(
    """TotalShareFetchRequestsPerSec FailedShareFetchRequestsPerSec
    TotalShareAcknowledgementRequestsPerSec FailedShareAcknowledgementRequestsPerSec
    RecordAcknowledgementsPerSec PartitionLoadTimeMs RequestTopicPartitionsFetchRatio
    TopicPartitionsAcquireTimeMs DeadLetterQueueRecordCount
    DeadLetterQueueTotalProduceRequestsPerSec DeadLetterQueueFailedProduceRequestsPerSec
    AcquisitionLockTimeoutPerSec InFlightMessageCount InFlightBatchCount
    InFlightBatchMessageCount FetchLockTimeMs FetchLockRatio ShareSessionEvictionsPerSec
    SharePartitionsCount ShareSessionsCount NumDelayedOperations PurgatorySize ExpiresPerSec
    group-count share-group-count share-group-rebalance-rate share-group-rebalance-count
    partition-load-time-max partition-load-time-avg thread-idle-ratio-min thread-idle-ratio-avg
    event-queue-size event-queue-time-ms event-processing-time-ms event-purgatory-time-ms
    batch-linger-time-ms batch-flush-time-ms batch-flush-rate write-rate write-total
    write-latency-avg write-latency-max num-partitions last-pruned-offset
    batch-buffer-cache-size-bytes batch-buffer-cache-discard-count""".split()
)
"""Of Apache Kafka 4.4, those that are about share groups."""


async def scrape(broker: Broker, **limits: int) -> Scrape:
    running = broker.running
    metrics = Metrics(running.parts, running.server, running.directory, LoopLag(), **limits)
    return Scrape("".join([text async for text in metrics.text()]))


def test_exported_metrics_are_exactly_the_documented_ones(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        found = await scrape(broker)
        given = {(name, family.type) for name, family in found.families.items()}
        assert given == {(family.name.removesuffix("_total"), family.kind) for family in FAMILIES}
        for family in FAMILIES:
            assert found.families[family.name.removesuffix("_total")].documentation == family.text

    run(scenario, tmp_path)


def test_metric_names_end_with_their_unit_and_kind() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.name.endswith("_total") == (family.kind is MetricType.COUNTER), family
        if family.unit in ("seconds", "bytes"):
            assert family.name.removesuffix("_total").endswith(f"_{family.unit}"), family
        assert family.name.startswith("kafka_") <= bool(family.kafkas), family


def test_every_metric_of_kafka_has_one_here_or_a_reason_why_not() -> None:
    here = {name for family in FAMILIES for name in family.kafkas}
    assert KAFKAS - here == set(NOT_HERE)


def test_acknowledged_records_are_counted_by_type(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 6)
        taken, _ = await member.fetch(broker, records_max=6)
        assert len(taken) == 6
        acks = [
            (1, AcknowledgeType.ACCEPT),
            (2, AcknowledgeType.REJECT),
            (3, AcknowledgeType.RELEASE),
        ]
        assert await member.acknowledge(broker, {0: acks}) == {0: 0}
        found = await scrape(broker)
        accepted = "kafka_server_share_group_record_acknowledgements_total"
        assert found.all(accepted) == {
            ("accept",): 1, ("release",): 1, ("reject",): 1, ("gap",): 0, ("renew",): 0
        }  # fmt: skip
        partition = "kafka_server_share_partition_"
        assert found(f"{partition}in_flight_messages", **ORDERS) == 6
        assert found(f"{partition}in_flight_batches", **ORDERS) == 5
        assert found(f"{partition}batch_messages_count", **ORDERS) == 1
        assert found(f"{partition}batch_messages_sum", **ORDERS) == 6
        assert found(f"{partition}fetch_lock_seconds_count", **ORDERS) == 2
        assert found("sharegroup_share_partition_records", **ORDERS, state="acquired") == 3
        assert found("sharegroup_share_partition_records", **ORDERS, state="available") == 1
        assert found("sharegroup_share_partition_lag", **ORDERS) == 4
        assert found("sharegroup_share_partition_full", **ORDERS) == 0
        assert found("sharegroup_share_partitions", state="loaded") == 1
        assert found("kafka_server_share_group_partition_load_seconds_count") == 1
        assert found("kafka_server_share_fetch_requests_total", topic="orders") == 2
        assert found("kafka_server_share_acknowledgement_requests_total", topic="orders") == 1
        assert found("kafka_server_share_group_fetch_ratio_bucket", group="g", le="0.9") == 0
        assert found("kafka_server_share_group_fetch_ratio_bucket", group="g", le="1.0") == 1
        assert found("kafka_server_share_group_acquire_seconds_count", group="g") == 1
        assert found("sharegroup_topic_log_offsets", topic="orders") == 6
        assert found("sharegroup_topic_log_bytes", topic="orders") > 0

    run(scenario, tmp_path)


def test_a_failed_acknowledgement_is_counted_with_its_topic_and_not_its_records(
    tmp_path: Path,
) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 2)
        await member.fetch(broker, records_max=2)
        assert await member.acknowledge(broker, {0: [(7, AcknowledgeType.ACCEPT)]}) == {0: 42}
        found = await scrape(broker)
        failed = "kafka_server_share_acknowledgement_requests_failed_total"
        assert found(failed, topic="orders") == 1
        accepted = "kafka_server_share_group_record_acknowledgements_total"
        assert found(accepted, ack_type="accept") == 0

    run(scenario, tmp_path)


def test_expired_locks_are_counted_with_their_lateness(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 3)
        await member.fetch(broker, records_max=3)
        broker.clock.advance(30.5)
        found = await scrape(broker)
        timeouts = "kafka_server_share_partition_acquisition_lock_timeouts_total"
        assert found(timeouts, **ORDERS) == 3
        assert found("sharegroup_acquisition_lock_timeouts_total") == 3
        late = "sharegroup_lock_expiry_lateness_seconds"
        assert (found(f"{late}_count"), found(f"{late}_sum")) == (1, 0)

    run(scenario, tmp_path)


def test_waiting_fetches_are_counted_until_their_wait_is_over(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        task = await waiting(broker, request(member))
        found = await scrape(broker)
        assert found("kafka_server_delayed_share_fetches") == 1
        assert found("kafka_server_delayed_share_fetch_watches") == 3
        assert found("sharegroup_waiting_requests") == 1
        assert found("kafka_server_delayed_share_fetches_expired_total") == 0
        broker.clock.advance(0.5)
        await task
        found = await scrape(broker)
        assert found("kafka_server_delayed_share_fetches") == 0
        assert found("kafka_server_delayed_share_fetch_watches") == 0
        assert found("kafka_server_delayed_share_fetches_expired_total") == 1

    run(scenario, tmp_path)


def test_a_wait_that_brings_records_did_not_expire(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        task = await waiting(broker, request(member))
        await produce(broker, 1)
        await task
        found = await scrape(broker)
        assert found("kafka_server_delayed_share_fetches") == 0
        assert found("kafka_server_delayed_share_fetches_expired_total") == 0
        assert found("kafka_server_share_group_acquire_seconds_count", group="g") == 1

    run(scenario, tmp_path)


def test_lateness_of_locks_includes_the_wait_for_the_next_check(tmp_path: Path) -> None:
    """A lock ends 5 ms after another; the next check is 20 ms after the first."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 1)
        await member.fetch(broker, records_max=1)
        broker.clock.advance(0.005)
        await produce(broker, 1)
        await member.fetch(broker, records_max=1)
        broker.clock.advance(31)
        found = await scrape(broker)
        late = "sharegroup_lock_expiry_lateness_seconds"
        assert (found(f"{late}_count"), found(f"{late}_sum")) == (2, 0.015)

    run(scenario, tmp_path)


def test_check_that_finds_no_expired_lock_is_not_late(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 1)
        await member.fetch(broker, records_max=1)
        await member.acknowledge(broker, {0: [(0, AcknowledgeType.ACCEPT)]})
        broker.clock.advance(10)
        await produce(broker, 1)
        await member.fetch(broker, records_max=1)
        broker.clock.advance(21)  # The timer was for the first lock; the second is still valid.
        found = await scrape(broker)
        assert found("sharegroup_lock_expiry_lateness_seconds_count") == 0
        assert found("sharegroup_share_partition_records", **ORDERS, state="acquired") == 1

    run(scenario, tmp_path)


def test_counters_of_a_deleted_group_are_removed(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 1)
        await member.fetch(broker, records_max=1)
        ratio = "kafka_server_share_group_fetch_ratio_count"
        assert (await scrape(broker)).all(ratio) == {("g",): 1}
        await member.acknowledge(broker, {0: [(0, AcknowledgeType.ACCEPT)]})
        member.member_epoch = -1
        await member.heartbeat(broker)
        await broker.running.parts.share_group_coordinator.delete(GroupId("g"))
        found = await scrape(broker)
        assert found.all(ratio) == {}
        assert found("sharegroup_share_partitions", state="loaded") == 0

    run(scenario, tmp_path)


def test_groups_sessions_and_writes_are_counted(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        before = await scrape(broker)
        assert before("kafka_group_coordinator_groups", protocol="share") == 1
        assert before("kafka_group_coordinator_groups", protocol="classic") == 0
        assert before("kafka_group_coordinator_share_groups", state="Stable") == 1
        assert before("kafka_group_coordinator_share_group_rebalances_total") == 1
        assert before("kafka_server_share_sessions") == 1
        assert before("kafka_server_share_session_partitions") == 1
        assert before("kafka_share_coordinator_writes_total") == 1  # The first state.
        assert before("kafka_share_coordinator_partitions", state="active") == 1
        await produce(broker, 1)
        await member.fetch(broker, records_max=1)
        await member.acknowledge(broker, {0: [(0, AcknowledgeType.ACCEPT)]})
        after = await scrape(broker)
        assert after("kafka_share_coordinator_writes_total") == 2
        assert after("kafka_share_coordinator_write_seconds_count") == 1

    run(scenario, tmp_path)


def test_requests_and_errors_are_counted_by_api(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        stale = await broker.ask(request(member, share_session_epoch=9))
        assert int(stale.error_code) == 123
        found = await scrape(broker)
        errors = "kafka_network_request_errors_total"
        assert found.all(errors) == {("INVALID_SHARE_SESSION_EPOCH", "ShareFetch"): 1}
        assert found("kafka_network_request_seconds_count", request="ShareFetch") == 2
        assert found("kafka_network_request_seconds_count", request="ShareGroupHeartbeat") == 1
        assert found("kafka_network_request_bytes_total", request="ShareFetch") > 100
        assert found("kafka_network_response_bytes_total", request="ShareFetch") > 100
        assert found("kafka_network_request_local_seconds_total", request="ShareFetch") > 0

    run(scenario, tmp_path)


def test_deleted_topic_has_no_series(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        topics = broker.running.parts.topics
        await topics.delete(topics.catalog.topic("orders"))
        name = "kafka_server_share_fetch_requests_total"
        assert (await scrape(broker)).all(name) == {}
        assert broker.running.parts.share_partitions.counters.topics == {}
        await member.fetch(broker, records_max=1)  # Its topic id no longer exists.
        assert broker.running.parts.share_partitions.counters.topics == {}

    run(scenario, tmp_path)


def test_series_are_limited_and_the_rest_is_counted(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        other = ShareMember("h", "member-2", "orders", 1, connection_id=2)
        assert await other.heartbeat(broker) == 0
        await other.fetch(broker, records_max=1)
        found = await scrape(broker, share_partitions_max=1, topics_max=2)
        assert found.all("sharegroup_share_partition_lag") == {("g", "0", "orders"): 0}
        assert found("sharegroup_share_partitions", state="loaded") == 2
        assert found.all("sharegroup_metrics_left_out") == {
            ("share_partitions",): 1, ("groups",): 0, ("topics",): 2
        }  # fmt: skip

    run(scenario, tmp_path)


def test_others_have_their_turn_while_many_share_partitions_are_read(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        parts = broker.running.parts
        topic = await parts.topics.create(TopicName("wide"), partitions=500, settings={})
        for number in range(500):
            key = SharePartitionKey(GroupId("g"), topic.topic_id, number)
            parts.share_coordinator.initialize(key, state_epoch=1, start_offset=0)
            parts.share_partitions.get(key)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        found = await scrape(broker)
        task.cancel()
        assert len(found.all("sharegroup_share_partition_lag")) == 501
        assert turns >= 20, "501 share partitions and as many logs, fifty at a time"

    run(scenario, tmp_path)


def test_labels_are_escaped() -> None:
    assert label_pairs(("group", "topic"), ('a"b\\c\nd', "t")) == (
        'group="a\\"b\\\\c\\nd",topic="t"'
    )
    text = head(names.LAG) + lines(
        names.LAG, label_pairs(names.LAG.labels, ('a"b\\c\nd', "t", "0")), 5
    )
    assert Scrape(text)(names.LAG.name, group='a"b\\c\nd', topic="t", partition="0") == 5


def test_long_group_ids_are_shortened_to_distinct_labels() -> None:
    long = "g" * 300
    first, second = (label_pairs(("group",), (group_id,)) for group_id in (f"{long}1", f"{long}2"))
    assert first != second
    assert first == 'group="' + "g" * 239 + '~c0e61d61416ea68c"'


def test_histogram_buckets_include_their_bounds() -> None:
    distribution = Distribution((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 3.0):
        distribution.observe(value)
    family = Family("waits_seconds", MetricType.HISTOGRAM, "seconds", "Waits.")
    assert head(family) + lines(family, "", distribution) == (
        "# HELP waits_seconds Waits.\n"
        "# TYPE waits_seconds histogram\n"
        'waits_seconds_bucket{le="1.0"} 2\n'
        'waits_seconds_bucket{le="2.0"} 3\n'
        'waits_seconds_bucket{le="+Inf"} 4\n'
        "waits_seconds_count 4\n"
        "waits_seconds_sum 6.0\n"
    )


def test_loop_lag_is_measured_between_start_and_stop() -> None:
    async def main() -> None:
        lag = LoopLag()
        lag.start()
        async with asyncio.timeout(HANGING_SECONDS):
            while not lag.lateness.count:
                await asyncio.sleep(0.01)
        lag.stop()

    asyncio.run(main())
