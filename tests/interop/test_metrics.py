"""What Prometheus sees while confluent-kafka's share consumer is at work."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

from confluent_kafka import AcknowledgeType

from sharegroup.testing import run_broker
from tests.interop.test_confluent_share import acknowledge, committed
from tests.support.confluent_calls import (
    create_topic,
    produce,
    set_group,
    share_consumer,
    take_shared,
)
from tests.support.limits import HANGING_SECONDS
from tests.support.scraping import scrape

METRICS_SERVED = re.compile(r"event=metrics_served url=http://127\.0\.0\.1:(\d+)/metrics\n")

ORDERS = {"group": "billing", "topic": "orders", "partition": "0"}


def test_metrics_count_the_actions_of_the_consumer() -> None:
    """Ten records: 6 accepted, 2 released, 1 rejected, 1 left to its lock until it closes."""
    with run_broker({"sharegroup.metrics.port": "0"}) as broker:
        assert broker.running.metrics is not None
        port = broker.running.metrics.port
        create_topic(broker.bootstrap_servers, "orders")
        set_group(broker.bootstrap_servers, "billing", auto_offset_reset="earliest")
        produce(broker.bootstrap_servers, "orders", [b"%d" % number for number in range(10)])
        with share_consumer(
            broker.bootstrap_servers, "billing", "orders", explicit=True
        ) as consumer:
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


def test_serve_prints_its_metrics_address_and_stops_during_a_scrape(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "sharegroup", "serve", "--port", "0", "--metrics-port", "0"]
    words += ["--data", str(tmp_path / "data")]
    with (
        open(tmp_path / "log", "wb") as log,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True) as serve,
    ):
        assert serve.stdout is not None
        try:
            assert serve.stdout.readline().startswith("ready bootstrap=127.0.0.1:")
            said = METRICS_SERVED.search((tmp_path / "log").read_text())
            assert said is not None
            port = int(said[1])
            assert scrape(port)("sharegroup_connections") == 0
            with socket.create_connection(("127.0.0.1", port)) as slow:
                slow.sendall(b"GET /metrics HTTP/1.1\r\n")
                serve.terminate()
                assert serve.wait(HANGING_SECONDS) == 0
        finally:
            serve.kill()
