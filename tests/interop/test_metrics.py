"""What Prometheus sees while confluent-kafka's share consumer is at work."""

from __future__ import annotations

from confluent_kafka import AcknowledgeType

from sharegroup.testing import run_broker
from tests.confluent_calls import create_topic, produce, set_group, share_consumer, take_shared
from tests.interop.test_confluent_share import acknowledge, committed
from tests.scraping import scrape

ORDERS = {"group": "billing", "topic": "orders", "partition": "0"}


def test_a_scrape_says_what_the_consumer_did() -> None:
    """Ten records: 6 accepted, 2 released, 1 rejected, 1 left to its lock until it closes."""
    with run_broker({"sharegroup.metrics.port": "0"}) as broker:
        assert broker.running.metrics is not None
        port = broker.running.metrics.port
        create_topic(broker.bootstrap, "orders")
        set_group(broker.bootstrap, "billing", auto_offset_reset="earliest")
        produce(broker.bootstrap, "orders", [b"%d" % number for number in range(10)])
        with share_consumer(broker.bootstrap, "billing", "orders", explicit=True) as consumer:
            taken = take_shared(consumer, 10)
            before = scrape(port)
            assert before("kafka_server_share_partition_in_flight_messages", **ORDERS) == 10
            assert before("sharegroup_share_partition_records", **ORDERS, state="acquired") == 10
            assert before("sharegroup_share_partition_lag", **ORDERS) == 10
            acknowledge(consumer, taken[:6], AcknowledgeType.ACCEPT)
            acknowledge(consumer, taken[6:8], AcknowledgeType.RELEASE)
            acknowledge(consumer, taken[8:9], AcknowledgeType.REJECT)
            assert committed(consumer) == {("orders", 0): None}
            found = scrape(port)
            acked = "kafka_server_share_group_record_acknowledgements_total"
            assert found(acked, ack_type="accept") == 6
            assert found(acked, ack_type="release") == 2
            assert found(acked, ack_type="reject") == 1
            assert found("sharegroup_share_partition_lag", **ORDERS) == 3
            assert found("kafka_server_share_sessions") == 1
            assert found("kafka_group_coordinator_share_groups", state="Stable") == 1
            assert found("kafka_server_share_acknowledgement_requests_total", topic="orders") >= 1
            assert found("kafka_share_coordinator_write_seconds_count") >= 1
            assert found("kafka_network_request_seconds_count", request="ShareFetch") >= 1
            assert found("sharegroup_connections") >= 2
            assert found("sharegroup_sync_seconds_count") > 0
            assert found("sharegroup_bad_requests_total") == 0
            assert found("kafka_server_share_group_fetch_ratio_sum", group="billing") >= 1
