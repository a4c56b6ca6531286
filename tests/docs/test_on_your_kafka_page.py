"""docs/on-your-kafka.md on a real Apache Kafka; on our broker `make docs-test` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sharegroup.client import NewTopic
from sharegroup.client.sync import AdminClient
from tests.docs.snippets.page_run import PageRun
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.kafka_peer import KafkaPeer, why_missing

PAGE = Path(__file__).resolve().parents[2] / "docs" / "on-your-kafka.md"


@LONG_WITH_A_JVM
@pytest.mark.kafka
@pytest.mark.skipif(why_missing() is not None, reason=why_missing() or "")
def test_page_runs_on_apache_kafka(tmp_path: Path) -> None:
    """A Kafka as it is after its first start, with ``share.version`` of its release."""
    (tmp_path / "page").mkdir()
    with KafkaPeer(tmp_path / "kafka") as kafka:
        with AdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", num_partitions=1)])
        port = kafka.bootstrap_servers.rpartition(":")[2]
        environment = Path(sys.prefix)
        with PageRun(PAGE, tmp_path / "page", environment, port=port) as run:
            assert [block.options.get("file") for block in run.run()] == [None, "orders.py", None]
