"""Quix Streams: a pipeline with state, at least once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop.frameworks.conftest import CommittedOffset, Consume, Produce

quixstreams = pytest.importorskip(
    "quixstreams", reason="Quix Streams is not installed; make frameworks runs this"
)


def test_pipeline_with_state_goes_on_where_it_ended(
    bootstrap: str, tmp_path: Path, produce: Produce, consume: Consume, committed: CommittedOffset
) -> None:
    """Two applications after each other, the second with an empty state folder.

    The state of the first comes back from its changelog topic.
    """

    def run(folder: str, count: int) -> None:
        app = quixstreams.Application(
            broker_address=bootstrap,
            consumer_group="quix",
            auto_offset_reset="earliest",
            state_dir=tmp_path / folder,
            commit_interval=0.2,
            loglevel="WARNING",
        )
        orders = app.topic("quix-orders", value_deserializer="json", key_deserializer="str")
        sums = app.topic("quix-sums", value_serializer="json", key_serializer="str")

        def add(order: Any, state: Any) -> dict[str, int]:
            total = state.get("total", 0) + order["total"]
            state.set("total", total)
            return {"total": total}

        app.dataframe(orders).apply(add, stateful=True).to_topic(sums)
        app.run(count=count, timeout=60)

    produce("quix-orders", b'{"total": 3}', b'{"total": 4}', key=b"Ada")
    run("first", 2)
    produce("quix-orders", b'{"total": 5}', key=b"Ada")
    run("second", 1)
    assert consume("quix-sums", 3) == [b'{"total":3}', b'{"total":7}', b'{"total":12}']
    assert committed("quix", "quix-orders") == 3
