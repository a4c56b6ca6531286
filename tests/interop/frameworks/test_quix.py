"""Quix Streams: a pipeline with state, at least once and exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sharegroup.testing import TestBroker
from tests.interop.frameworks.conftest import transaction_states, values

quixstreams = pytest.importorskip(
    "quixstreams", reason="Quix Streams is not installed; make frameworks runs this"
)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_pipeline_with_state_goes_on_where_it_ended(
    broker: TestBroker, tmp_path: Path, guarantee: str
) -> None:
    """Two applications after each other, the second with an empty state folder.

    The state of the first comes back from its changelog topic.
    """

    name = f"quix-{guarantee}"

    def run(folder: str, count: int) -> None:
        app = quixstreams.Application(
            broker_address=broker.bootstrap_servers,
            consumer_group=name,
            processing_guarantee=guarantee,
            auto_offset_reset="earliest",
            state_dir=tmp_path / folder,
            commit_interval=0.2,
            loglevel="WARNING",
        )
        orders = app.topic(f"{name}-orders", value_deserializer="json", key_deserializer="str")
        sums = app.topic(f"{name}-sums", value_serializer="json", key_serializer="str")

        def add(order: Any, state: Any) -> dict[str, int]:
            total = state.get("total", 0) + order["total"]
            state.set("total", total)
            return {"total": total}

        app.dataframe(orders).apply(add, stateful=True).to_topic(sums)
        app.run(count=count, timeout=60)

    broker.produce(f"{name}-orders", b'{"total": 3}', b'{"total": 4}', key="Ada")
    run("first", 2)
    broker.produce(f"{name}-orders", b'{"total": 5}', key="Ada")
    run("second", 1)
    assert values(broker, f"{name}-sums") == [b'{"total":3}', b'{"total":7}', b'{"total":12}']
    broker.wait_until(group=name, topic=f"{name}-orders", lag=0, timeout_s=60)
    if guarantee == "exactly-once":
        assert "CompleteCommit" in transaction_states(broker)
